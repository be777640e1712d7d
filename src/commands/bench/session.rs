//! What every measurement does around its own work: it ends on signals, knows the machine, says at once
//! what it has to say, and prints its report.

use std::io;
use std::process::ExitCode;

use prezero_host::Host;
use prezero_memory::{Cancel, Class};
use rustix::process::{Resource, getrlimit};
use serde::Serialize;

use crate::failure::{Failure, MORE_FILES};
use crate::measure::machine::Watch;
use crate::measure::warning::Warning;
use crate::output;
use crate::output::progress::Bars;
use crate::report::bench::{BenchReport, Shared};
use crate::report::facts::ErrorFacts;
use crate::report::machine::MachineFacts;

/// Measures, and prints the report as JSON or by `text`, also that of a measurement that failed.
pub(super) fn main<R: BenchReport + Serialize>(
    mut report: R,
    json: bool,
    run: impl FnOnce(&Cancel, &mut R) -> Result<(), Failure>,
    text: impl FnOnce(&mut Vec<u8>, &R) -> io::Result<()>,
) -> ExitCode {
    let result = match crate::stop::on_signals() {
        Ok(cancel) => enough_descriptors().and_then(|()| run(&cancel, &mut report)),
        Err(error) => Err(Failure::new(Class::Internal, &error, None)),
    };
    *report.shared().error = result.as_ref().err().map(ErrorFacts::from);
    output::finish(&report, result, json, |out| text(out, &report))
}

/// Files that a measurement has open at a time, with room to spare.
const FILES: u64 = 64;

/// With fewer the host could not be looked at, and would seem to have nothing.
fn enough_descriptors() -> Result<(), Failure> {
    match getrlimit(Resource::Nofile).current {
        Some(most) if most < FILES => Err(Failure {
            class: Class::Shortage,
            message: format!(
                "This process may have {most} files open at a time (RLIMIT_NOFILE), of which a measurement needs up to {FILES}"
            ),
            fix: Some(MORE_FILES.to_owned()),
        }),
        _ => Ok(()),
    }
}

/// This host, which is in the report from now on.
pub(super) fn probe(report: &mut impl BenchReport) -> Host {
    let host = Host::probe();
    let Shared {
        host: known,
        machine,
        ..
    } = report.shared();
    *known = Some((&host).into());
    *machine = Some(MachineFacts::here(&host));
    host
}

/// Says it on stderr and in the report.
pub(super) fn warn(report: &mut impl BenchReport, warnings: impl IntoIterator<Item = Warning>) {
    for warning in warnings {
        let warning = warning.to_string();
        output::warn(&warning);
        report.shared().warnings.push(warning);
    }
}

/// One step of so many bytes, with a bar that is gone before anything else is said. `work` is given what
/// to tell the bytes to that are done.
pub(super) fn step<T>(name: &str, bytes: u64, work: impl FnOnce(&dyn Fn(u64)) -> T) -> T {
    let bars = Bars::new(name, &[(None, bytes)]);
    let result = work(&|done| bars.set(0, done));
    bars.finish();
    result
}

/// What went on meanwhile belongs to the report.
pub(super) fn watched(report: &mut impl BenchReport, watch: &Watch) {
    let watched = watch.end();
    if let Some(machine) = report.shared().machine {
        machine.set_load_after(watched.load);
    }
    warn(report, watched.warnings);
}
