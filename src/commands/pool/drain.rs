//! `prezero pool drain` and `destroy`: pages go back to the kernel.

use std::io;
use std::process::ExitCode;

use prezero_memory::pool::{Drained, Pool};
use prezero_memory::{ByteSize, Class};

use super::place;
use crate::cli::{PoolDestroyArgs, PoolDrainArgs};
use crate::failure::Failure;
use crate::output;

/// Runs `drain` and says what became of the segments.
pub(super) fn main(args: &PoolDrainArgs) -> ExitCode {
    output::done(drain(args))
}

/// Runs `destroy` and says what became of the pool.
pub(super) fn destroy(args: &PoolDestroyArgs) -> ExitCode {
    output::done(destroy_all(args))
}

fn drain(args: &PoolDrainArgs) -> Result<(), Failure> {
    let (dir, _) = place(args.dir.as_deref())?;
    let pool = Pool::open(&dir)?;
    let drained = pool.drain(args.segment, args.size)?;
    say(&drained)?;
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

fn destroy_all(args: &PoolDestroyArgs) -> Result<(), Failure> {
    let (dir, _) = place(args.dir.as_deref())?;
    let destroyed = Pool::open(&dir)?.destroy()?;
    let drained = &destroyed.drained;
    say(drained)?;
    if destroyed.left.is_empty() {
        return Ok(());
    }
    let (class, why) = match drained.busy.is_empty() {
        false => (
            Class::Shortage,
            format!("segments in use: {}", drained.busy.len()),
        ),
        true => (
            Class::Host,
            "there is something else in it, which is left alone".to_owned(),
        ),
    };
    Err(Failure {
        class,
        message: format!("{} is still there: {why}", dir.display()),
        fix: Some(format!("prezero pool status {}", dir.display())),
    })
}

fn say(drained: &Drained) -> Result<(), Failure> {
    for problem in &drained.problems {
        output::warn(&output::pool::left_alone(problem));
    }
    output::pool::drained(&mut io::stdout().lock(), drained)
        .map_err(|error| Failure::new(Class::Internal, &error, None))
}
