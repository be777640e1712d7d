//! What samples come to: mean and spread, ratios with the uncertainty of both sides, outliers.

/// From here on a sample is an outlier: ten standard deviations, as the median absolute deviation
/// estimates them (1.4826 of it are one), the threshold that hyperfine uses.
const OUTLIER: f64 = 14.826;

/// The samples of one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) mean: f64,
    /// The sample standard deviation (n − 1); one sample has none.
    pub(crate) stdev: Option<f64>,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) median: f64,
}

impl Summary {
    /// `None` without samples.
    pub(crate) fn of(samples: &[f64]) -> Option<Self> {
        let mean = mean(samples)?;
        let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
        Some(Self {
            mean,
            stdev: (samples.len() > 1).then(|| (squares / count(samples.len() - 1)).sqrt()),
            min: samples.iter().copied().fold(f64::INFINITY, f64::min),
            max: samples.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            median: median(samples)?,
        })
    }

    /// σ as a part of the mean.
    pub(crate) fn spread(&self) -> Option<f64> {
        Some(self.stdev? / self.mean)
    }
}

/// A mean and its deviation, where samples are not at hand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) mean: f64,
    /// The sample standard deviation; unknown where there was one sample.
    pub(crate) stdev: Option<f64>,
}

impl From<Summary> for Spread {
    fn from(Summary { mean, stdev, .. }: Summary) -> Self {
        Self { mean, stdev }
    }
}

/// One mean in terms of another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) mean: f64,
    /// σ, propagated from both: √((σa/a)² + (σb/b)²) of the ratio. Unknown if one of them is.
    pub(crate) stdev: Option<f64>,
}

impl Ratio {
    pub(crate) fn of(row: &Summary, baseline: &Summary) -> Self {
        Self::of_spreads(&(*row).into(), &(*baseline).into())
    }

    pub(crate) fn of_spreads(row: &Spread, baseline: &Spread) -> Self {
        let mean = row.mean / baseline.mean;
        let spread = |of: &Spread| Some(of.stdev? / of.mean);
        let spreads = spread(row).zip(spread(baseline));
        Self {
            mean,
            stdev: spreads.map(|(row, baseline)| mean.abs() * row.hypot(baseline)),
        }
    }
}

/// The middle sample, or the mean of the middle two.
pub(crate) fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    match sorted.len() % 2 {
        1 => Some(upper),
        _ => Some(f64::midpoint(sorted[middle - 1], upper)),
    }
}

/// How many samples lie far from the rest: |sample − median| over the median absolute deviation.
/// Of fewer than three nothing can be said.
pub(crate) fn outliers(samples: &[f64]) -> usize {
    let Some(middle) = median(samples).filter(|_| samples.len() > 2) else {
        return 0;
    };
    let far: Vec<f64> = samples
        .iter()
        .map(|sample| (sample - middle).abs())
        .collect();
    // Most samples can be the same to the nanosecond; then any other one is far away.
    let deviation = median(&far).unwrap_or(0.0).max(f64::EPSILON * middle.abs());
    far.iter().filter(|far| **far / deviation > OUTLIER).count()
}

fn mean(samples: &[f64]) -> Option<f64> {
    let sum: f64 = samples.iter().sum();
    (!samples.is_empty()).then(|| sum / count(samples.len()))
}

