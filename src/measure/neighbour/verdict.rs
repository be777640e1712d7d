//! Whether uncached stores are the better neighbour, from the figures of one working set.

use prezero_clear::{Method, Stores};

use super::{Beside, Measured};
use crate::measure::stats::Summary;

/// One figure against another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Versus {
    Less,
    /// Within the deviations of both.
    Same,
    More,
}

impl Versus {
    /// Of a single run, which has no deviation, nothing can be said.
    fn of(one: &Summary, other: &Summary) -> Self {
        let Some((one_stdev, other_stdev)) = one.stdev.zip(other.stdev) else {
            return Self::Same;
        };
        let noise = one_stdev.hypot(other_stdev);
        let difference = one.mean - other.mean;
        match difference {
            _ if difference.abs() <= noise => Self::Same,
            _ if difference < 0.0 => Self::Less,
            _ => Self::More,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Less => "less",
            Self::Same => "same",
            Self::More => "more",
        }
    }
}

/// The best uncached method against the best cached one: those that cost the neighbour the least for each
/// GiB.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) set: usize,
    pub(crate) uncached: (Method, Beside),
    pub(crate) cached: (Method, Beside),
    /// What the neighbour loses for each GiB cleared: this decides.
    pub(crate) per_gib: Versus,
    /// How much slower it is meanwhile.
    pub(crate) meanwhile: Versus,
}

impl Verdict {
    /// `None` unless both kinds were measured.
    pub(crate) fn of(set: usize, measured: &[Measured]) -> Option<Self> {
        let best = |stores: Stores| {
            let rows = measured.iter().filter(|row| row.row.set == set);
            let rows = rows.filter_map(|row| Some((row.row.method?, row.figures.beside?)));
            rows.filter(|(method, _)| method.stores() == stores)
                .min_by(|a, b| {
                    let lost = |beside: &Beside| beside.lost_ms_per_gib.mean;
                    lost(&a.1).total_cmp(&lost(&b.1))
                })
        };
        let (uncached, cached) = (best(Stores::Uncached)?, best(Stores::Cached)?);
        Some(Self {
            set,
            per_gib: Versus::of(&uncached.1.lost_ms_per_gib, &cached.1.lost_ms_per_gib),
            meanwhile: Versus::of(&uncached.1.slowdown_percent, &cached.1.slowdown_percent),
            uncached,
            cached,
        })
    }

    /// Whether uncached stores are the better neighbour here.
    pub(crate) fn helps(&self) -> bool {
        self.per_gib == Versus::Less
    }
}
