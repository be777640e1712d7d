//! `prezero plan`: what `run` would do, without doing it.

use std::process::ExitCode;

use prezero_host::Host;
use prezero_memory::plan;

use super::request::{check_root, request};
use crate::cli::PlanArgs;
use crate::failure::Failure;
use crate::output;
use crate::report::facts::ErrorFacts;
use crate::report::plan::PlanReport;

/// Runs the command and prints its report.
pub(crate) fn main(args: &PlanArgs) -> ExitCode {
    let mut report = PlanReport::new();
    let result = run(args, &mut report);
    for warning in &report.warnings {
        output::warn(warning);
    }
    report.error = result.as_ref().err().map(ErrorFacts::from);
    output::finish(&report, result, args.json, |out| {
        output::text::plan(out, &report)
    })
}

fn run(args: &PlanArgs, report: &mut PlanReport) -> Result<(), Failure> {
    let request = request(&args.memory, &args.populate)?;
    report.request = Some((&request).into());
    check_root(&args.host.root)?;
    let host = Host::read(&args.host.root);
    report.set_host(&host);
    report.set_plan(&plan(&host, &request)?);
    Ok(())
}