#[allow(clippy::cast_precision_loss)] // nobody takes 2^53 samples
fn count(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn close(found: f64, wanted: f64) {
        assert!(
            (found - wanted).abs() < 1e-9 * wanted.abs().max(1.0),
            "{found} is not {wanted}"
        );
    }

    fn summary(samples: &[f64]) -> Summary {
        Summary::of(samples).expect("samples")
    }

    #[test]
    fn known_samples_have_their_known_figures() {
        // The textbook's: mean 5, sum of squares 32, so σ = √(32/7).
        let found = summary(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        close(found.mean, 5.0);
        close(found.stdev.expect("several"), (32.0_f64 / 7.0).sqrt());
        assert_eq!((found.min, found.max, found.median), (2.0, 9.0, 4.5));
        close(
            found.spread().expect("several"),
            (32.0_f64 / 7.0).sqrt() / 5.0,
        );
    }

    #[test]
    fn one_sample_has_no_deviation_and_none_has_nothing() {
        let one = summary(&[3.0]);
        assert_eq!((one.mean, one.stdev, one.spread()), (3.0, None, None));
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Ratio::of(&one, &summary(&[1.0, 2.0])).stdev, None);
    }

    #[test]
    fn a_ratio_carries_the_uncertainty_of_both_sides() {
        // 10 ± √2 over 5 ± √2/2: a seventh each, of 2.
        let (row, baseline) = (summary(&[9.0, 11.0]), summary(&[4.5, 5.5]));
        let ratio = Ratio::of(&row, &baseline);
        close(ratio.mean, 2.0);
        close(ratio.stdev.expect("several"), 2.0 * (2.0 * 0.02_f64).sqrt());
    }

    /// The National Institute of Standards and Technology's data sets for univariate statistics
    /// (Statistical Reference Datasets, NumAcc1 to NumAcc4), with the certified mean and standard
    /// deviation: they are large figures with small deviations, on which the shortcut by the mean of
    /// squares fails.
    #[test]
    fn certified_samples_have_their_certified_figures() {
        let alternating = |first: f64, low: f64, high: f64| {
            let pairs = std::iter::repeat_n([low, high], 500).flatten();
            std::iter::once(first).chain(pairs).collect::<Vec<f64>>()
        };
        for (samples, mean, stdev) in [
            (
                vec![10_000_001.0, 10_000_003.0, 10_000_002.0],
                10_000_002.0,
                1.0,
            ),
            (alternating(1.2, 1.1, 1.3), 1.2, 0.1),
            (
                alternating(1_000_000.2, 1_000_000.1, 1_000_000.3),
                1_000_000.2,
                0.1,
            ),
            (
                alternating(10_000_000.2, 10_000_000.1, 10_000_000.3),
                10_000_000.2,
                0.1,
            ),
        ] {
            let found = summary(&samples);
            close(found.mean, mean);
            let found = found.stdev.expect("several");
            assert!((found - stdev).abs() < 1e-7, "{found} is not {stdev}");
        }
    }

    /// First order is exact enough for what is measured: 4 % and 3 % on the two sides are 5 % of the
    /// ratio, as the ratios of all pairs of samples say, too.
    #[test]
    fn the_deviation_of_a_ratio_is_that_of_ratios() {
        let (row, baseline) = ([96.0, 104.0], [48.5, 51.5]);
        // Of two samples at ±d the population's σ is d, and the sample's √2 d.
        let ratio = Ratio::of(&summary(&row), &summary(&baseline));
        let found = ratio.stdev.expect("several") / 2.0_f64.sqrt();
        close(ratio.mean, 2.0);
        close(found, 2.0 * 0.05);
        let ratios = row
            .iter()
            .flat_map(|row| baseline.map(|baseline| row / baseline));
        let ratios: Vec<f64> = ratios.collect();
        let population = summary(&ratios).stdev.expect("several") * (3.0_f64 / 4.0).sqrt();
        assert!(
            (population - found).abs() < 0.001,
            "{population} is not {found}"
        );
    }

    /// The usual example of the median absolute deviation: median 2, deviations 1 1 0 0 2 4 7, so 1.
    #[test]
    fn an_outlier_is_ten_deviations_from_the_median() {
        let samples = |last: f64| [1.0, 1.0, 2.0, 2.0, 4.0, 6.0, last];
        assert_eq!(outliers(&samples(9.0)), 0);
        assert_eq!(outliers(&samples(2.0 + 14.8)), 0);
        assert_eq!(outliers(&samples(2.0 + 14.9)), 1);
    }

    #[test]
    fn the_median_does_not_mind_the_order() {
        assert_eq!(median(&[9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median(&[9.0, 1.0, 5.0, 6.0]), Some(5.5));
    }

    #[test]
    fn a_sample_far_from_the_others_is_an_outlier_and_ordinary_noise_is_not() {
        assert_eq!(outliers(&[10.0, 10.1, 9.9, 10.2, 9.8]), 0);
        assert_eq!(outliers(&[10.0, 10.1, 9.9, 10.2, 5.0]), 1);
        assert_eq!(outliers(&[10.0, 10.0, 10.0, 10.5]), 1);
        assert_eq!(outliers(&[10.0, 10.0, 10.0]), 0);
        assert_eq!(outliers(&[1.0, 100.0]), 0);
    }
}
