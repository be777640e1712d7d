//! `prezero pool drain` and `destroy`: pages go back to the kernel.

use std::fs;
use std::process::ExitCode;

use prezero_memory::pool::Pool;
use prezero_memory::{ByteSize, Class};

use super::place;
use crate::cli::{PoolDestroyArgs, PoolDrainArgs};
use crate::failure::Failure;
use crate::output;
use crate::report::facts::ErrorFacts;
use crate::report::pool_drain::DrainReport;

/// Runs `drain` and says what became of the segments.
pub(super) fn main(args: &PoolDrainArgs) -> ExitCode {
    let mut report = DrainReport::drain();
    let result = drain(args, &mut report);
    finish(report, result, args.json)
}

/// Runs `destroy` and says what became of the pool.
pub(super) fn destroy(args: &PoolDestroyArgs) -> ExitCode {
    let mut report = DrainReport::destroy();
    let result = destroy_all(args, &mut report);
    finish(report, result, args.json)
}

fn finish(mut report: DrainReport, result: Result<(), Failure>, json: bool) -> ExitCode {
    for problem in &report.problems {
        output::warn(&output::pool::left_alone(problem));
    }
    report.error = result.as_ref().err().map(ErrorFacts::from);
    output::finish(&report, result, json, |out| {
        output::pool::drained(out, &report)
    })
}

fn drain(args: &PoolDrainArgs, report: &mut DrainReport) -> Result<(), Failure> {
    let (dir, _) = place(args.dir.as_deref())?;
    report.pool = Some(dir.clone());
    let pool = Pool::open(&dir)?;
    let drained = pool.drain(args.segment, args.size)?;
    report.set_drained(&drained);
    match args.size.filter(|asked| drained.bytes < *asked) {
        None => Ok(()),
        Some(asked) => Err(Failure {
            class: Class::Shortage,
            message: format!(
                "{} of {} were free in {}",
                ByteSize(drained.bytes),
                ByteSize(asked),
                dir.display()
            ),
            fix: Some(format!("prezero pool status {}", dir.display())),
        }),
    }
}

fn destroy_all(args: &PoolDestroyArgs, report: &mut DrainReport) -> Result<(), Failure> {
    let (dir, _) = place(args.dir.as_deref())?;
    report.pool = Some(dir.clone());
    let destroyed = Pool::open(&dir)?.destroy()?;
    report.set_destroyed(&destroyed);
    if destroyed.left.is_empty() {
        return Ok(());
    }
    let shown = dir.display();
    let status = format!("prezero pool status {shown}");
    let is_empty = fs::read_dir(&dir).is_ok_and(|mut entries| entries.next().is_none());
    let (class, why, fix) = match destroyed.drained.busy.len() {
        0 if is_empty => (
            Class::Host,
            "empty, but this user may not remove it".to_owned(),
            format!("sudo rmdir {shown}"),
        ),
        0 => (
            Class::Host,
            "there is something else in it, which is left alone".to_owned(),
            status,
        ),
        busy => (Class::Shortage, format!("segments in use: {busy}"), status),
    };
    Err(Failure {
        class,
        message: format!("{shown} is still there: {why}"),
        fix: Some(fix),
    })
}
