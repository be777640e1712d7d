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

/// One mean in terms of another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) mean: f64,
    /// σ, propagated from both: √((σa/a)² + (σb/b)²) of the ratio. Unknown if one of them is.
    pub(crate) stdev: Option<f64>,
}

impl Ratio {
    pub(crate) fn of(row: &Summary, baseline: &Summary) -> Self {
        let mean = row.mean / baseline.mean;
        let spreads = row.spread().zip(baseline.spread());
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
