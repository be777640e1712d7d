//! Measurements on a little memory.

use std::fs;

use prezero_clear::Method;
use prezero_testkit::Hugepages;
use serde_json::Value;

use crate::command::finish;
use crate::contract::{SMALL, bench_clear, list, measured, number};

const PAGE: u64 = 2 << 20;

fn pages() -> Option<Hugepages> {
    Hugepages::take(PAGE, 32)
}

#[test]
fn there_is_a_row_for_every_method_chunk_and_number_of_threads() {
    let Some(pages) = pages() else { return };
    let report = measured(&format!("{SMALL} --threads 1,2"), 0);
    pages.assert_clean();
    let mut wanted = Vec::new();
    for threads in [1, 2] {
        for method in Method::available() {
            for chunk in [4 << 10, 2 << 20, 32 << 20, 1 << 30] {
                wanted.push((method.name(), chunk, threads));
            }
        }
    }
    let rows = list(&report, "rows");
    let found = rows.iter().map(|row| {
        let number = |key: &str| row[key].as_u64().expect("a number");
        (
            row["method"].as_str().expect("a name"),
            number("chunk"),
            number("threads"),
        )
    });
    assert_eq!(found.collect::<Vec<_>>(), wanted);
    for row in rows {
        assert_eq!(
            (&row["bytes"], &row["page_size"], &row["runs"]),
            (&(64 << 20).into(), &PAGE.into(), &2.into())
        );
    }
    let warnings = report["warnings"].to_string();
    assert!(warnings.contains("2 runs"), "{warnings}");
    assert!(warnings.contains("Chunks of 1 GiB"), "{warnings}");
}

#[test]
fn ratios_are_to_the_named_baseline() {
    let Some(pages) = pages() else { return };
    let args = "--method portable,cached --chunk 4K,2M --threads 1 --baseline cached:2M";
    let report = measured(&format!("{SMALL} {args}"), 0);
    pages.assert_clean();
    let baseline = &report["baseline"];
    assert_eq!(baseline["method"], "cached");
    assert_eq!(
        (&baseline["chunk"], &baseline["threads"]),
        (&PAGE.into(), &1.into())
    );
    let rows = list(&report, "rows");
    assert_eq!(rows.len(), 4);
    let is_baseline = |row: &&Value| row["method"] == "cached" && row["chunk"] == PAGE;
    let base = rows.iter().find(is_baseline).expect("its row");
    assert_eq!(
        (
            number(&base["ratio"], "mean"),
            number(&base["ratio"], "stdev")
        ),
        (1.0, 0.0)
    );
    for row in rows {
        let ratio = number(row, "gbps_mean") / number(base, "gbps_mean");
        assert!(
            (number(&row["ratio"], "mean") - ratio).abs() < 1e-6,
            "{row:#}"
        );
        assert!(number(&row["ratio"], "median") > 0.0, "{row:#}");
    }
    assert!(report["crossing"].is_null(), "both store to the cache");
}

#[test]
fn without_the_usual_baseline_there_are_no_ratios_and_a_warning() {
    let Some(pages) = pages() else { return };
    let report = measured(
        "--memory 64M --page 2M --runs 1 --method cached --chunk 2M --threads 1",
        0,
    );
    pages.assert_clean();
    assert!(report["baseline"].is_null(), "{report:#}");
    let [row] = list(&report, "rows") else {
        panic!("{report:#}")
    };
    assert!(
        row.get("ratio").is_none() && row["gbps_stdev"].is_null(),
        "{row:#}"
    );
    assert!(
        report["warnings"]
            .to_string()
            .contains("rep-stosb:4K was not measured"),
        "{report:#}"
    );
}

#[test]
fn the_text_is_a_table_for_each_number_of_threads_within_100_columns() {
    let Some(pages) = pages() else { return };
    let ran = finish(bench_clear(&format!("{SMALL} --threads 1,2"))).exits_with(0);
    pages.assert_clean();
    for line in ran.stdout.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    for threads in ["1 thread ", "2 threads "] {
        // Many methods share two tables.
        let mut rest = ran.stdout.lines();
        let mut methods = Vec::new();
        while let Some(head) = rest.find(|line| line.trim_start().starts_with(threads)) {
            let columns: Vec<&str> = head.split_whitespace().skip(2).collect();
            for chunk in ["4K", "2M", "32M", "1G", "ratio"] {
                let line = rest.next().unwrap_or_default();
                assert!(line.trim_start().starts_with(chunk), "{line}: {ran:#?}");
                assert_eq!(line.matches('±').count(), columns.len(), "{line}");
            }
            methods.extend(columns);
        }
        assert_eq!(
            methods,
            Method::available().map(Method::name).collect::<Vec<_>>()
        );
    }
    for line in [
        "ratio     a method's best chunk to rep-stosb 4K, 1 thread",
        "fastest   ",
        "fence     one per 2 MiB",
    ] {
        assert!(ran.stdout.contains(line), "{line}: {ran:#?}");
    }
}

#[test]
fn the_csv_file_has_the_rows_of_the_document() {
    let Some(pages) = pages() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("clear.csv");
    // What was there, longer than what comes, is gone.
    fs::write(&path, "x".repeat(1 << 16)).expect("writable");
    let csv = path.to_str().expect("UTF-8");
    let report = measured(
        &format!("{SMALL} --method rep-stosb,cached --chunk 4K,2M --threads 1 --csv {csv}"),
        0,
    );
    pages.assert_clean();
    let text = fs::read_to_string(&path).expect("it was written");
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().expect("names");
    let rows = list(&report, "rows");
    assert_eq!(text.lines().count(), rows.len() + 1, "{text}");
    for (row, line) in rows.iter().zip(lines) {
        for (key, text) in head.iter().zip(line) {
            let value = match *key {
                "ratio" => &row["ratio"]["mean"],
                "ratio_stdev" => &row["ratio"]["stdev"],
                "ratio_median" => &row["ratio"]["median"],
                "cycles" | "l1_dcache_loads" | "l1_dcache_load_misses" => &row["counters"][*key],
                key => &row[key],
            };
            match value.as_f64() {
                // The document's reader rounds the last digit.
                Some(number) => {
                    let found: f64 = text.parse().expect("a number");
                    assert!(
                        (found - number).abs() <= 1e-9 * number,
                        "{key}: {text}, {row:#}"
                    );
                }
                None if value.is_null() => assert_eq!(text, "", "{key}"),
                None => assert_eq!(value, text, "{key}"),
            }
        }
    }
}

#[test]
fn ordinary_memory_is_measured_only_if_it_is_asked_for() {
    let args = "--memory size=64M,hugepages=off --runs 1 --method cached --chunk 2M --threads 1";
    let report = measured(args, 0);
    assert_eq!(list(&report, "rows").len(), 1);
    assert_eq!(report["rows"][0]["bytes"], 64 << 20);
}
