//! The report of `prezero bench neighbour` as data: schema `prezero/bench-neighbour/1`. Rates are GB/s,
//! 10^9 bytes; sizes are bytes.

use prezero_clear::{Method, Stores};
use serde::Serialize;

use super::counters::{CountsFacts, UnavailableFacts};
use super::facts::{ErrorFacts, HostFacts};
use super::machine::MachineFacts;
use super::own_cost::InstrumentFacts;
use super::run::nanoseconds;
use crate::measure::counters::Scope;
use crate::measure::neighbour::verdict::Verdict;
use crate::measure::neighbour::{BATCH, Chase, LINE, Measured, PIECE, Place, Sample};
use crate::measure::stats::Summary;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct NeighbourReport {
    pub(crate) schema: &'static str,
    pub(crate) version: &'static str,
    pub(crate) host: Option<HostFacts>,
    pub(crate) machine: Option<MachineFacts>,
    pub(crate) cpus: Option<CpuFacts>,
    pub(crate) background: Option<BackgroundFacts>,
    /// Reads between two looks at the clock.
    pub(crate) batch_accesses: u64,
    pub(crate) working_sets: Vec<SetFacts>,
    pub(crate) rows: Vec<RowFacts>,
    /// One for each working set, where both cached and uncached methods were measured.
    pub(crate) verdicts: Vec<VerdictFacts>,
    /// What measuring adds to each batch of reads.
    pub(crate) instrument: Option<InstrumentFacts>,
    /// Why no row has counters; `None` where they have.
    pub(crate) counters_unavailable: Option<UnavailableFacts>,
    pub(crate) warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<ErrorFacts>,
}

impl NeighbourReport {
    pub(crate) fn new() -> Self {
        Self {
            schema: "prezero/bench-neighbour/1",
            version: env!("CARGO_PKG_VERSION"),
            host: None,
            machine: None,
            cpus: None,
            background: None,
            batch_accesses: BATCH,
            working_sets: Vec::new(),
            rows: Vec::new(),
            verdicts: Vec::new(),
            instrument: None,
            counters_unavailable: None,
            warnings: Vec::new(),
            error: None,
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct CpuFacts {
    pub(crate) foreground: u32,
    /// One for each thread that clears.
    pub(crate) background: Vec<u32>,
    /// Whether the first of them has the foreground's last-level cache; `None` where the host does not
    /// say.
    pub(crate) same_cache: Option<bool>,
    /// Whether one of them is another thread of the foreground's core.
    pub(crate) same_core: bool,
}

impl From<&Place> for CpuFacts {
    fn from(place: &Place) -> Self {
        Self {
            foreground: place.foreground,
            background: place.background.clone(),
            same_cache: place.same_cache,
            same_core: place.same_core,
        }
    }
}

/// The memory that is cleared.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BackgroundFacts {
    pub(crate) bytes: u64,
    pub(crate) page_size: u64,
    /// Cleared and fenced at once.
    pub(crate) piece_bytes: usize,
    /// Bytes a second; `None` for as fast as it goes.
    pub(crate) rate: Option<u64>,
}

impl BackgroundFacts {
    pub(crate) fn new(bytes: u64, page_size: u64, rate: Option<u64>) -> Self {
        Self {
            bytes,
            page_size,
            piece_bytes: PIECE,
            rate,
        }
    }
}

/// Ordinary private memory that the foreground reads.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct SetFacts {
    pub(crate) bytes: u64,
    pub(crate) line_bytes: u64,
    /// How much of it is on transparent hugepages.
    pub(crate) huge_bytes: u64,
}

impl From<&Chase> for SetFacts {
    fn from(chase: &Chase) -> Self {
        Self {
            bytes: chase.bytes(),
            line_bytes: LINE,
            huge_bytes: chase.huge_bytes(),
        }
    }
}

/// A figure and its spread over the runs.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct FigureFacts {
    pub(crate) mean: f64,
    /// The sample standard deviation (n − 1); `None` for one run.
    pub(crate) stdev: Option<f64>,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl From<Summary> for FigureFacts {
    fn from(summary: Summary) -> Self {
        Self {
            mean: summary.mean,
            stdev: summary.stdev,
            min: summary.min,
            max: summary.max,
        }
    }
}

/// A working set, alone (without a method) or next to one method.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RowFacts {
    pub(crate) working_set: u64,
    pub(crate) method: Option<&'static str>,
    pub(crate) stores: Option<&'static str>,
    pub(crate) runs: usize,
    /// Passes that came to nothing, because the reader was kept off its CPU, and were run again.
    pub(crate) repeated: usize,
    pub(crate) ns_per_access: FigureFacts,
    pub(crate) accesses_per_second: FigureFacts,
    /// These three compare each run with that alone in the same round; `None` alone.
    pub(crate) slowdown_percent: Option<FigureFacts>,
    pub(crate) background_gbps: Option<FigureFacts>,
    /// What the foreground loses for each GiB (2^30 bytes) cleared.
    pub(crate) lost_ms_per_gib: Option<FigureFacts>,
    /// In the order of the rounds.
    pub(crate) samples: Vec<SampleFacts>,
    /// The reader's.
    pub(crate) counters: Option<CountsFacts>,
}

