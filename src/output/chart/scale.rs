//! Where axes begin and end, and where they have figures.

/// The figures of a logarithmic axis: 1, 2 and 5 of each decade, or only its 1 where there are many.
pub(super) fn decades(low: f64, high: f64) -> Vec<f64> {
    let mut ticks = Vec::new();
    let mut decade = 10_f64.powf(low.log10().floor());
    let steps: &[f64] = match (high / low).log10() > 2.6 {
        true => &[1.0],
        false => &[1.0, 2.0, 5.0],
    };
    while decade <= high {
        let figures = steps.iter().map(|step| step * decade);
        // A figure on the very edge may be a rounding error beyond it.
        ticks.extend(figures.filter(|tick| *tick >= low * 0.999_999 && *tick <= high * 1.000_001));
        decade *= 10.0;
    }
    ticks
}

/// 2 to 9 of each decade: a reader sees by them that an axis is logarithmic.
pub(super) fn digits(low: f64, high: f64) -> Vec<f64> {
    let mut lines = Vec::new();
    let mut decade = 10_f64.powf(low.log10().floor());
    while decade <= high {
        let digits = (2..10).map(|digit| f64::from(digit) * decade);
        lines.extend(digits.filter(|line| *line >= low && *line <= high));
        decade *= 10.0;
    }
    lines
}

/// The largest 1, 2 or 5 of a decade that is not above `figure`.
pub(super) fn rounded_down(figure: f64) -> f64 {
    let decade = 10_f64.powf(figure.log10().floor());
    let steps = [5.0, 2.0, 1.0].map(|step| step * decade);
    steps
        .into_iter()
        .find(|step| *step <= figure * 1.000_001)
        .unwrap_or(decade)
}

/// Powers of two from `low` to `high`, at most ten, each as many times the one before.
pub(super) fn powers_of_two(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log2().floor(), high.log2().ceil());
    let step = ((last - first) / 9.0).ceil().max(1.0);
    let mut ticks = Vec::new();
    let mut power = first;
    while power <= last {
        ticks.push(power.exp2());
        power += step;
    }
    ticks.retain(|tick| *tick >= low && *tick <= high);
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_logarithmic_axis_has_steps_within_decades_and_a_long_one_has_not() {
        assert_eq!(decades(0.005, 0.05), [0.005, 0.01, 0.02, 0.05]);
        assert_eq!(decades(0.5, 500.0), [1.0, 10.0, 100.0]);
    }

    #[test]
    fn between_the_figures_of_a_logarithmic_axis_are_its_digits() {
        let lines = digits(0.5, 3.0);
        let wanted = [0.6, 0.7, 0.8, 0.9, 2.0, 3.0];
        assert!(
            lines.iter().any(|line| (line - 0.5).abs() < 1e-9),
            "{lines:?}"
        );
        assert_eq!(lines.len(), wanted.len() + 1);
    }

    #[test]
    fn figures_are_rounded_to_what_people_count_in() {
        for (figure, wanted) in [(7.3, 5.0), (5.0, 5.0), (0.019, 0.01), (49.9, 20.0)] {
            let found = rounded_down(figure);
            assert!((found - wanted).abs() < 1e-9, "{figure}: {found}");
        }
    }

    #[test]
    fn sizes_are_at_most_ten_powers_of_two() {
        let ticks = powers_of_two(4096.0, f64::from(1 << 30));
        assert_eq!(ticks.len(), 10);
        assert_eq!((ticks[0], ticks[9]), (4096.0, f64::from(1 << 30)));
        assert_eq!(powers_of_two(4096.0, 8192.0), [4096.0, 8192.0]);
        assert_eq!(powers_of_two(3000.0, 9000.0), [4096.0, 8192.0]);
    }
}
