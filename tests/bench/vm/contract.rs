//! What holds for every document, schema prezero/bench-vm/1.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::command::{Ran, prezero};
use crate::contract::{list, number};

/// `prezero bench vm`.
pub(super) fn bench_vm(args: &str) -> Command {
    prezero(&format!("bench vm {args}"))
}

/// The document that a command printed, checked.
#[track_caller]
pub(super) fn document(ran: Ran, code: i32) -> Value {
    let ran = ran.exits_with(code);
    let report = ran.json();
    assert_eq!(report["schema"], "prezero/bench-vm/1");
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(report.get("error").is_some(), code != 0, "{report:#}");
    assert!(report.get("host").is_some(), "{report:#}");
    for (key, kind) in [("warnings", "warning"), ("notes", "note")] {
        for text in list(&report, key) {
            let line = format!("{kind}: {}\n", text.as_str().expect("text"));
            assert!(ran.stderr.contains(&line), "{line}: {ran:#?}");
        }
    }
    let rows = list(&report, "rows");
    assert_eq!(rows.is_empty(), code != 0, "{report:#}");
    if !rows.is_empty() {
        own_cost(&report, rows.iter().any(|row| !row["peer"].is_null()));
    }
    for row in rows {
        let same_size = |other: &&Value| other["bytes"] == row["bytes"];
        let baseline = rows.iter().find(same_size).expect("itself at least");
        check(row, baseline);
    }
    report
}

/// What timing adds, which is something and little, and more where another monitor's words are read.
#[track_caller]
fn own_cost(report: &Value, with_peers: bool) {
    let own = &report["instrument"];
    assert_eq!(list(own, "samples_ns").len(), 21);
    let cost = number(own, "cost_ns");
    assert!(cost > 0.0 && cost < 1e8, "{own:#}");
    assert!(number(own, "part_of_shortest") > 0.0, "{own:#}");
    assert_eq!(own["peers"].is_object(), with_peers, "{own:#}");
    if with_peers {
        assert!(number(&own["peers"], "cost_ns") > cost, "{own:#}");
    }
}

/// The row of a peer.
#[track_caller]
pub(super) fn row<'a>(report: &'a Value, peer: &str, way: &str) -> &'a Value {
    let mut rows = list(report, "rows").iter();
    let found = rows.find(|row| row["peer"] == peer && row["way"] == way);
    found.unwrap_or_else(|| panic!("{peer} {way}: {report:#}"))
}

/// Nothing is in a directory.
#[track_caller]
pub(super) fn is_empty(dir: &Path) {
    let left = fs::read_dir(dir).expect("a directory").flatten();
    let left: Vec<_> = left.map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[track_caller]
fn check(row: &Value, baseline: &Value) {
    assert_eq!(
        (&baseline["way"], &baseline["workers"]),
        (&"fresh".into(), &1.into())
    );
    let creation = times(row, "creation_ns");
    if row["peer"].is_null() {
        let first = times(row, "first_instruction_ns");
        // Each guest runs after its own machine is there.
        assert!(
            first
                .iter()
                .zip(&creation)
                .all(|(first, creation)| first > creation),
            "{row:#}"
        );
    }
    let cpu = times(row, "cpu_time_ns");
    assert!(cpu.iter().all(|ns| *ns > 0.0), "{row:#}");
    assert!(
        (number(row, "cpu_ns") - number(&row["cpu_time_ns"], "mean")).abs() <= 0.5,
        "{row:#}"
    );
    assert!(row.get("counters").is_some(), "{row:#}");
    let cleared = row["way"] != "recycled-clean" && row["peer"].is_null();
    for key in ["work", "work_gbps"] {
        assert_eq!(row[key].is_null(), !cleared, "{key}: {row:#}");
    }
    let rates = creation.iter().map(|ns| number(row, "bytes") / ns);
    for (found, wanted) in list(row, "bw_samples").iter().zip(rates.clone()) {
        close(found.as_f64().expect("a rate"), wanted);
    }
    assert_eq!(
        row["bw_samples"].as_array().map(Vec::len),
        Some(creation.len())
    );
    let of_work = row["work_samples"].as_array();
    let of_work = of_work.map(|rates| rates.iter().filter_map(Value::as_f64).sum::<f64>());
    #[allow(clippy::cast_precision_loss)]
    let of_work = of_work.map(|sum| sum / creation.len() as f64);
    assert_eq!(of_work.is_some(), row["work_gbps"].is_number(), "{row:#}");
    if let Some(mean) = of_work {
        close(mean, number(row, "work_gbps"));
    }
    #[allow(clippy::cast_precision_loss)] // a number of runs
    let mean = rates.sum::<f64>() / creation.len() as f64;
    close(number(row, "bw_gbps"), mean);
    let of_baseline = number(baseline, "bw_gbps");
    let diff = (mean / of_baseline - 1.0) * 100.0;
    assert!((number(row, "diff_percent") - diff).abs() < 1e-6, "{row:#}");
    let recycled = matches!(
        row["way"].as_str(),
        Some("recycled-cached" | "recycled-uncached")
    );
    assert_eq!(row["method"].is_string(), recycled, "{row:#}");
    if cleared {
        // Clearing is part of creating.
        let least = number(row, "bytes") / creation.iter().copied().fold(0.0, f64::max);
        assert!(number(row, "work_gbps") >= least * 0.999, "{row:#}");
    }
    let speedup = number(&baseline["creation_ns"], "mean") / number(&row["creation_ns"], "mean");
    close(number(&row["speedup"], "mean"), speedup);
}

/// The samples, whose figures are their own.
#[track_caller]
fn times(row: &Value, key: &str) -> Vec<f64> {
    let times = &row[key];
    let samples = list(times, "samples").iter();
    let samples: Vec<f64> = samples
        .map(|ns| ns.as_f64().expect("nanoseconds"))
        .collect();
    assert_eq!(row["runs"], samples.len(), "{row:#}");
    #[allow(clippy::cast_precision_loss)]
    let n = samples.len() as f64;
    close(number(times, "mean"), samples.iter().sum::<f64>() / n);
    close(
        number(times, "min"),
        samples.iter().copied().fold(f64::INFINITY, f64::min),
    );
    close(
        number(times, "max"),
        samples.iter().copied().fold(0.0, f64::max),
    );
    assert_eq!(times["stdev"].is_null(), samples.len() == 1, "{row:#}");
    samples
}

#[track_caller]
fn close(found: f64, wanted: f64) {
    let far = (found - wanted).abs();
    assert!(far <= 1e-6 * wanted.abs(), "{found} is not {wanted}");
}
