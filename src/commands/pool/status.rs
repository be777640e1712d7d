//! `prezero pool status`: what a pool has, who uses it and who pays.

use std::path::Path;
use std::process::ExitCode;

use prezero_host::HugetlbCharge;
use prezero_memory::pool::Pool;

use super::place;
use crate::cli::PoolStatusArgs;
use crate::failure::Failure;
use crate::output;
use crate::report::facts::ErrorFacts;
use crate::report::pool::StatusReport;

/// Runs the command and prints its report.
pub(super) fn main(args: &PoolStatusArgs) -> ExitCode {
    let mut report = StatusReport::new();
    let result = run(args, &mut report);
    report.error = result.as_ref().err().map(ErrorFacts::from);
    let done = result.is_ok();
    output::finish(&report, result, args.json, |out| match done {
        true => output::pool::status(out, &report),
        false => Ok(()),
    })
}

fn run(args: &PoolStatusArgs, report: &mut StatusReport) -> Result<(), Failure> {
    let (dir, _) = place(args.dir.as_deref())?;
    report.pool = Some(dir.clone());
    let pool = Pool::open(&dir)?;
    report.set_status(&pool.status()?);
    let charges = HugetlbCharge::all(Path::new("/"), pool.page_size());
    report.charges = charges.iter().map(Into::into).collect();
    Ok(())
}
