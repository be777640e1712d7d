//! What holds for every document, schema prezero/bench-clear/1.

use std::process::Command;

use serde_json::Value;

use crate::command::{Ran, finish, prezero};

/// A small measurement, whose arguments can be added to.
pub(crate) const SMALL: &str = "--memory 64M --page 2M --runs 2";

/// `prezero bench clear`.
pub(crate) fn bench_clear(args: &str) -> Command {
    prezero(&format!("bench clear {args}"))
}

/// The document of a measurement that ended with `code`, checked.
#[track_caller]
pub(crate) fn measured(args: &str, code: i32) -> Value {
    document(finish(bench_clear(&format!("{args} --json"))), code)
}

/// The document that a command printed, checked.
#[track_caller]
pub(crate) fn document(ran: Ran, code: i32) -> Value {
    let ran = ran.exits_with(code);
    let report = ran.json();
    assert_eq!(report["schema"], "prezero/bench-clear/1");
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(report.get("error").is_some(), code != 0, "{report:#}");
    for key in [
        "host",
        "machine",
        "baseline",
        "crossing",
        "fence",
        "populate_gbps",
        "instrument",
        "counters_unavailable",
    ] {
        assert!(report.get(key).is_some(), "{key}: {report:#}");
    }
    for row in list(&report, "rows") {
        check(row);
        // Counted, or said why not.
        let counted = report["counters_unavailable"].is_null();
        assert_eq!(row["counters"].is_object(), counted, "{report:#}");
    }
    let warnings = list(&report, "warnings").iter();
    for warning in warnings.map(|warning| warning.as_str().expect("text")) {
        assert!(
            ran.stderr.contains(&format!("warning: {warning}\n")),
            "{ran:#?}"
        );
    }
    if code == 0 {
        check_crossing(&report);
        check_fence(&report);
        check_machine(&report);
        check_instrument(&report);
        assert!(report["host"]["kernel"].is_string(), "{report:#}");
        assert!(
            report["populate_gbps"]
                .as_f64()
                .is_some_and(|rate| rate > 0.0),
            "{report:#}"
        );
    }
    report
}

/// A list of the document.
#[track_caller]
pub(crate) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key]
        .as_array()
        .unwrap_or_else(|| panic!("{key}: {value:#}"))
}

/// A number of a row.
#[track_caller]
pub(crate) fn number(value: &Value, key: &str) -> f64 {
    value[key]
        .as_f64()
        .unwrap_or_else(|| panic!("{key}: {value:#}"))
}

/// The figures of a row are those of its samples.
#[track_caller]
fn check(row: &Value) {
    let stores = row["stores"].as_str();
    assert!(matches!(stores, Some("cached" | "uncached")), "{row:#}");
    let samples = list(row, "samples_ns").iter();
    let rates: Vec<f64> = samples
        .map(|ns| number(row, "bytes") / ns.as_f64().expect("nanoseconds"))
        .collect();
    let runs = rates.len();
    assert_eq!(row["runs"], runs, "{row:#}");
    #[allow(clippy::cast_precision_loss)]
    let (n, less) = (runs as f64, (runs - 1) as f64);
    let mean = rates.iter().sum::<f64>() / n;
    let squares: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
    close(number(row, "gbps_mean"), mean);
    close(
        number(row, "gbps_min"),
        rates.iter().copied().fold(f64::INFINITY, f64::min),
    );
    close(
        number(row, "gbps_max"),
        rates.iter().copied().fold(0.0, f64::max),
    );
    match runs {
        1 => assert!(row["gbps_stdev"].is_null(), "{row:#}"),
        _ => close(number(row, "gbps_stdev"), (squares / less).sqrt()),
    }
}

#[track_caller]
fn close(found: f64, wanted: f64) {
    assert!(
        (found - wanted).abs() <= 1e-6 * wanted.abs(),
        "{found} is not {wanted}"
    );
}

/// The crossing is where the curves say.
#[track_caller]
fn check_crossing(report: &Value) {
    let crossing = &report["crossing"];
    if crossing.is_null() {
        return;
    }
    let extents = list(crossing, "extents");
    let sizes: Vec<u64> = extents
        .iter()
        .filter_map(|extent| extent["bytes"].as_u64())
        .collect();
    assert_eq!(sizes[0], 4096, "{crossing:#}");
    assert!(
        sizes.windows(2).all(|pair| pair[1] == 4 * pair[0]),
        "{sizes:?}"
    );
    for extent in extents {
        for stores in ["cached", "uncached"] {
            let samples = list(extent, &format!("{stores}_samples_gbps")).iter();
            let mut samples: Vec<f64> = samples.filter_map(Value::as_f64).collect();
            samples.sort_by(f64::total_cmp);
            assert_eq!(samples.len() % 2, 1, "{extent:#}");
            close(
                number(extent, &format!("{stores}_gbps")),
                samples[samples.len() / 2],
            );
        }
    }
    let ahead = |extent: &&Value| number(extent, "uncached_gbps") > number(extent, "cached_gbps");
    let from = extents.iter().rev().take_while(ahead).last();
    let from = from.map_or(Value::Null, |extent| extent["bytes"].clone());
    assert_eq!(crossing["from_bytes"], from, "{crossing:#}");
}

/// The cost of fences is that of its samples.
#[track_caller]
fn check_fence(report: &Value) {
    let fence = &report["fence"];
    if fence.is_null() {
        return;
    }
    let sum = |key: &str| {
        list(fence, key)
            .iter()
            .filter_map(Value::as_f64)
            .sum::<f64>()
    };
    let ratio = sum("each_samples_ns") / sum("once_samples_ns");
    let percent = (ratio - 1.0) * 100.0;
    assert!(
        (number(fence, "cost_percent") - percent).abs() < 1e-3,
        "{fence:#}"
    );
}

/// What machine it was is there, and nothing that tells whose.
#[track_caller]
fn check_machine(report: &Value) {
    let machine = &report["machine"];
    assert_eq!(machine["kernel"], report["host"]["kernel"], "{machine:#}");
    for load in ["load_before", "load_after"] {
        assert_eq!(list(machine, load).len(), 3, "{machine:#}");
    }
    assert!(
        machine["cpus"].as_u64() >= machine["usable_cpus"].as_u64(),
        "{machine:#}"
    );
    let text = machine.to_string();
    for secret in ["/etc/machine-id", "/proc/sys/kernel/random/boot_id"] {
        let Ok(id) = std::fs::read_to_string(secret) else {
            continue;
        };
        let plain = id.trim().replace('-', "");
        for id in [id.trim(), &plain] {
            assert!(id.is_empty() || !text.contains(id), "{secret}: {machine:#}");
        }
    }
    assert!(
        machine["boot"]
            .as_str()
            .is_some_and(|hash| hash.len() == 16),
        "{machine:#}"
    );
}

#[track_caller]
pub(crate) fn check_instrument(report: &Value) {
    let instrument = &report["instrument"];
    assert!(number(instrument, "cost_ns") > 0.0, "{instrument:#}");
    let part = number(instrument, "part_of_shortest");
    // Less than all of a pass of a few milliseconds, on any machine.
    assert!((0.0..1.0).contains(&part), "{instrument:#}");
    assert_eq!(list(instrument, "samples_ns").len(), 11);
}
