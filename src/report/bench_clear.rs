//! The report of `prezero bench clear` as data: schema `prezero/bench-clear/1`. Rates are GB/s, 10^9
//! bytes; sizes are bytes.

use prezero_clear::Stores;
use serde::Serialize;

use super::counters::{CountsFacts, UnavailableFacts};
use super::facts::{ErrorFacts, HostFacts};
use super::machine::MachineFacts;
use super::own_cost::InstrumentFacts;
use super::run::nanoseconds;
use crate::measure::clear::crossing::Crossing;
use crate::measure::clear::fence::{EVERY, Fence};
use crate::measure::clear::{Measured, Row};
use crate::measure::counters::Scope;
use crate::measure::stats::{Ratio, median};

#[derive(Clone, Debug, Serialize)]
pub(crate) struct ClearReport {
    pub(crate) schema: &'static str,
    pub(crate) version: &'static str,
    pub(crate) host: Option<HostFacts>,
    pub(crate) machine: Option<MachineFacts>,
    /// The row that the others' ratios are to.
    pub(crate) baseline: Option<RowName>,
    pub(crate) rows: Vec<RowFacts>,
    /// `None` where this CPU, or the choice of methods, has no uncached stores.
    pub(crate) crossing: Option<CrossingFacts>,
    pub(crate) fence: Option<FenceFacts>,
    /// Populating the memory with all CPUs: apart from the rows, and slow on memory new to the machine.
    pub(crate) populate_gbps: Option<f64>,
    /// What measuring adds to each pass: an empty pass of the row with the shortest one.
    pub(crate) instrument: Option<InstrumentFacts>,
    /// Why no row has counters; `None` where they have.
    pub(crate) counters_unavailable: Option<UnavailableFacts>,
    pub(crate) warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<ErrorFacts>,
}

impl ClearReport {
    pub(crate) fn new() -> Self {
        Self {
            schema: "prezero/bench-clear/1",
            version: env!("CARGO_PKG_VERSION"),
            host: None,
            machine: None,
            baseline: None,
            rows: Vec::new(),
            crossing: None,
            fence: None,
            populate_gbps: None,
            instrument: None,
            counters_unavailable: None,
            warnings: Vec::new(),
            error: None,
        }
    }

    /// Fills in the rows, and their ratios where there is a baseline.
    pub(crate) fn set_rows(
        &mut self,
        measured: &[Measured],
        baseline: Option<&Measured>,
        page_size: u64,
        bytes: u64,
    ) {
        self.baseline = baseline.map(|baseline| (&baseline.row).into());
        let rows = measured.iter().map(|measured| RowFacts {
            ratio: baseline.map(|baseline| RatioFacts::of(measured, baseline)),
            ..RowFacts::of(measured, page_size, bytes)
        });
        self.rows = rows.collect();
    }
}

/// What tells a row from the others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct RowName {
    pub(crate) method: &'static str,
    pub(crate) chunk: Option<u64>,
    pub(crate) threads: usize,
}

