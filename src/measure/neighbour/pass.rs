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

use super::background::{Dirty, PIECE};
use super::chase::Chase;
use super::place::Place;
use crate::failure::Failure;
use crate::measure::counters::{Counters, Counts, Reading, Scope, Unavailable};
use crate::measure::cpus;

/// Lines that are followed between two looks at the clock: so many that the look is lost in the time of
/// reads from the nearest cache. What it is in truth is measured ([`empty`]).
pub(crate) const BATCH: u64 = 4096;
/// How long the foreground is measured alone.
const ALONE: Duration = Duration::from_millis(100);
/// How long it looks at the clock and reads nothing.
const EMPTY: Duration = Duration::from_millis(2);
/// The longest beside a slow background.
const LONGEST: Duration = Duration::from_secs(1);
/// The part of the memory, at its beginning and its end, that is cleared outside of the measured time.
const EDGE: u64 = 16;

/// The rate, in bytes a second, at which the first part is cleared in ten seconds and each thread clears a
/// piece in one.
pub(crate) fn slowest(threads: usize, bytes: u64) -> u64 {
    let pieces = (PIECE as u64).saturating_mul(threads as u64);
    pieces.max(bytes.div_ceil(EDGE * 10))
}

/// What was measured in one pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample {
    /// Lines read.
    pub(crate) accesses: u64,
    pub(crate) time: Duration,
    /// Bytes that were cleared meanwhile.
    pub(crate) cleared: u64,
    /// Of the foreground, where the CPU counts.
    pub(crate) counts: Option<Counts>,
}

impl Sample {
    /// The time of a batch on average.
    #[allow(clippy::cast_precision_loss)] // a measured figure
    pub(super) fn batch(&self) -> Duration {
        self.time
            .mul_f64(BATCH as f64 / self.accesses.max(1) as f64)
    }
}

/// How a pass is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How<'a> {
    pub(crate) place: &'a Place,
    /// Bytes a second, of all threads together.
    pub(crate) rate: Option<u64>,
    pub(crate) cancel: &'a Cancel,
}

/// What a pass comes to.
#[derive(Debug)]
pub(super) enum Taken {
    Pass(Pass),
    /// It was over before it could be timed.
    TooLittle,
    Cancelled,
}

/// A pass that came to something.
#[derive(Clone, Debug)]
pub(super) struct Pass {
    pub(super) sample: Sample,
    /// Threads that were not on their CPUs.
    pub(super) loose: usize,
    /// Why nothing was counted.
    pub(super) uncounted: Option<Unavailable>,
}

/// Runs it on a thread of the foreground's CPU, which is told whether it is there.
fn on_reader<T: Send>(cpu: u32, work: impl FnOnce(bool) -> T + Send) -> Result<T, Failure> {
    thread::scope(|scope| {
        let reader = Builder::new().name("prezero-reader".to_owned());
        let reader = reader.spawn_scoped(scope, move || work(cpus::pin(Some(cpu))));
        let reader = reader.map_err(|error| no_thread(&error))?;
        reader.join().map_err(|_| lost())
    })
}

/// Follows the cycle in batches of so many lines for so long: how many batches, and the time; `None` if it was
/// cancelled.
fn follow(
    chase: &mut Chase,
    batch: u64,
    least: Duration,
    cancel: &Cancel,
) -> Option<(u32, Duration)> {
    let start = Instant::now();
    let mut batches = 0;
    loop {
        chase.follow(batch);
        batches += 1;
        let time = start.elapsed();
        if cancel.is_cancelled() {
            return None;
        }
        if time >= least {
            return Some((batches, time));
        }
    }
}

/// What there is to a batch besides its reads; `None` if it was cancelled.
pub(super) fn empty(chase: &mut Chase, how: How<'_>) -> Result<Option<Duration>, Failure> {
    let batches = on_reader(how.place.foreground, |_| {
        follow(chase, 0, EMPTY, how.cancel)
    })?;
    Ok(batches.map(|(batches, time)| time / batches))
}

/// The foreground alone.
pub(super) fn alone(chase: &mut Chase, how: How<'_>) -> Result<Taken, Failure> {
    let pass = on_reader(how.place.foreground, |pinned| {
        let counters = Counters::open(&[0], Scope::User);
        chase.warm();
        let counting = counters.as_ref().ok().and_then(Counting::start);
        let (batches, time) = follow(chase, BATCH, ALONE, how.cancel)?;
        let counts = counting.and_then(|counting| counting.end());
        Some(Pass {
            sample: Sample {
                accesses: u64::from(batches) * BATCH,
                time,
                cleared: 0,
                counts,
            },
            loose: usize::from(!pinned),
            uncounted: counters.err(),
        })
    })?;
    Ok(pass.map_or(Taken::Cancelled, Taken::Pass))
}

/// Counters that count.
struct Counting<'a> {
    counters: &'a Counters,
    before: Reading,
}

impl<'a> Counting<'a> {
    fn start(counters: &'a Counters) -> Option<Self> {
        let before = counters.read().ok()?;
        Some(Self { counters, before })
    }

    fn end(&self) -> Option<Counts> {
        self.counters.since(&self.before)
    }
}

/// The foreground next to the clearing of this memory, all of it dirty.
pub(super) fn beside(
    chase: &mut Chase,
    spans: Vec<Span<'_>>,
    method: Method,
    how: How<'_>,
) -> Result<Taken, Failure> {
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
            let counters = Counters::open(&[0], Scope::User);
            chase.warm();
            for start in &starts {
                let _ = start.send(());
            }
            let counted = counters.as_ref().ok();
            let sample = while_cleared(chase, dirty, threads, counted, how.cancel);
            dirty.stop();
            sample.map(|sample| Pass {
                sample,
                loose: usize::from(!pinned),
                uncounted: counters.err(),
            })
        });
        let reader = reader.map_err(|error| no_thread(&error))?;
        let mut pass = reader.join().map_err(|_| lost())?;
        for thread in clearing {
            let pinned = thread.join().map_err(|_| lost())?;
            if let Some(pass) = &mut pass {
                pass.loose += usize::from(!pinned);
            }
        }
        Ok(pass)
    })?;
    Ok(match taken {
        _ if how.cancel.is_cancelled() => Taken::Cancelled,
        Some(pass) => Taken::Pass(pass),
        None => Taken::TooLittle,
    })
}

/// Follows the cycle from when the first part is cleared to when only the last part is left. `None` if
/// there was no such time.
fn while_cleared(
    chase: &mut Chase,
    dirty: &Dirty<'_>,
    threads: usize,
    counters: Option<&Counters>,
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
    let counting = counters.and_then(Counting::start);
    let (start, before) = (Instant::now(), dirty.done());
    let (mut accesses, mut sample) = (0, None);
    loop {
        chase.follow(BATCH);
        accesses += BATCH;
        let time = start.elapsed();
        let done = dirty.done();
        // The background has to be at work until after the last of what counts.
        if !goes_on() {
            break;
        }
        let cleared = done - before;
        if cleared > 0 {
            sample = Some(Sample {
                accesses,
                time,
                cleared,
                counts: None,
            });
        }
        if done >= dirty.total() - edge || time >= LONGEST && cleared > 0 {
            break;
        }
    }
    let counts = counting.and_then(|counting| counting.end());
    sample.map(|sample: Sample| Sample {
        // The batches that no longer count are like the others.
        counts: counts.map(|counts| counts.part(sample.accesses, accesses)),
        ..sample
    })
}

/// Memory that is cleared too soon, however often it is tried.
pub(super) fn too_little(bytes: u64) -> Failure {
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
