use serde_json::{Map, json};

use super::*;
use crate::report::bench_compare::DifferenceFacts;

fn spread(mean: f64, stdev: f64) -> SpreadFacts {
    SpreadFacts {
        mean,
        stdev: Some(stdev),
    }
}

fn pair(row: &str, figure: &'static str, [a, b, ratio]: [SpreadFacts; 3]) -> PairFacts {
    let lower = figure == "creation_ns";
    PairFacts {
        row: row.to_owned(),
        key: Map::from_iter([("way".to_owned(), json!(row))]),
        figure,
        title: if lower { "creation time" } else { "bandwidth" },
        unit: if lower { "ns" } else { "GB/s" },
        better: if lower { "lower" } else { "higher" },
        a,
        b,
        ratio: Some(ratio),
        verdict: match (ratio.mean, lower) {
            (0.9..1.1, _) => "unclear",
            (..1.0, true) | (1.0.., false) => "better",
            _ => "worse",
        },
    }
}

fn side(file: &str, kernel: &str) -> Option<SideFacts> {
    Some(SideFacts {
        file: file.into(),
        version: Some("0.1.0".to_owned()),
        kernel: Some(kernel.to_owned()),
        cpu: None,
        rows: 2,
        warnings: Vec::new(),
    })
}

fn fixed() -> CompareReport {
    let fact = |fact, a: &str, b: Option<&str>| DifferenceFacts {
        fact,
        a: Some(a.to_owned()),
        b: b.map(str::to_owned),
    };
    let one_run = SpreadFacts {
        mean: 8.0,
        stdev: None,
    };
    CompareReport {
        compared: Some("prezero/bench-vm/1"),
        a: side("before.json", "6.18.2"),
        b: side("after.json", "7.0.1"),
        warnings: vec!["A and B are of different kernels (6.18.2 and 7.0.1)".to_owned()],
        differences: vec![
            fact("kernel", "6.18.2", Some("7.0.1")),
            fact("microcode", "0xa0011d5", None),
            fact("mitigations", &"retbleed: ".repeat(9), Some("none")),
        ],
        rows: vec![
            pair(
                "fresh, 4G",
                "creation_ns",
                [
                    spread(420.25e6, 10.5e6),
                    spread(210.125e6, 5.0e6),
                    spread(0.5, 0.017),
                ],
            ),
            pair(
                "fresh, 4G",
                "bw_gbps",
                [one_run, spread(16.0, 0.5), one_run],
            ),
            pair(
                "recycled, clean, 4G",
                "creation_ns",
                [
                    spread(12.0e6, 1.0e6),
                    spread(12.5e6, 1.0e6),
                    spread(1.04, 0.12),
                ],
            ),
        ],
        only_a: vec!["fresh, 1G".to_owned(), "fresh, 16G".to_owned()],
        ..CompareReport::new()
    }
}

fn text(report: &CompareReport) -> String {
    let mut out = Vec::new();
    compare(&mut out, report).expect("memory takes it");
    String::from_utf8(out).expect("UTF-8")
}

#[test]
fn fixed_figures_have_their_text() {
    let wanted = "\
warning: A and B are of different kernels (6.18.2 and 7.0.1)
A         before.json: Linux 6.18.2, unknown
B         after.json: Linux 7.0.1, unknown

    differs                                     A      B
     kernel                                6.18.2  7.0.1
  microcode                             0xa0011d5      ?
mitigations  retbleed: retbleed: retbleed: retbl…   none

creation time: lower is better
                 ms            A           B         B/A      B is
          fresh, 4G  420.2 ±10.5  210.1 ±5.0  0.50 ±0.02    better
recycled, clean, 4G    12.0 ±1.0   12.5 ±1.0  1.04 ±0.12  within σ

bandwidth: higher is better
     GB/s     A            B   B/A    B is
fresh, 4G  8.00  16.00 ±0.50  8.00  better

only in A
  fresh, 1G
  fresh, 16G
";
    assert_eq!(text(&fixed()), wanted);
}

#[test]
fn long_times_are_seconds() {
    let mut report = fixed();
    report.rows[0].a.mean = 192.6e9;
    assert!(
        text(&report).contains("192.600 ±0.011"),
        "{}",
        text(&report)
    );
    assert!(text(&report).contains("        s  "), "{}", text(&report));
}

#[test]
fn many_rows_of_one_side_are_counted() {
    let mut report = fixed();
    report.only_b = (0..9).map(|n| format!("row {n}")).collect();
    let text = text(&report);
    assert!(
        text.ends_with(
            "only in B\n  row 0\n  row 1\n  row 2\n  row 3\n  row 4\n  row 5\n  and 3 more\n"
        ),
        "{text}"
    );
}

#[test]
fn a_figure_without_a_ratio_is_shown_without_one() {
    let mut report = fixed();
    report.rows.truncate(1);
    report.rows[0].ratio = None;
    report.rows[0].verdict = "unclear";
    let text = text(&report);
    let line = text.lines().find(|line| line.contains("fresh, 4G "));
    assert!(
        line.is_some_and(|line| line.ends_with("none  unclear")),
        "{text}"
    );
}

#[test]
fn nothing_compared_has_no_text() {
    assert_eq!(text(&CompareReport::new()), "");
}
