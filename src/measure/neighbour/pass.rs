//! One pass: the foreground alone, or next to the background for as long as that is at work.
//!
//! The background clears memory that was dirtied before, once: to dirty it again meanwhile would be
//! another neighbour. The foreground is measured from when the first part of it is cleared until little
//! is left, so that neither the start nor the end of the background counts.

use std::io;
use std::sync::mpsc::channel;
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use prezero_clear::{Method, Span};
use prezero_memory::{ByteSize, Cancel, Class};

use super::background::Dirty;
use super::chase::Chase;
use super::place::Place;
use crate::failure::Failure;
use crate::measure::cpus;

/// Lines that are followed between two looks at the clock, which costs less than one of them.
const BATCH: u64 = 512;
/// How long the foreground is measured alone.
const ALONE: Duration = Duration::from_millis(100);
/// The longest beside a slow background.
const LONGEST: Duration = Duration::from_secs(1);
/// The part of the memory, at its beginning and its end, that is cleared outside of the measured time.
const EDGE: u64 = 16;

/// What was measured in one pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample {
    /// Lines read.
    pub(crate) accesses: u64,
    pub(crate) time: Duration,
    /// Bytes that were cleared meanwhile.
    pub(crate) cleared: u64,
}

/// How a pass is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How<'a> {
    pub(crate) place: &'a Place,
    /// Bytes a second, of all threads together.
    pub(crate) rate: Option<u64>,
    pub(crate) cancel: &'a Cancel,
}

/// A sample, and whether all threads were on their CPUs.
pub(super) type Taken = Result<Option<(Sample, bool)>, Failure>;

/// The foreground alone; `None` if it was cancelled.
pub(super) fn alone(chase: &mut Chase, how: How<'_>) -> Taken {
    let measure = move || {
        let pinned = cpus::pin(Some(how.place.foreground));
        chase.warm();
        let start = Instant::now();
        let mut accesses = 0;
        loop {
            chase.follow(BATCH);
            accesses += BATCH;
            let time = start.elapsed();
            if how.cancel.is_cancelled() {
                return None;
            }
            if time >= ALONE {
                let cleared = 0;
                return Some((
                    Sample {
                        accesses,
                        time,
                        cleared,
                    },
                    pinned,
                ));
            }
        }
    };
    thread::scope(|scope| {
        let foreground = Builder::new().name("prezero-reader".to_owned());
        let foreground = foreground.spawn_scoped(scope, measure);
        let foreground = foreground.map_err(|error| no_thread(&error))?;
        foreground.join().map_err(|_| lost())
    })
}

/// The foreground next to the clearing of this memory, all of it dirty; `None` if it was cancelled.
pub(super) fn beside(
    chase: &mut Chase,
    spans: Vec<Span<'_>>,
    method: Method,
    how: How<'_>,
) -> Taken {
    let threads = how.place.background.len();
    let rate = how.rate.map(|rate| rate / threads.max(1) as u64);
    let dirty = &Dirty::new(spans, threads);
    let taken = thread::scope(|scope| -> Result<_, Failure> {
        let (mut starts, mut clearing) = (Vec::new(), Vec::new());
        for (n, &cpu) in how.place.background.iter().enumerate() {
            let (start, started) = channel::<()>();
            let body = move || {
                let pinned = cpus::pin(Some(cpu));
                // Nobody starts it if another thread could not be made.
                if started.recv().is_ok() {
                    dirty.clear(method, rate);
                }
                pinned
            };
            let thread = Builder::new().name(format!("prezero-b{n}"));
            let thread = thread.spawn_scoped(scope, body);
            clearing.push(thread.map_err(|error| no_thread(&error))?);
            starts.push(start);
        }
        let reader = Builder::new().name("prezero-reader".to_owned());
        let reader = reader.spawn_scoped(scope, move || {
            let pinned = cpus::pin(Some(how.place.foreground));
            chase.warm();
            for start in &starts {
                let _ = start.send(());
            }
            let sample = while_cleared(chase, dirty, threads, how.cancel);
            dirty.stop();
            (sample, pinned)
        });
        let reader = reader.map_err(|error| no_thread(&error))?;
        let (sample, mut pinned) = reader.join().map_err(|_| lost())?;
        for thread in clearing {
            pinned &= thread.join().map_err(|_| lost())?;
        }
        Ok((sample, pinned))
    })?;
    match taken {
        _ if how.cancel.is_cancelled() => Ok(None),
        (Some(sample), pinned) => Ok(Some((sample, pinned))),
        (None, _) => Err(too_little(dirty.total())),
    }
}

/// Follows the cycle from when the first part is cleared to when only the last part is left. `None` if
/// there was no such time.
fn while_cleared(
    chase: &mut Chase,
    dirty: &Dirty<'_>,
    threads: usize,
    cancel: &Cancel,
) -> Option<Sample> {
    let edge = dirty.total() / EDGE;
    let goes_on = || dirty.all_running(threads) && !cancel.is_cancelled();
    while dirty.done() < edge {
        if !goes_on() {
            return None;
        }
        chase.follow(BATCH);
    }
    let (start, before) = (Instant::now(), dirty.done());
    let (mut accesses, mut sample) = (0, None);
    loop {
        chase.follow(BATCH);
        accesses += BATCH;
        let time = start.elapsed();
        let done = dirty.done();
        // The background has to be at work until after the last of what counts.
        if !goes_on() {
            return sample;
        }
        let cleared = done - before;
        if cleared > 0 {
            sample = Some(Sample {
                accesses,
                time,
                cleared,
            });
        }
        if done >= dirty.total() - edge || time >= LONGEST && cleared > 0 {
            return sample;
        }
    }
}

fn too_little(bytes: u64) -> Failure {
    let more = ByteSize(bytes.saturating_mul(4)).to_spec();
    Failure {
        class: Class::Usage,
        message: format!(
            "Clearing {} was over before {BATCH} reads were timed next to it",
            ByteSize(bytes)
        ),
        fix: Some(format!("--memory {more}")),
    }
}

fn no_thread(error: &io::Error) -> Failure {
    Failure::new(
        Class::Shortage,
        error,
        Some("--threads 1; or raise what is short: ulimit -u, pids.max of the cgroup".to_owned()),
    )
}

fn lost() -> Failure {
    Failure {
        class: Class::Internal,
        message: "A thread of the measurement ended without a result".to_owned(),
        fix: None,
    }
}
