//! The report of `prezero bench vm` as data: schema `prezero/bench-vm/1`. Sizes are bytes, times
//! nanoseconds, rates GB/s, 10^9 bytes.

use serde::Serialize;

use super::counters::{CountsFacts, UnavailableFacts};
use super::estimate::EstimateFacts;
use super::facts::{ErrorFacts, HostFacts};
use super::machine::MachineFacts;
use super::own_cost::InstrumentFacts;
use super::run::nanoseconds;
use crate::measure::counters::Scope;
use crate::measure::stats::{Ratio, Summary, median};
use crate::measure::vm::pins::{PIECE, Pins};
use crate::measure::vm::{Measured, Sample};

#[derive(Clone, Debug, Serialize)]
pub(crate) struct VmReport {
    pub(crate) schema: &'static str,
    pub(crate) version: &'static str,
    pub(crate) host: Option<HostFacts>,
    pub(crate) machine: Option<MachineFacts>,
    /// The node that the memory of all machines is on, where the host has several and one has enough.
    pub(crate) memory_node: Option<u32>,
    /// The versions of other monitors that were measured.
    pub(crate) peers: Vec<PeerFacts>,
    /// Size by size; the first row of each size is the one that its others are compared with.
    pub(crate) rows: Vec<RowFacts>,
    /// How long it takes to pin the same memory, as a device is given it.
    pub(crate) pins: Option<PinsFacts>,
    /// What a size that was not measured would take, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) estimate: Option<EstimateFacts>,
    /// What timing itself adds to the creations.
    pub(crate) instrument: Option<VmInstrumentFacts>,
    pub(crate) warnings: Vec<String>,
    /// What was left out, and why.
    pub(crate) notes: Vec<String>,
    /// Why no row has counters; `None` where they have.
    pub(crate) counters_unavailable: Option<UnavailableFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<ErrorFacts>,
}

/// Of machines that say themselves when they are there, which are prezero's, and of others, whose words are
/// read.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct VmInstrumentFacts {
    #[serde(flatten)]
    pub(crate) prezero: InstrumentFacts,
    /// None where no other monitor was measured.
    pub(crate) peers: Option<InstrumentFacts>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct PeerFacts {
    pub(crate) peer: &'static str,
    pub(crate) version: String,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct RowFacts {
    pub(crate) way: &'static str,
    /// The other monitor; none for prezero.
    pub(crate) peer: Option<&'static str>,
    pub(crate) bytes: u64,
    pub(crate) page_size: u64,
    /// Threads that populated or cleared, as far as it is known.
    pub(crate) workers: Option<usize>,
    /// With what dirty memory was cleared.
    pub(crate) method: Option<&'static str>,
    pub(crate) runs: usize,
    /// All bytes over the time of creation, as the kernel series has it.
    pub(crate) bw_gbps: f64,
    pub(crate) bw_stdev: Option<f64>,
    /// That of each machine, in the order of [`TimeFacts::samples`].
    pub(crate) bw_samples: Vec<f64>,
    /// By how much that is above the baseline's.
    pub(crate) diff_percent: f64,
    /// The part of creation that clears: `populate` (by the kernel) or `clear` (by prezero); none where nothing
    /// is cleared, and of other monitors, which do not show it.
    pub(crate) work: Option<&'static str>,
    /// All bytes over the time of that part.
    pub(crate) work_gbps: Option<f64>,
    pub(crate) work_stdev: Option<f64>,
    pub(crate) work_samples: Option<Vec<f64>>,
    /// How often this creation goes into the baseline's.
    pub(crate) speedup: Option<RatioFacts>,
    /// From the exec to the last memory slot registered, QEMU's greeting, or Cloud Hypervisor's "booted".
    pub(crate) creation_ns: TimeFacts,
    /// From the exec to the guest's first port write.
    pub(crate) first_instruction_ns: Option<TimeFacts>,
    /// CPU time of the process from its start to its end, the mean.
    pub(crate) cpu_ns: u64,
    /// That of each.
    pub(crate) cpu_time_ns: TimeFacts,
    /// Of the process from its exec to its end.
    pub(crate) counters: Option<CountsFacts>,
}

/// Long-term pins by io_uring's registered buffers: a stand-in for VFIO, which pins with the same call of
/// the kernel and maps into an IOMMU besides.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct PinsFacts {
    pub(crate) by: &'static str,
    /// The largest piece that it pins at once, in bytes.
    pub(crate) piece_bytes: u64,
    pub(crate) rows: Vec<PinFacts>,
    /// Why there are no rows.
    pub(crate) not_available: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct PinFacts {
    /// `fresh`, `populated`, or `recycled`: there, but not yet seen by this process.
    pub(crate) memory: &'static str,
    pub(crate) bytes: u64,
    pub(crate) page_size: u64,
    pub(crate) runs: usize,
    /// From the call to its return.
    pub(crate) pin_ns: TimeFacts,
}

impl PinsFacts {
    pub(crate) fn new(pins: &Pins, page_size: u64) -> Self {
        let rows = pins.rows.iter().filter_map(|row| {
            let samples: Vec<u64> = row.samples.iter().copied().map(nanoseconds).collect();
            Some(PinFacts {
                memory: row.memory.name(),
                bytes: row.bytes,
                page_size,
                runs: samples.len(),
                pin_ns: TimeFacts::of(samples)?,
            })
        });
        Self {
            by: "io_uring registered buffers",
            piece_bytes: PIECE,
            rows: rows.collect(),
            not_available: pins.not_available.clone(),
        }
    }
}

/// Times of all counted machines of a row.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TimeFacts {
    pub(crate) mean: f64,
    /// The sample standard deviation (n − 1); none for one run.
    pub(crate) stdev: Option<f64>,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// In the order of the rounds: the nth of one row and of another were made in one round.
    pub(crate) samples: Vec<u64>,
}

