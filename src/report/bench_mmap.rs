//! The report of `prezero bench mmap` as data: schema `prezero/bench-mmap/1`. Rates are GB/s of 10^9
//! bytes, except perf's.

use serde::Serialize;

use super::counters::{CountsFacts, UnavailableFacts};
use super::facts::{ErrorFacts, HostFacts};
use super::machine::MachineFacts;
use super::own_cost::InstrumentFacts;
use super::run::nanoseconds;
use crate::measure::counters::Scope;
use crate::measure::mmap::{Measured, Work};

#[derive(Clone, Debug, Serialize)]
pub(crate) struct MmapReport {
    pub(crate) schema: &'static str,
    pub(crate) version: &'static str,
    pub(crate) host: Option<HostFacts>,
    pub(crate) machine: Option<MachineFacts>,
    /// The CPU of each thread; `None` for one that is not pinned.
    pub(crate) cpus: Vec<Option<u32>>,
    pub(crate) rows: Vec<RowFacts>,
    /// What measuring adds to each loop: one that maps nothing.
    pub(crate) instrument: Option<InstrumentFacts>,
    /// Why no row has counters; `None` where they have.
    pub(crate) counters_unavailable: Option<UnavailableFacts>,
    pub(crate) warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<ErrorFacts>,
}

impl MmapReport {
    pub(crate) fn new() -> Self {
        Self {
            schema: "prezero/bench-mmap/1",
            version: env!("CARGO_PKG_VERSION"),
            host: None,
            machine: None,
            cpus: Vec::new(),
            rows: Vec::new(),
            instrument: None,
            counters_unavailable: None,
            warnings: Vec::new(),
            error: None,
        }
    }
}

/// One function. The rates are those of all threads together, from the first one's start of a loop to
/// the last one's end.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RowFacts {
    pub(crate) function: &'static str,
    pub(crate) page_size: u64,
    /// What each thread maps in each loop.
    pub(crate) bytes: u64,
    pub(crate) threads: usize,
    pub(crate) loops: usize,
    pub(crate) gbps_mean: f64,
    /// The sample standard deviation (n − 1); `None` for one loop.
    pub(crate) gbps_stdev: Option<f64>,
    pub(crate) gbps_min: f64,
    pub(crate) gbps_max: f64,
    /// What perf prints: bytes by time of one thread on average, in 2^30 bytes a second.
    pub(crate) perf_gib_per_second: f64,
    /// The percentage behind it: of several threads.
    pub(crate) perf_error_percent: Option<f64>,
    /// Of each thread, of each loop.
    pub(crate) samples_ns: Vec<Vec<u64>>,
    pub(crate) counters: Option<CountsFacts>,
}

impl RowFacts {
    pub(crate) fn of(measured: &Measured, work: &Work<'_>) -> Self {
        let Measured {
            function,
            times,
            summary,
            perf,
            counts,
            ..
        } = measured;
        let times = times
            .iter()
            .map(|threads| threads.iter().copied().map(nanoseconds).collect());
        Self {
            function: function.name(),
            page_size: work.page.bytes(),
            bytes: work.bytes,
            threads: work.cpus.len(),
            loops: times.len(),
            gbps_mean: summary.mean,
            gbps_stdev: summary.stdev,
            gbps_min: summary.min,
            gbps_max: summary.max,
            perf_gib_per_second: perf.bytes_per_second / f64::from(1 << 30),
            perf_error_percent: perf.error_percent,
            samples_ns: times.collect(),
            counters: counts.map(|counts| CountsFacts::new(counts, Scope::All)),
        }
    }
}
