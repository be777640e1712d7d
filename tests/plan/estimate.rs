//! `--from`: a prediction from measurements that were saved.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::command::{error_of, finish, prezero};

/// Fresh memory takes 10 ms and 100 ms a GiB, on a machine that is none of those recorded.
fn measurements() -> Value {
    let row = |workers: u64, gib: u64, ms: f64| {
        json!({
            "way": "fresh", "peer": null, "workers": workers, "bytes": gib << 30, "page_size": 2 << 20,
            "creation_ns": { "mean": ms * 1e6, "stdev": 1e6, "min": 0.0, "max": 0.0, "samples": [] },
        })
    };
    json!({
        "schema": "prezero/bench-vm/1",
        "host": { "kernel": "6.12.0", "cpu": "Some CPU" },
        "rows": [row(1, 1, 110.0), row(2, 1, 60.0), row(1, 4, 410.0), row(2, 4, 210.0)],
    })
}

/// `plan --from` of a document on a recorded host.
#[track_caller]
fn plan(document: &str, memory: &str, code: i32) -> (Value, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("vm.json");
    fs::write(&file, document).expect("writable");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/hosts/eight-nodes-16t");
    let (root, file) = (root.display(), file.display());
    let args = format!("plan --prealloc --memory {memory} --root {root} --from {file}");
    let text = finish(prezero(&args)).exits_with(code);
    let ran = finish(prezero(&format!("{args} --json"))).exits_with(code);
    (ran.json(), text.stdout)
}

#[track_caller]
fn is_predicted(report: &Value, text: &str, gib: f64) {
    let estimate = &report["estimate"];
    let rows = estimate["rows"].as_array().expect("a list");
    for (row, per_gib) in rows.iter().zip([100.0, 50.0]) {
        let found = row["creation_ns"].as_f64().expect("a number") / 1e6;
        assert!((found - (10.0 + per_gib * gib)).abs() < 1e-3, "{row:#}");
    }
    assert_eq!(rows.len(), 2, "{report:#}");
    assert!(text.contains("Predicted, not measured"), "{text}");
    let warnings = report["warnings"].to_string();
    assert!(
        warnings.contains("another machine (Some CPU, Linux 6.12.0)"),
        "{warnings}"
    );
}

#[test]
fn a_plan_predicts_from_what_was_measured_and_says_where() {
    let document = measurements().to_string();
    let (report, text) = plan(&document, "size=1024G,hugepage_size=2M", 0);
    is_predicted(&report, &text, 1024.0);
}

#[test]
fn what_a_document_calls_its_rows_is_not_obeyed_by_a_terminal() {
    let mut loud = measurements();
    for row in loud["rows"].as_array_mut().expect("a list") {
        row["way"] = format!("\u{1b}[2J{}", "x".repeat(1000)).into();
    }
    let (_, text) = plan(&loud.to_string(), "size=1T,hugepage_size=2M", 0);
    let line = text.lines().find(|line| line.contains("[2Jx"));
    let line = line.expect("a row");
    assert!(!line.contains('\u{1b}') && line.len() < 200, "{line}");
}

#[test]
fn a_size_that_the_host_does_not_have_is_refused_and_predicted_all_the_same() {
    let document = measurements().to_string();
    let (report, text) = plan(&document, "size=64T,hugepage_size=2M,hugepages=on", 3);
    is_predicted(&report, &text, 65536.0);
}

#[test]
fn nothing_is_predicted_of_what_was_not_measured() {
    let document = measurements().to_string();
    for (memory, part) in [
        ("size=1T,hugepages=off", "ordinary memory"),
        ("size=1T,hugepage_size=1G", "1 GiB"),
    ] {
        let (report, _) = plan(&document, memory, 2);
        let (class, message, fix) = error_of(&report);
        assert_eq!(class, "usage");
        assert!(message.contains(part) && fix.is_some(), "{message}");
    }
}

#[test]
fn a_file_that_is_no_such_document_is_refused_with_what_makes_one() {
    let mut other = measurements();
    other["schema"] = "prezero/bench-clear/1".into();
    other["rows"][0] = serde_json::json!({"method": "clzero"});
    let mut one_size = measurements();
    one_size["rows"].as_array_mut().expect("a list").truncate(2);
    for (document, part) in [
        ("no JSON".to_owned(), "vm.json cannot be predicted from"),
        (other.to_string(), "its schema is prezero/bench-clear/1"),
        (one_size.to_string(), "two sizes"),
    ] {
        let (report, _) = plan(&document, "size=1T,hugepage_size=2M", 2);
        let (_, message, fix) = error_of(&report);
        assert!(message.contains(part), "{message}");
        assert!(
            fix.is_some_and(|fix| fix.contains("prezero bench vm")),
            "{fix:?}"
        );
    }
}
