//! How far the same figure of the next run may be from that of this one.
//!
//! What is measured again differs by more than the figure's own uncertainty: both runs have one, so that
//! the difference of two has √2 times its standard error. A figure's next one is within t·√2·SE, where t is
//! Student's for the degrees of freedom that σ was estimated with. (With 2 throughout, few runs would look
//! quiet by chance too often.) Of a table with many figures one or the other is far off more easily: for
//! all of them together to keep to it 95 times of 100, each has to 1 − 0.05/figures of the time (Bonferroni).
//!
//! A ratio's standard error is the larger of two. The first is that of the ratios within each round, over √n:
//! it knows what both rows of a round have in common, which cancels out, and what they have not. The
//! second is propagated from both rows' own σ/√n: it does not rest on how few rounds happened to fit together,
//! and is the one where samples are not in rounds. Where the two differ much, the machine drifts; then
//! the next run may be on another part of that drift, and the larger one is right.
//!
//! This sees what varies within a run. What is fixed in one run and not in the next (which physical pages
//! it got, which neighbours a virtual machine has that hour) no sample of one run shows.

use std::f64::consts::FRAC_PI_2;

use super::stats::{Ratio, Spread, Summary};
use super::warning::Warning;

/// Two runs are to agree within this part.
pub(super) const AGREE: f64 = 0.05;
/// So many runs nobody wants to wait for; another machine is what is needed.
pub(super) const MOST_RUNS: usize = 100;

/// How often all figures of a table are to be within what is said of them.
const SURE: f64 = 0.95;

/// One figure, and its standard error.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Repeat {
    name: String,
    /// As a part of it.
    error: f64,
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
        let by_sides = Self::of_sides(name, sides, [row.len(), baseline.len()])?;
        if row.len() != baseline.len() {
            return Some(by_sides);
        }
        let rounds: Vec<f64> = row.iter().zip(baseline).map(|(a, b)| a / b).collect();
        let rounds = Summary::of(&rounds)?.into();
        let by_rounds = Self::of_figure(by_sides.name.clone(), rounds, row.len());
        by_rounds.map(|by_rounds| match by_rounds.error > by_sides.error {
            true => by_rounds,
            false => by_sides,
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
        // Of a figure that is zero nothing can be said in terms of it.
        (runs > 1 && error.is_finite()).then_some(Self { name, error, runs })
    }

    /// As which part of it, in either direction, the next one may be off, if it is one of so many figures.
    fn apart(&self, figures: usize) -> f64 {
        self.apart_with(self.runs, figures)
    }

    /// The same if there had been so many runs with the same spread.
    fn apart_with(&self, runs: usize, figures: usize) -> f64 {
        let error = self.error * (count(self.runs) / count(runs)).sqrt();
        students_t(runs - 1, 1.0 - (1.0 - SURE) / count(figures)) * 2.0_f64.sqrt() * error
    }

    /// About how many runs it takes for two of them to agree, unless nobody would wait for them.
    fn runs_wanted(&self, figures: usize) -> Option<usize> {
        (self.runs..=MOST_RUNS).find(|runs| self.apart_with(*runs, figures) <= AGREE)
    }
}

/// Says so if two runs may differ by more than they should. `option` is the one that says how many rounds
/// there are.
pub(crate) fn warn(figures: &[Repeat], option: &'static str) -> Option<Warning> {
    let far = far(figures);
    let (worst, apart) = far.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let all = figures.len();
    Some(Warning::Unrepeatable {
        figures: far.len(),
        of: all,
        worst: worst.name.clone(),
        apart: *apart,
        runs: worst.runs_wanted(all),
        option,
    })
}

/// Those of a table that may be off by more than they should, and by how much.
fn far(figures: &[Repeat]) -> Vec<(&Repeat, f64)> {
    let apart = (figures.iter()).map(|figure| (figure, figure.apart(figures.len())));
    apart.filter(|(_, apart)| *apart > AGREE).collect()
}

/// Student's t: so far from zero, or nearer, it is with this probability. Put as an angle, t = √ν·tan θ, its density
/// is cos^(ν−1) θ between ±π/2, which is added up.
fn students_t(freedom: usize, within: f64) -> f64 {
    const STEPS: usize = 1000;
    let width = FRAC_PI_2 / count(STEPS);
    let power = count(freedom - 1);
    let middle = |step: usize| (count(step) + 0.5) * width;
    let density = |step: usize| middle(step).cos().powf(power);
    let all: f64 = (0..STEPS).map(density).sum();
    let mut left = within * all;
    for step in 0..STEPS {
        let part = density(step);
        if part >= left {
            let angle = (count(step) + left / part) * width;
            return count(freedom).sqrt() * angle.tan();
        }
        left -= part;
    }
    f64::INFINITY
}

#[allow(clippy::cast_precision_loss)] // nobody takes 2^53 samples
fn count(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests;
