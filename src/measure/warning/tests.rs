//! Warnings: when they are given, and what they say.

use super::*;

fn row(name: &str, samples: &[f64]) -> (String, Vec<f64>) {
    (name.to_owned(), samples.to_vec())
}

#[test]
fn a_quiet_machine_earns_no_warning() {
    let rows = [row("a", &[10.0, 10.1, 9.9]), row("b", &[5.0, 5.1, 5.05])];
    assert_eq!(of_samples(&rows), []);
    assert_eq!(busy(Load([0.9, 1.0, 1.0]), 2), None);
    assert_eq!(first_touch(8.0, 10.0), None);
}

#[test]
fn noise_names_the_widest_row() {
    let rows = [
        row("a", &[10.0, 11.5, 9.0]),
        row("b", &[5.0, 8.0, 3.0]),
        row("c", &[1.0; 3]),
    ];
    let found = of_samples(&rows);
    let [
        Warning::Noisy {
            rows: 2,
            of: 3,
            worst,
            spread,
        },
    ] = &found[..]
    else {
        panic!("{found:?}");
    };
    assert_eq!(worst, "b");
    assert!((0.4..0.5).contains(spread), "{spread}");
}

#[test]
fn outliers_and_few_runs_are_said() {
    let rows = [row("a", &[100.0, 100.1, 99.9, 100.0, 96.0])];
    let first = "a".to_owned();
    assert_eq!(
        of_samples(&rows),
        [Warning::Outliers {
            rows: 1,
            of: 1,
            first
        }]
    );
    assert_eq!(
        of_samples(&[row("a", &[1.0, 1.0])]),
        [Warning::FewRuns { runs: 2 }]
    );
}

#[test]
fn a_ratio_that_is_another_by_rounds_is_said() {
    let ratio = |name: &str, of_means, of_rounds| (name.to_owned(), of_means, of_rounds);
    assert_eq!(
        of_ratios(&[ratio("a", 2.0, 2.09), ratio("b", 1.0, 1.0)]),
        None
    );
    let found = of_ratios(&[
        ratio("a", 2.0, 2.2),
        ratio("b", 1.0, 0.8),
        ratio("c", 3.0, 3.0),
    ]);
    let Some(Warning::RatiosDisagree {
        rows, of, worst, ..
    }) = found
    else {
        panic!("{found:?}");
    };
    assert_eq!((rows, of, &*worst), (2, 3, "b"));
}

#[test]
fn more_load_than_half_the_cpus_is_said() {
    let wanted = Warning::Busy {
        load: 1.01,
        cpus: 2,
    };
    assert_eq!(busy(Load([1.01, 0.1, 0.1]), 2), Some(wanted));
}

#[test]
fn populating_much_slower_than_clearing_is_the_first_touch() {
    assert!(matches!(
        first_touch(1.0, 9.0),
        Some(Warning::SlowFirstTouch { .. })
    ));
}

#[test]
fn more_than_a_percent_of_the_shortest_pass_must_not_be_the_instrument_s() {
    let own = OwnCost::of(vec![Duration::from_micros(100)]).expect("a sample");
    let found = |ms| of_own_cost(&own, Duration::from_millis(ms), "--memory");
    assert_eq!(found(11), None);
    let text = found(5).expect("2 %").to_string();
    assert!(
        text.contains("100.0 µs of each pass, 2.0 % of the shortest")
            && text.ends_with("a larger --memory"),
        "{text}"
    );
}

#[test]
fn a_clock_that_takes_a_part_of_the_reads_is_said() {
    let own = OwnCost::of(vec![Duration::from_nanos(30)]).expect("a sample");
    assert_eq!(of_clock(&own, Duration::from_nanos(3100)), None);
    let found = of_clock(&own, Duration::from_nanos(1000)).expect("3 %");
    assert!(
        found
            .to_string()
            .contains("30 ns of each batch of reads, 3.0 %")
    );
}