/// How a row's creation compares with the baseline's of the same size.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct RatioFacts {
    /// Of the means.
    pub(crate) mean: f64,
    /// Propagated from both; none for one run, zero for the baseline itself.
    pub(crate) stdev: Option<f64>,
    /// The median of the ratios of each round.
    pub(crate) median: f64,
}

impl TimeFacts {
    fn of(samples: Vec<u64>) -> Option<Self> {
        #[allow(clippy::cast_precision_loss)] // below 104 days in nanoseconds it is exact
        let times: Vec<f64> = samples.iter().map(|ns| *ns as f64).collect();
        let summary = Summary::of(&times)?;
        Some(Self {
            mean: summary.mean,
            stdev: summary.stdev,
            min: summary.min,
            max: summary.max,
            samples,
        })
    }
}

impl VmReport {
    pub(crate) fn new() -> Self {
        Self {
            schema: "prezero/bench-vm/1",
            version: env!("CARGO_PKG_VERSION"),
            host: None,
            machine: None,
            memory_node: None,
            peers: Vec::new(),
            rows: Vec::new(),
            pins: None,
            estimate: None,
            instrument: None,
            warnings: Vec::new(),
            notes: Vec::new(),
            counters_unavailable: None,
            error: None,
        }
    }

    pub(crate) fn add_peer(&mut self, peer: &'static str, version: &str) {
        let version = version.to_owned();
        self.peers.push(PeerFacts { peer, version });
    }

    /// Fills in the rows. Each is compared with the first of its size.
    pub(crate) fn set_rows(&mut self, measured: &[Measured], page_size: u64) {
        let rows = measured.iter().filter_map(|row| {
            let baseline = measured
                .iter()
                .find(|other| other.row.bytes == row.row.bytes);
            RowFacts::of(row, baseline?, page_size)
        });
        self.rows = rows.collect();
    }
}

impl RowFacts {
    fn of(measured: &Measured, baseline: &Measured, page_size: u64) -> Option<Self> {
        let Measured { row, samples, .. } = measured;
        let bandwidth = Summary::of(&measured.gbps)?;
        let of_baseline = Summary::of(&baseline.gbps)?;
        let work = row.way.work().and(Summary::of(&measured.work_gbps));
        let times = |of: &dyn Fn(&Sample) -> u64| samples.iter().map(of).collect::<Vec<u64>>();
        let first = samples.iter().map(|sample| sample.first_instruction);
        let first: Option<Vec<u64>> = first.map(|time| time.map(nanoseconds)).collect();
        let cpu = TimeFacts::of(times(&|sample| nanoseconds(sample.cpu)))?;
        Some(Self {
            way: row.way.name(),
            peer: row.way.peer(),
            bytes: row.bytes,
            page_size,
            workers: samples.first().and_then(|sample| sample.workers),
            method: measured.method.map(prezero_memory::Method::name),
            runs: samples.len(),
            bw_gbps: bandwidth.mean,
            bw_stdev: bandwidth.stdev,
            bw_samples: measured.gbps.clone(),
            diff_percent: (bandwidth.mean / of_baseline.mean - 1.0) * 100.0,
            work: row.way.work(),
            work_gbps: work.map(|work| work.mean),
            work_stdev: work.and_then(|work| work.stdev),
            work_samples: work.map(|_| measured.work_gbps.clone()),
            speedup: Some(RatioFacts::of(measured, baseline)),
            creation_ns: TimeFacts::of(times(&|sample| nanoseconds(sample.creation)))?,
            first_instruction_ns: first.and_then(TimeFacts::of),
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a mean of such
            cpu_ns: cpu.mean.round() as u64,
            cpu_time_ns: cpu,
            counters: (measured.counts).map(|counts| CountsFacts::new(counts, Scope::All)),
        })
    }
}

impl RatioFacts {
    fn of(measured: &Measured, baseline: &Measured) -> Self {
        let Ratio { mean, stdev } = Ratio::of(&baseline.creation, &measured.creation);
        let pairs = baseline.seconds().into_iter().zip(measured.seconds());
        let pairs: Vec<f64> = pairs.map(|(baseline, row)| baseline / row).collect();
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
