//! What timing a child adds to its time, measured on one that does nothing but say when it is ready.
//!
//! It is started, read and waited for as the children of all rows are. Between the moment that counts as its
//! exec and the exec itself that moment is handed over: all rows have that in their times. Between a child's
//! event and the moment that is written down for it lie a pipe and the waking of this process: other
//! monitors have that in theirs, while prezero reads the clock itself.

use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

use prezero_memory::{Cancel, Class};

use super::child::Child;
use super::prezero::THIS;
use crate::failure::Failure;
use crate::measure::own_cost::OwnCost;

/// An odd number, for the median.
const CHILDREN: usize = 21;

/// It has nothing to do.
const LIMIT: Duration = Duration::from_secs(60);

/// What timing adds to a creation.
#[derive(Clone, Debug)]
pub(crate) struct Costs {
    /// To one of prezero.
    pub(crate) prezero: OwnCost,
    /// To one of another monitor.
    pub(crate) peer: OwnCost,
}

/// Times children that do nothing, after one that is not counted.
pub(crate) fn measure(cancel: &Cancel) -> Result<Costs, Failure> {
    one(cancel)?;
    let pairs = (0..CHILDREN).map(|_| one(cancel));
    let pairs = pairs.collect::<Result<Vec<_>, Failure>>()?;
    let cost = |samples: Vec<Duration>| OwnCost::of(samples).ok_or_else(|| broken(&"none"));
    Ok(Costs {
        prezero: cost(pairs.iter().map(|(begin, _)| *begin).collect())?,
        peer: cost(pairs.iter().map(|(begin, end)| *begin + *end).collect())?,
    })
}

/// What the beginning and the end of one child's time take.
fn one(cancel: &Cancel) -> Result<(Duration, Duration), Failure> {
    let mut command = Command::new(THIS);
    command.arg("stamp");
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let (mut reader, writer) = io::pipe().map_err(|error| broken(&error))?;
    let name = "a child that does nothing";
    let mut child = Child::start_with(name, &mut command, cancel, LIMIT, Some(writer))?;
    let mut begun = [0; 8];
    let read = reader.read_exact(&mut begun);
    read.map_err(|error| child.failed(&error.to_string()))?;
    let output = child.process().and_then(|process| process.stdout.take());
    let output = output.ok_or_else(|| child.failed("it has no output"))?;
    let (words, at) = child.read_until(output, |read| read.contains(&b'\n'))?;
    let started = child.started();
    child.wait()?;
    let ready = String::from_utf8_lossy(&words).trim().parse();
    let ready = ready.map_err(|error| broken(&error))?;
    let begun = Duration::from_nanos(u64::from_ne_bytes(begun));
    Ok((
        begun.saturating_sub(started),
        at.saturating_sub(Duration::from_nanos(ready)),
    ))
}

fn broken(what: &dyn std::fmt::Display) -> Failure {
    Failure {
        class: Class::Internal,
        message: format!("The time of a child that does nothing: {what}"),
        fix: None,
    }
}