#[test]
fn more_than_one_pass_of_twenty_that_is_run_again_is_said() {
    assert_eq!(of_repeated(0, 10), None);
    assert_eq!(of_repeated(2, 38), None);
    assert_eq!(
        of_repeated(2, 37),
        Some(Warning::Repeated { passes: 2, of: 39 })
    );
}

/// One of each variant; what the planner and a machine's report say is their own affair.
fn all() -> Vec<Warning> {
    let text = |text: &str| text.to_owned();
    vec![
        Warning::LeftOut {
            why: text("This CPU has no CLZERO"),
        },
        Warning::ThreadsRaised { asked: 1, used: 2 },
        Warning::Loose { workers: 2 },
        Warning::NotTaken {
            row: text("qemu prealloc 1G"),
            taken: 0,
            bytes: 1 << 30,
        },
        Warning::NoBaseline {
            name: text("rep-stosb:4K"),
        },
        Warning::Idle {
            chunk: 1 << 30,
            threads: 2,
            bytes: 1 << 30,
        },
        Warning::Noisy {
            rows: 1,
            of: 2,
            worst: text("a"),
            spread: 0.1,
        },
        Warning::Outliers {
            rows: 1,
            of: 2,
            first: text("a"),
        },
        Warning::FewRuns { runs: 2 },
        Warning::Busy { load: 2.0, cpus: 2 },
        Warning::LoadRose {
            before: 0.5,
            after: 2.0,
            own: 0.25,
        },
        Warning::Shared { part: 0.25 },
        Warning::Stolen { part: 0.05 },
        Warning::Throttled(Throttled {
            cgroup: "/sys/fs/cgroup/a".into(),
            time: std::time::Duration::from_millis(250),
        }),
        Warning::SlowFirstTouch {
            populate: 1.0,
            clear: 9.0,
        },
        Warning::Hypervisor,
        Warning::Spread { nodes: 2 },
        Warning::NegativeFixedCost {
            rows: 1,
            of: 2,
            worst: text("a"),
            seconds: -0.1,
        },
        Warning::RatesApart {
            rows: 1,
            of: 2,
            worst: text("a"),
            least: 1.0,
            most: 2.0,
        },
        Warning::OwnCost {
            time: Duration::from_micros(100),
            part: 0.02,
            larger: "--memory",
        },
        Warning::Repeated { passes: 3, of: 27 },
        Warning::SlowClock {
            time: Duration::from_nanos(800),
            part: 0.05,
        },
        Warning::Unrepeatable {
            figures: 1,
            of: 2,
            worst: text("a"),
            apart: 0.075,
            runs: Some(12),
            option: "--runs",
        },
        Warning::Unrepeatable {
            figures: 1,
            of: 2,
            worst: text("a"),
            apart: 0.5,
            runs: None,
            option: "--runs",
        },
    ]
}

#[test]
fn every_warning_says_what_to_do() {
    let verbs = [
        "measure",
        "let the process",
        "name a row",
        "look at",
        "end ",
        "raise",
        "--runs",
        "--threads",
        "wait",
        "touching",
        "trust",
        "use ",
    ];
    for warning in all() {
        let text = warning.to_string();
        // The advice stands behind what is the matter.
        let advice = text
            .split_once([':', '(', ';'])
            .map_or("", |(_, advice)| advice);
        assert!(
            verbs.iter().any(|verb| advice.contains(verb)),
            "{warning:?}: {text}"
        );
    }
}

#[test]
fn shares_of_time_are_percent_and_times_are_seconds() {
    let text: Vec<String> = all().iter().map(ToString::to_string).collect();
    for part in [
        "rose from 0.5 to 2.0 while this was measured, of which this program explains 0.2",
        "used 25 % of all CPU time",
        "kept 5.0 % of the CPU time",
        "/sys/fs/cgroup/a held its threads back for 0.250 s of CPU time while this was measured",
    ] {
        assert!(
            text.iter().any(|text| text.contains(part)),
            "{part}: {text:#?}"
        );
    }
}