impl RowFacts {
    /// Of a pass on average, of which `counters` are.
    pub(crate) fn accesses(&self) -> u64 {
        let samples = self.samples.iter().map(|sample| sample.accesses);
        samples.sum::<u64>() / (self.samples.len() as u64).max(1)
    }
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct SampleFacts {
    pub(crate) accesses: u64,
    pub(crate) ns: u64,
    pub(crate) cleared_bytes: u64,
}

impl From<&Sample> for SampleFacts {
    fn from(sample: &Sample) -> Self {
        Self {
            accesses: sample.accesses,
            ns: nanoseconds(sample.time),
            cleared_bytes: sample.cleared,
        }
    }
}

impl RowFacts {
    pub(crate) fn of(measured: &Measured, working_set: u64) -> Self {
        let (method, figures) = (measured.row.method, measured.figures);
        let beside = figures.beside;
        Self {
            working_set,
            method: method.map(Method::name),
            stores: method.map(|method| match method.stores() {
                Stores::Cached => "cached",
                Stores::Uncached => "uncached",
            }),
            runs: measured.samples.len(),
            repeated: measured.repeated,
            ns_per_access: figures.ns_per_access.into(),
            accesses_per_second: figures.accesses_per_second.into(),
            slowdown_percent: beside.map(|beside| beside.slowdown_percent.into()),
            background_gbps: beside.map(|beside| beside.background_gbps.into()),
            lost_ms_per_gib: beside.map(|beside| beside.lost_ms_per_gib.into()),
            samples: measured.samples.iter().map(Into::into).collect(),
            counters: (measured.counts).map(|counts| CountsFacts::new(counts, Scope::User)),
        }
    }
}

/// The uncached method that costs the neighbour the least for each GiB, against such a cached one.
/// `less`, `same` (within the deviations of both) and `more` are the uncached one's.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct VerdictFacts {
    pub(crate) working_set: u64,
    pub(crate) uncached: SideFacts,
    pub(crate) cached: SideFacts,
    /// Time lost for each GiB: this decides.
    pub(crate) per_gib: &'static str,
    /// The slowdown while memory is cleared.
    pub(crate) meanwhile: &'static str,
    /// Whether uncached stores are the better neighbour.
    pub(crate) helps: bool,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct SideFacts {
    pub(crate) method: &'static str,
    pub(crate) slowdown_percent: f64,
    pub(crate) lost_ms_per_gib: f64,
    pub(crate) background_gbps: f64,
}

impl VerdictFacts {
    pub(crate) fn of(verdict: &Verdict, working_set: u64) -> Self {
        let [uncached, cached] =
            [verdict.uncached, verdict.cached].map(|(method, beside)| SideFacts {
                method: method.name(),
                slowdown_percent: beside.slowdown_percent.mean,
                lost_ms_per_gib: beside.lost_ms_per_gib.mean,
                background_gbps: beside.background_gbps.mean,
            });
        Self {
            working_set,
            uncached,
            cached,
            per_gib: verdict.per_gib.name(),
            meanwhile: verdict.meanwhile.name(),
            helps: verdict.helps(),
        }
    }
}
