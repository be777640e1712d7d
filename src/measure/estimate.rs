//! A line through what was measured at several sizes, to say what a size that was not would take.

/// What was measured at one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) at: f64,
    pub(crate) mean: f64,
    /// σ of the mean's samples, where there are several.
    pub(crate) stdev: Option<f64>,
}

/// What the line says of a size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Prediction {
    pub(crate) mean: f64,
    /// What the σ of the points come to at this distance, if all have one. How far the line itself holds
    /// is not in it.
    pub(crate) stdev: Option<f64>,
    /// What does not depend on the size.
    pub(crate) intercept: f64,
    /// What one more unit of size takes.
    pub(crate) slope: f64,
}

/// The least squares line through the points, at `at`. None with fewer than two sizes, or where it says
/// that it takes no time.
pub(crate) fn predict(points: &[Point], at: f64) -> Option<Prediction> {
    #[allow(clippy::cast_precision_loss)] // a handful
    let n = points.len() as f64;
    let mean = |of: &dyn Fn(&Point) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (middle, height) = (mean(&|point| point.at), mean(&|point| point.mean));
    let spread: f64 = points.iter().map(|point| (point.at - middle).powi(2)).sum();
    if points.len() < 2 || spread <= 0.0 {
        return None;
    }
    let rise = |point: &Point| (point.at - middle) * (point.mean - height);
    let slope = points.iter().map(rise).sum::<f64>() / spread;
    let predicted = height + slope * (at - middle);
    // It is a sum of the points' means with these weights, so its variance is that of theirs.
    let weight = |point: &Point| 1.0 / n + (at - middle) * (point.at - middle) / spread;
    let variances = points.iter().map(|point| {
        let part = weight(point) * point.stdev?;
        Some(part * part)
    });
    let variance: Option<f64> = variances.sum();
    (predicted > 0.0).then_some(Prediction {
        mean: predicted,
        stdev: variance.map(f64::sqrt),
        intercept: height - slope * middle,
        slope,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(points: &[(f64, f64)], stdev: Option<f64>) -> Vec<Point> {
        let point = |&(at, mean)| Point { at, mean, stdev };
        points.iter().map(point).collect()
    }

    #[test]
    fn two_points_are_a_line() {
        let found = predict(&points(&[(1.0, 3.0), (4.0, 9.0)], Some(0.1)), 10.0);
        let found = found.expect("two sizes");
        assert!((found.mean - 21.0).abs() < 1e-9);
        assert!((found.slope - 2.0).abs() < 1e-9 && (found.intercept - 1.0).abs() < 1e-9);
        // −2 and 3 times the points.
        let wanted = 0.1 * 13.0_f64.sqrt();
        assert!((found.stdev.expect("both have one") - wanted).abs() < 1e-9);
    }

    #[test]
    fn at_a_point_its_own_spread_is_all() {
        let found = predict(&points(&[(1.0, 3.0), (4.0, 9.0)], Some(0.1)), 4.0);
        let found = found.expect("two sizes");
        assert!((found.mean - 9.0).abs() < 1e-9);
        assert!((found.stdev.expect("both have one") - 0.1).abs() < 1e-9);
    }

    #[test]
    fn more_points_are_met_as_well_as_can_be() {
        // The textbook's: slope 1.5, intercept 1/6.
        let found = predict(&points(&[(1.0, 2.0), (2.0, 2.5), (3.0, 5.0)], None), 4.0);
        let found = found.expect("three sizes");
        assert!((found.slope - 1.5).abs() < 1e-9);
        assert!((found.intercept - 1.0 / 6.0).abs() < 1e-9);
        assert_eq!(found.stdev, None);
    }

    #[test]
    fn one_size_is_no_line_and_no_time_no_prediction() {
        assert_eq!(predict(&points(&[(1.0, 3.0)], None), 2.0), None);
        assert_eq!(predict(&points(&[(1.0, 3.0), (1.0, 4.0)], None), 2.0), None);
        assert_eq!(predict(&points(&[(1.0, 3.0), (2.0, 1.0)], None), 9.0), None);
    }
}
