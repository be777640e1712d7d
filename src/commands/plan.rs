//! `prezero plan`: what `run` would do, without doing it.

mod measurements;

use std::path::Path;
use std::process::ExitCode;

use prezero_host::Host;
use prezero_memory::plan;

use self::measurements::Measurements;
use super::request::{check_root, request};
use super::segments::{check_recorded, foresee, pool_for};
use crate::cli::PlanArgs;
use crate::failure::Failure;
use crate::output;
use crate::report::facts::{ErrorFacts, PoolUse};
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
    let mut request = request(&args.memory, &args.populate)?;
    report.request = Some((&request).into());
    let (root, choice) = (args.host.root.as_path(), args.segments.pool.as_path());
    check_root(root)?;
    check_recorded(choice, root)?;
    let host = Host::read(root);
    report.set_host(&host);
    // Also for a size that this host does not have, which the planner refuses.
    // That there is no memory is for the planner to say.
    let from = args.from.as_ref().filter(|_| !request.zones.is_empty());
    if let Some(path) = from {
        let measured = Measurements::read(path)?;
        report.warnings.extend(measured.of_another_machine(&host));
        let estimate = measured.predict(&request, &host)?;
        let warnings = estimate.warnings();
        report
            .warnings
            .extend(warnings.iter().map(ToString::to_string));
        report.estimate = Some(estimate);
    }
    let mut dir = None;
    if root == Path::new("/") {
        let mut warn = |warning| report.warnings.push(warning);
        if let Some(pool) = pool_for(choice, &host, &request, &mut warn)? {
            foresee(&pool.status()?, &mut request, &mut warn)?;
            dir = Some(pool.path().to_owned());
        }
    }
    let planned = plan(&host, &request)?;
    report.set_plan(&planned);
    report.pool = dir.and_then(|dir| PoolUse::of(&planned, &dir));
    Ok(())
}
