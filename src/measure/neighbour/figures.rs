//! What the samples of one row come to.

use super::pass::Sample;
use crate::measure::clear::gbps;
use crate::measure::stats::Summary;

const GIB: f64 = (1_u64 << 30) as f64;

/// The foreground's figures, and those of both where there was a background.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Figures {
    pub(crate) ns_per_access: Summary,
    pub(crate) accesses_per_second: Summary,
    /// `None` for the foreground alone.
    pub(crate) beside: Option<Beside>,
}

/// Figures of a row next to the background. Each sample is compared with that of the foreground alone in
/// the same round, so that drift of the machine is not in them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Beside {
    /// How much longer an access takes, in percent.
    pub(crate) slowdown_percent: Summary,
    pub(crate) background_gbps: Summary,
    /// Time that the foreground loses for each GiB (2^30 bytes) cleared, in milliseconds.
    pub(crate) lost_ms_per_gib: Summary,
}

impl Figures {
    /// `alone` are the samples of the same working set without a background, round by round.
    pub(super) fn of(samples: &[Sample], alone: Option<&[Sample]>) -> Option<Self> {
        let of = |figure: &dyn Fn(&Sample) -> f64| {
            Summary::of(&samples.iter().map(figure).collect::<Vec<_>>())
        };
        let beside = match alone {
            None => None,
            Some(alone) => Some(Beside::of(samples, alone)?),
        };
        Some(Self {
            ns_per_access: of(&ns_per_access)?,
            accesses_per_second: of(&|sample| 1e9 / ns_per_access(sample))?,
            beside,
        })
    }
}

impl Beside {
    fn of(samples: &[Sample], alone: &[Sample]) -> Option<Self> {
        let of = |figure: &dyn Fn(&Sample, f64) -> f64| {
            let pairs = samples.iter().zip(alone);
            let figures = pairs.map(|(sample, alone)| figure(sample, ns_per_access(alone)));
            Summary::of(&figures.collect::<Vec<_>>())
        };
        Some(Self {
            slowdown_percent: of(&|sample, alone| (ns_per_access(sample) / alone - 1.0) * 100.0)?,
            background_gbps: of(&|sample, _| gbps(sample.cleared, sample.time))?,
            lost_ms_per_gib: of(&lost_ms_per_gib)?,
        })
    }
}

#[allow(clippy::cast_precision_loss)] // measured figures
pub(crate) fn ns_per_access(sample: &Sample) -> f64 {
    sample.time.as_secs_f64() * 1e9 / sample.accesses.max(1) as f64
}

/// What the same accesses would have taken alone is not lost.
#[allow(clippy::cast_precision_loss)] // measured figures
fn lost_ms_per_gib(sample: &Sample, alone_ns: f64) -> f64 {
    let lost_ns = sample.accesses as f64 * (ns_per_access(sample) - alone_ns);
    lost_ns / 1e6 / (sample.cleared.max(1) as f64 / GIB)
}