impl From<&Row> for RowName {
    fn from(row: &Row) -> Self {
        Self {
            method: row.method.name(),
            chunk: row.chunk,
            threads: row.threads,
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct RowFacts {
    pub(crate) method: &'static str,
    pub(crate) stores: &'static str,
    /// `None` for as much as there is at once.
    pub(crate) chunk: Option<u64>,
    pub(crate) threads: usize,
    pub(crate) page_size: u64,
    pub(crate) bytes: u64,
    pub(crate) runs: usize,
    pub(crate) gbps_mean: f64,
    /// The sample standard deviation (n − 1); `None` for one run.
    pub(crate) gbps_stdev: Option<f64>,
    pub(crate) gbps_min: f64,
    pub(crate) gbps_max: f64,
    /// In the order of the rounds: the nth of one row and of another ran within one round.
    pub(crate) samples_ns: Vec<u64>,
    pub(crate) counters: Option<CountsFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ratio: Option<RatioFacts>,
}

impl RowFacts {
    pub(crate) fn of(measured: &Measured, page_size: u64, bytes: u64) -> Self {
        let Measured {
            row,
            samples,
            summary,
            counts,
            ..
        } = measured;
        Self {
            method: row.method.name(),
            stores: match row.method.stores() {
                Some(Stores::Cached) => "cached",
                Some(Stores::Uncached) => "uncached",
                None => "either",
            },
            chunk: row.chunk,
            threads: row.threads,
            page_size,
            bytes,
            runs: samples.len(),
            gbps_mean: summary.mean,
            gbps_stdev: summary.stdev,
            gbps_min: summary.min,
            gbps_max: summary.max,
            samples_ns: samples.iter().copied().map(nanoseconds).collect(),
            counters: counts.map(|counts| CountsFacts::new(counts, Scope::User)),
            ratio: None,
        }
    }
}

/// A row's rate in terms of the baseline's.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct RatioFacts {
    /// Of the means.
    pub(crate) mean: f64,
    /// Propagated from both; `None` for one run, zero for the baseline itself.
    pub(crate) stdev: Option<f64>,
    /// The median of the ratios of the passes of each round.
    pub(crate) median: f64,
}

impl RatioFacts {
    fn of(measured: &Measured, baseline: &Measured) -> Self {
        let Ratio { mean, stdev } = Ratio::of(&measured.summary, &baseline.summary);
        let pairs = measured.gbps.iter().zip(&baseline.gbps);
        let pairs: Vec<f64> = pairs.map(|(row, baseline)| row / baseline).collect();
        Self {
            mean,
            stdev: match measured.row == baseline.row {
                true => stdev.map(|_| 0.0),
                false => stdev,
            },
            median: median(&pairs).unwrap_or(mean),
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct CrossingFacts {
    pub(crate) cached: &'static str,
    pub(crate) uncached: &'static str,
    /// The smallest extent from which on uncached stores stay ahead; `None` if they never do.
    pub(crate) from_bytes: Option<u64>,
    pub(crate) extents: Vec<ExtentFacts>,
}

/// Medians for one size of extent, one thread, out of the cache, fence included.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ExtentFacts {
    pub(crate) bytes: u64,
    pub(crate) cached_gbps: f64,
    pub(crate) uncached_gbps: f64,
    /// What the medians are of, in the order of the rounds.
    pub(crate) cached_samples_gbps: Vec<f64>,
    pub(crate) uncached_samples_gbps: Vec<f64>,
}

impl From<&Crossing> for CrossingFacts {
    fn from(crossing: &Crossing) -> Self {
        let extents = crossing.points.iter().map(|point| ExtentFacts {
            bytes: point.bytes,
            cached_gbps: point.cached,
            uncached_gbps: point.uncached,
            cached_samples_gbps: point.cached_samples.clone(),
            uncached_samples_gbps: point.uncached_samples.clone(),
        });
        Self {
            cached: crossing.cached.name(),
            uncached: crossing.uncached.name(),
            from_bytes: crossing.from(),
            extents: extents.collect(),
        }
    }
}

/// The time with a fence behind every piece, against one fence at the end, one thread.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FenceFacts {
    pub(crate) method: &'static str,
    pub(crate) every_bytes: usize,
    pub(crate) bytes: u64,
    /// How much longer it takes, in percent of the time with one fence.
    pub(crate) cost_percent: f64,
    /// σ of that.
    pub(crate) stdev_percent: Option<f64>,
    /// Times with a fence behind every piece, and with one at the end, in the order of the rounds.
    pub(crate) each_samples_ns: Vec<u64>,
    pub(crate) once_samples_ns: Vec<u64>,
}

impl From<&Fence> for FenceFacts {
    fn from(fence: &Fence) -> Self {
        let ratio = fence.ratio();
        Self {
            method: fence.method.name(),
            every_bytes: EVERY,
            bytes: fence.bytes,
            cost_percent: (ratio.mean - 1.0) * 100.0,
            stdev_percent: ratio.stdev.map(|stdev| stdev * 100.0),
            each_samples_ns: fence
                .each_samples
                .iter()
                .copied()
                .map(nanoseconds)
                .collect(),
            once_samples_ns: fence
                .once_samples
                .iter()
                .copied()
                .map(nanoseconds)
                .collect(),
        }
    }
}
