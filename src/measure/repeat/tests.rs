use super::*;

#[track_caller]
fn close(found: f64, wanted: f64) {
    assert!((found - wanted).abs() < 1e-9, "{found} is not {wanted}");
}

fn ratio(row: &[f64], baseline: &[f64]) -> Repeat {
    Repeat::of_ratio("a".to_owned(), row, baseline).expect("several samples")
}

#[test]
fn a_figure_s_next_run_is_within_students_t_of_the_difference_s_error() {
    let spread = Spread {
        mean: 10.0,
        stdev: Some(0.3),
    };
    let found = Repeat::of_figure("a".to_owned(), spread, 9).expect("several");
    close(found.apart, 2.306 * 2.0_f64.sqrt() * 0.03 / 3.0);
}

#[test]
fn drift_that_both_rows_share_does_not_hide_what_the_rows_own_spread_says() {
    // The rounds agree to the last digit, and each row varies by 10 %.
    let row = [10.0, 11.0, 9.0, 10.0, 10.0];
    let baseline = row.map(|sample| sample / 2.0);
    let of_row = Summary::of(&row).expect("samples");
    let spread = of_row.spread().expect("several");
    let error = (2.0 * spread.powi(2) / 5.0).sqrt();
    close(ratio(&row, &baseline).apart, 2.776 * 2.0_f64.sqrt() * error);
}

#[test]
fn rows_that_move_against_each_other_count_as_they_do_within_rounds() {
    let row = [10.0, 11.0, 9.0, 10.0, 10.0];
    let baseline = [5.0, 4.5, 5.5, 5.0, 5.0];
    let rounds = [2.0, 11.0 / 4.5, 9.0 / 5.5, 2.0, 2.0];
    let spread = Summary::of(&rounds).and_then(|rounds| rounds.spread());
    let error = spread.expect("several") / 5.0_f64.sqrt();
    close(ratio(&row, &baseline).apart, 2.776 * 2.0_f64.sqrt() * error);
}

#[test]
fn of_one_run_nothing_is_said() {
    assert_eq!(Repeat::of_ratio("a".to_owned(), &[1.0], &[1.0]), None);
    let one = Spread {
        mean: 1.0,
        stdev: None,
    };
    assert_eq!(Repeat::of_figure("a".to_owned(), one, 1), None);
    let zero = Spread {
        mean: 0.0,
        stdev: Some(1.0),
    };
    assert_eq!(Repeat::of_figure("a".to_owned(), zero, 5), None);
}

#[test]
fn the_worst_figure_is_named_with_the_runs_that_it_takes() {
    let figure = |name: &str, apart| Repeat {
        name: name.to_owned(),
        apart,
        runs: 5,
    };
    assert_eq!(warn(&[figure("a", 0.049)], "--runs"), None);
    let quiet = [figure("a", 0.04), figure("b", 0.075), figure("c", 0.06)];
    let text = |figures: &[Repeat]| {
        let warning = warn(figures, "--runs").expect("more than 5 %");
        warning.to_string()
    };
    // 5 · 1.5², rounded up.
    let found = text(&quiet);
    for part in ["2 of 3", "most that of b", "±7.5 %", "--runs 12"] {
        assert!(found.contains(part), "{part}: {found}");
    }
    // 5 · 5² is more than anybody waits for.
    let found = text(&[figure("a", 0.25)]);
    assert!(
        found.contains("a quieter machine") && !found.contains("--runs"),
        "{found}"
    );
}

/// Numbers that look random and are the same each time (splitmix64), as normal ones (Box and Muller).
struct Noise(u64);

impl Noise {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        #[allow(clippy::cast_precision_loss)] // 53 bits
        let part = (mixed >> 11) as f64 / (1_u64 << 53) as f64;
        part
    }

    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// One run: the ratio, and whether it earns the warning.
    fn run(&mut self, sigma: f64, runs: usize) -> (f64, bool) {
        let mut row = |mean: f64| -> Vec<f64> {
            (0..runs)
                .map(|_| mean * (1.0 + sigma * self.normal()))
                .collect()
        };
        let (row, baseline) = (row(25.0), row(10.0));
        let mean = |of: &[f64]| Summary::of(of).expect("samples").mean;
        let warned = warn(&[ratio(&row, &baseline)], "--runs").is_some();
        (mean(&row) / mean(&baseline), warned)
    }
}

/// Pairs of runs of normal samples with a known σ, from a quiet machine's 0.5 % to a noisy one's 10 %.
/// 99.9 % of the pairs of which neither was warned about agree within 5 %, and at no σ and number of
/// runs do more than 0.5 % of all pairs disagree without a warning.
#[test]
fn of_pairs_without_the_warning_95_of_100_agree_within_5_percent() {
    const PAIRS: usize = 2000;
    let mut noise = Noise(2026);
    let (mut silent, mut agreed) = (0, 0);
    let mut most_missed = 0;
    for runs in [3, 5, 9, 20] {
        for sigma in [0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.1] {
            let mut missed = 0;
            for _ in 0..PAIRS {
                let (a, b) = (noise.run(sigma, runs), noise.run(sigma, runs));
                if a.1 || b.1 {
                    continue;
                }
                silent += 1;
                match (a.0 / b.0).ln().abs() <= AGREE.ln_1p() {
                    true => agreed += 1,
                    false => missed += 1,
                }
            }
            most_missed = most_missed.max(missed);
        }
    }
    let parts = [
        count(agreed) / count(silent),
        count(most_missed) / count(PAIRS),
    ];
    // Enough were quiet for this to say something.
    assert!(silent > PAIRS * 4, "{silent}");
    assert!(parts[0] >= 0.99 && parts[1] <= 0.01, "{parts:?}");
}
