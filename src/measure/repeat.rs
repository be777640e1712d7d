//! How far the same figure of the next run may be from that of this one.
//!
//! What is measured again differs by more than the figure's own uncertainty: both runs have one, so that
//! the difference of two has √2 times its standard error. 95 of 100 such differences lie within
//! t·√2·SE, where t is Student's for the degrees of freedom that σ was estimated with: 2 for many runs, 2.8
//! for five, 4.3 for three. (With 2 throughout, few runs would look quiet by chance too often.)
//!
//! A ratio's standard error is the larger of two. The first is that of the ratios within each round, over √n:
//! it knows what both rows of a round have in common, which cancels out, and what they have not. The
//! second is propagated from both rows' own σ/√n: it does not rest on how few rounds happened to fit together,
//! and is the one where samples are not in rounds. Where the two differ much, the machine drifts; then
//! the next run may be on another part of that drift, and the larger one is right.
//!
//! This sees what varies within a run. What is fixed in one run and not in the next (which physical pages
//! it got, which neighbours a virtual machine has that hour) no sample of one run shows.

use super::stats::{Ratio, Spread, Summary};
use super::warning::Warning;

/// Two runs are to agree within this part.
pub(super) const AGREE: f64 = 0.05;
/// So many runs nobody wants to wait for; another machine is what is needed.
pub(super) const MOST_RUNS: usize = 100;

/// Student's t with 1, 2, 3 … degrees of freedom, two-sided, 95 %.
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// One figure, and how far it may be from that of another run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Repeat {
    name: String,
    /// As a part of it, in either direction.
    apart: f64,
    runs: usize,
}

impl Repeat {
    /// A figure that is the mean of what each of `runs` rounds gave. `None` where there was one.
    pub(crate) fn of_figure(name: String, figure: Spread, runs: usize) -> Option<Self> {
        let error = figure.stdev? / count(runs).sqrt() / figure.mean.abs();
        Self::new(name, error, runs)
    }

    /// A ratio of the means of two rows, whose samples are in the order of the rounds.
    pub(crate) fn of_ratio(name: String, row: &[f64], baseline: &[f64]) -> Option<Self> {
        let (of_row, of_baseline) = (Summary::of(row)?, Summary::of(baseline)?);
        let sides = [&of_row, &of_baseline].map(|side| Spread::from(*side));
        let apart = Self::of_sides(name, sides, [row.len(), baseline.len()])?;
        if row.len() != baseline.len() {
            return Some(apart);
        }
        let rounds: Vec<f64> = row.iter().zip(baseline).map(|(a, b)| a / b).collect();
        let by_rounds =
            Self::of_figure(apart.name.clone(), Summary::of(&rounds)?.into(), row.len());
        by_rounds.map(|by_rounds| match by_rounds.apart > apart.apart {
            true => by_rounds,
            false => apart,
        })
    }

    /// A ratio of two means of so many samples that have no round in common.
    pub(crate) fn of_sides(name: String, sides: [Spread; 2], runs: [usize; 2]) -> Option<Self> {
        let [a, b] = sides;
        let over_root = |side: Spread, runs: usize| Spread {
            stdev: side.stdev.map(|stdev| stdev / count(runs).sqrt()),
            ..side
        };
        let ratio = Ratio::of_spreads(&over_root(a, runs[0]), &over_root(b, runs[1]));
        let error = ratio.stdev? / ratio.mean.abs();
        Self::new(name, error, runs[0].min(runs[1]))
    }

    /// `error` is the standard error, as a part of the figure.
    fn new(name: String, error: f64, runs: usize) -> Option<Self> {
        let freedom = runs.checked_sub(2)?;
        let t = T.get(freedom).copied().unwrap_or(2.0);
        let apart = t * 2.0_f64.sqrt() * error;
        // Of a figure that is zero nothing can be said in terms of it.
        apart.is_finite().then_some(Self { name, apart, runs })
    }

    /// About how many runs it takes for two of them to agree. (t falls, too; that is left out.)
    fn runs_wanted(&self) -> f64 {
        (count(self.runs) * (self.apart / AGREE).powi(2)).ceil()
    }
}

/// Says so if two runs may differ by more than they should. `option` is the one that says how many rounds
/// there are.
pub(crate) fn warn(figures: &[Repeat], option: &'static str) -> Option<Warning> {
    let far = || figures.iter().filter(|figure| figure.apart > AGREE);
    let worst = far().max_by(|a, b| a.apart.total_cmp(&b.apart))?;
    let wanted = worst.runs_wanted();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // few, and above zero
    let runs = (wanted <= count(MOST_RUNS)).then_some(wanted as usize);
    Some(Warning::Unrepeatable {
        figures: far().count(),
        of: figures.len(),
        worst: worst.name.clone(),
        apart: worst.apart,
        runs,
        option,
    })
}

#[allow(clippy::cast_precision_loss)] // nobody takes 2^53 samples
fn count(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests;
