//! How long it takes to make the same machine, by way: each time a process of its own, timed on one clock
//! from its exec to the moment the machine's memory is there.
//!
//! Rows take turns ([`super::rounds`]), over all sizes. Between two of them memory is made what the next
//! one needs: given back, put into a pool, filled with other bytes. None of that is timed.

mod child;
mod cloud_hypervisor;
mod events;
mod no_pin;
pub(crate) mod null_child;
mod own_dir;
mod peer;
pub(crate) mod pins;
mod place;
mod prezero;
mod qemu;
mod recycled;
pub(crate) mod remarks;
pub(crate) mod sizes;
mod state;
mod stub_kernel;
mod sys;
mod way;

use std::time::Duration;

use prezero_host::IdSet;
use prezero_memory::{Cancel, Class, Method};

pub(crate) use self::cloud_hypervisor::CloudHypervisor;
pub(crate) use self::place::{Place, fix as pool_fix};
pub(crate) use self::qemu::Qemu;
pub(crate) use self::sizes::{Pages, Size};
use self::state::State;
pub(crate) use self::way::{Row, Way, Ways};
use super::clear::gbps;
use super::counters::{Counters, Counts, Scope, Unavailable};
use super::rounds::interleave;
use super::stats::Summary;
use crate::failure::Failure;

/// What clearing or populating of a machine's memory took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) bytes: u64,
    pub(crate) time: Duration,
}

/// One machine.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// From the exec to the last memory slot registered, or the other monitor's own event.
    pub(crate) creation: Duration,
    /// From the exec to the guest's first port write.
    pub(crate) first_instruction: Option<Duration>,
    /// CPU time of the process from its start to its end.
    pub(crate) cpu: Duration,
    /// None where nothing had to be cleared.
    pub(crate) work: Option<Work>,
    /// How many threads there were, as far as it is known.
    pub(crate) workers: Option<usize>,
    /// Another monitor's: bytes in hugepages that were in use when it said that it was ready, and not before it
    /// was started, as far as it is known.
    pub(crate) taken: Option<u64>,
    /// How many workers were not kept on a CPU, as far as it is known.
    pub(crate) loose: usize,
    /// What prezero's own report warns of.
    pub(crate) warnings: Vec<String>,
}

impl Sample {
    /// One of another monitor, whose clearing cannot be told from the rest.
    fn of_peer(
        creation: Duration,
        cpu: Duration,
        workers: Option<usize>,
        taken: Option<u64>,
    ) -> Self {
        Self {
            creation,
            first_instruction: None,
            cpu,
            work: None,
            workers,
            taken,
            loose: 0,
            warnings: Vec::new(),
        }
    }
}

/// A row and what came of it.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) row: Row,
    /// With what dirty memory was cleared.
    pub(crate) method: Option<Method>,
    /// One for each round, in their order; at least one.
    pub(crate) samples: Vec<Sample>,
    /// GB/s of each: all bytes over the time of creation.
    pub(crate) gbps: Vec<f64>,
    /// GB/s of what clears alone, of each where it can be seen.
    pub(crate) work_gbps: Vec<f64>,
    /// Seconds of each.
    pub(crate) creation: Summary,
    /// What a machine's process came to on average, from its exec to its end.
    pub(crate) counts: Option<Counts>,
}

impl Measured {
    /// None without samples.
    pub(crate) fn new(row: Row, method: Option<Method>, samples: Vec<Sample>) -> Option<Self> {
        let created = samples
            .iter()
            .map(|sample| gbps(row.bytes, sample.creation));
        let work = samples.iter().filter_map(|sample| sample.work);
        let seconds = samples.iter().map(|sample| sample.creation.as_secs_f64());
        let creation = Summary::of(&seconds.collect::<Vec<_>>())?;
        Some(Self {
            row,
            method,
            gbps: created.collect(),
            work_gbps: work.map(|work| gbps(work.bytes, work.time)).collect(),
            creation,
            samples,
            counts: None,
        })
    }

