//! The chart of a measurement.

use std::fs;

use crate::contract::{list, measured};

const ORDINARY: &str = "--memory size=64M,hugepages=off --runs 2 --method portable,cached";

#[test]
fn a_chart_has_the_methods_and_threads_of_the_document() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("clear.svg");
    // What was there, longer than what comes, is gone.
    fs::write(&path, "x".repeat(1 << 20)).expect("writable");
    let chart = path.to_str().expect("UTF-8");
    let report = measured(
        &format!("{ORDINARY} --chunk 4K,2M --threads 1 --chart {chart}"),
        0,
    );
    assert_eq!(list(&report, "rows").len(), 4);
    let text = fs::read_to_string(&path).expect("it was written");
    assert!(
        text.starts_with("<svg ") && text.trim_end().ends_with("</svg>"),
        "{text}"
    );
    for name in ["portable, 1 thread", "cached, 1 thread", "4 KiB", "2 MiB"] {
        assert!(text.contains(&format!("\n{name}\n")), "{name}: {text}");
    }
}

#[test]
fn one_chunk_is_a_chart_of_bars() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("clear.svg");
    let chart = path.to_str().expect("UTF-8");
    measured(
        &format!("{ORDINARY} --chunk 4K --threads 1 --baseline portable:4K --chart {chart}"),
        0,
    );
    let text = fs::read_to_string(&path).expect("it was written");
    assert!(
        text.contains("in chunks of 4 KiB") && text.contains("· baseline"),
        "{text}"
    );
}

#[test]
fn a_measurement_that_fails_leaves_no_new_file_and_an_old_one_as_it_was() {
    let dir = tempfile::tempdir().expect("a directory");
    let (new, old) = (dir.path().join("new.svg"), dir.path().join("old.csv"));
    fs::write(&old, "before").expect("writable");
    let files = format!("--chart {} --csv {}", new.display(), old.display());
    measured(&format!("--memory 1024T --page 2M {files}"), 3);
    assert!(!new.exists());
    assert_eq!(fs::read_to_string(&old).expect("it is there"), "before");
}
