//! Medians, and lines through them.

/// The middle of some values, NaN of none.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    match values.len() % 2 {
        1 => at(middle),
        _ => f64::midpoint(at(middle.wrapping_sub(1)), at(middle)),
    }
}

/// The median of what was measured divided by its base in the same round.
pub(crate) fn ratio(values: &[f64], bases: &[f64]) -> f64 {
    median(values.iter().zip(bases).map(|(value, base)| value / base))
}

/// A straight line, by least squares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Line {
    /// Its value at 0.
    pub(crate) at_zero: f64,
    /// How much it rises with each 1.
    pub(crate) slope: f64,
}

impl Line {
    /// Through points with at least two different x.
    pub(crate) fn through(points: &[(f64, f64)]) -> Self {
        let n = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let rises = points.iter().map(|point| (point.0 - x) * (point.1 - y));
        let squares = points.iter().map(|point| (point.0 - x).powi(2));
        let slope = rises.sum::<f64>() / squares.sum::<f64>();
        Self {
            at_zero: y - slope * x,
            slope,
        }
    }
}