    /// Seconds of each machine.
    pub(crate) fn seconds(&self) -> Vec<f64> {
        let samples = self.samples.iter();
        samples
            .map(|sample| sample.creation.as_secs_f64())
            .collect()
    }
}

/// What a measurement needs.
#[derive(Debug)]
pub(crate) struct Bench<'a> {
    pub(crate) pages: Pages,
    pub(crate) place: &'a Place,
    pub(crate) qemu: Option<Qemu>,
    pub(crate) cloud_hypervisor: Option<CloudHypervisor>,
    /// The CPUs that other monitors' threads may be kept on.
    pub(crate) cpus: IdSet,
    pub(crate) cancel: &'a Cancel,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) rows: Vec<Measured>,
    /// What was left out, and why.
    pub(crate) notes: Vec<String>,
    /// Why nothing was counted.
    pub(crate) uncounted: Option<Unavailable>,
}

impl Bench<'_> {
    /// Measures all rows, `runs` times each, after one time that is not counted. `progress` is told how many
    /// bytes of machines have been made. Another monitor that fails is left out from there on.
    pub(crate) fn measure(
        &self,
        rows: &[Row],
        runs: usize,
        progress: &dyn Fn(u64),
    ) -> Result<Outcome, Failure> {
        let mut state = State::new(self);
        // Most of the work is the kernel's.
        let counters = Counters::of_programs(Scope::All);
        let mut notes = Vec::new();
        let mut out = vec![false; rows.len()];
        let (mut done, mut machines) = (0, 0);
        let samples = interleave(rows.len(), runs, |n| {
            let row = &rows[n];
            done += row.bytes;
            if out[n] {
                return Ok(None);
            }
            let before = counters.as_ref().ok().and_then(|all| all.read().ok());
            let sample = match state.pass(row) {
                Ok(sample) => Some((
                    sample,
                    counters.as_ref().ok().and_then(|all| all.since(&before?)),
                )),
                // What was waited for is not there then.
                Err(_) if self.cancel.is_cancelled() => {
                    return Err(stopped(machines, rows.len() * (runs + 1)));
                }
                Err(failure) if row.way.peer().is_some() => {
                    out[n] = true;
                    let (peer, way) = (row.way.peer().unwrap_or_default(), row.way.name());
                    notes.push(format!("{peer} {way} is left out: {}", failure.message));
                    None
                }
                Err(failure) => return Err(failure),
            };
            machines += 1;
            progress(done);
            Ok(sample)
        })?;
        let uncached = state.end();
        let measured = rows.iter().zip(samples).zip(out);
        let measured = measured
            .filter(|(_, out)| !out)
            .filter_map(|((row, samples), _)| {
                let method = match row.way {
                    Way::RecycledCached => Some(recycled::kernels_stores()),
                    Way::RecycledUncached => uncached,
                    _ => None,
                };
                let (samples, counts): (_, Vec<_>) = samples.into_iter().flatten().unzip();
                Some(Measured {
                    counts: Counts::mean(&counts),
                    ..Measured::new(*row, method, samples)?
                })
            });
        Ok(Outcome {
            rows: measured.collect(),
            notes,
            uncounted: counters.err(),
        })
    }
}

/// All bytes of machines that [`Bench::measure`] makes.
pub(crate) fn work(rows: &[Row], runs: usize) -> u64 {
    let all: u64 = rows.iter().map(|row| row.bytes).sum();
    all.saturating_mul(runs as u64 + 1)
}

/// A row of recycled memory where there can be none; nobody makes one.
fn no_pool(why: &str) -> Failure {
    Failure {
        class: Class::Host,
        message: why.to_owned(),
        fix: None,
    }
}

/// Where it was stopped, in terms of the measurement: part of one is none.
fn stopped(machines: usize, all: usize) -> Failure {
    Failure {
        message: format!("Cancelled after {machines} of {all} machines; nothing of them is shown"),
        ..child::stopped()
    }
}
