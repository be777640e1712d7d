//! `prezero bench neighbour`: figures on a little memory, and what is refused.

use std::fs;
use std::thread;
use std::time::Duration;

use libc::SIGTERM;
use prezero_clear::{Method, Stores};
use prezero_testkit::{Hugepages, thread_names_of};
use serde_json::Value;

use crate::command::{Ran, Running, error_of, finish, prezero};
use crate::contract::{check_instrument, list, number};
use crate::sys::kill;

/// Little enough for ordinary memory, and slow enough for the reader to be there while it is cleared.
const ORDINARY: &str = "--memory size=32M,hugepages=off --rate 512M --runs 1";

#[track_caller]
fn document(ran: Ran, code: i32) -> Value {
    let ran = ran.exits_with(code);
    let report = ran.json();
    assert_eq!(report["schema"], "prezero/bench-neighbour/1");
    assert_eq!(report.get("error").is_some(), code != 0, "{report:#}");
    for warning in list(&report, "warnings") {
        let line = format!("warning: {}\n", warning.as_str().expect("text"));
        assert!(ran.stderr.contains(&line), "{ran:#?}");
    }
    let mut alone = None;
    for row in list(&report, "rows") {
        check_instrument(&report);
        let counted = report["counters_unavailable"].is_null();
        assert_eq!(row["counters"].is_object(), counted, "{report:#}");
        match row["method"].is_null() {
            true => alone = Some(row),
            false => check(row, alone.expect("the reads alone come first")),
        }
    }
    report
}

#[track_caller]
fn measured(args: &str, code: i32) -> Value {
    let command = prezero(&format!("bench neighbour {args} --json"));
    document(finish(command), code)
}

/// The figures are those of the samples, each next to the one alone of its round.
#[track_caller]
fn check(row: &Value, alone: &Value) {
    assert_eq!(row["working_set"], alone["working_set"], "{row:#}");
    let samples = list(row, "samples");
    assert_eq!(row["runs"], samples.len(), "{row:#}");
    assert!(row["repeated"].is_u64(), "{row:#}");
    let (mut slower, mut lost, mut rate) = (0.0, 0.0, 0.0);
    for (sample, alone) in samples.iter().zip(list(alone, "samples")) {
        let of = |sample: &Value| number(sample, "ns") / number(sample, "accesses");
        let (own, alone) = (of(sample), of(alone));
        let cleared = number(sample, "cleared_bytes");
        assert!(cleared > 0.0, "{row:#}");
        slower += (own / alone - 1.0) * 100.0;
        lost += number(sample, "accesses") * (own - alone) / 1e6 / (cleared / f64::from(1 << 30));
        rate += cleared / number(sample, "ns");
    }
    let runs = number(row, "runs");
    for (key, sum) in [
        ("slowdown_percent", slower),
        ("lost_ms_per_gib", lost),
        ("background_gbps", rate),
    ] {
        let (found, wanted) = (number(&row[key], "mean"), sum / runs);
        let near = (found - wanted).abs() <= 1e-6 * wanted.abs().max(1.0);
        assert!(near, "{key}: {found} is not {wanted}");
    }
}

#[test]
fn every_working_set_is_measured_alone_and_next_to_each_method() {
    let report = measured(
        // Unsorted, and one twice: in the order of the command line, each once.
        &format!("{ORDINARY} --working-set 1M,4K,1M --method cached,portable"),
        0,
    );
    let rows = list(&report, "rows").iter();
    let found: Vec<_> = rows
        .map(|row| (row["working_set"].as_u64(), row["method"].as_str()))
        .collect();
    let mut wanted = Vec::new();
    for set in [1 << 20, 4096] {
        for method in [None, Some("cached"), Some("portable")] {
            wanted.push((Some(set), method));
        }
    }
    assert_eq!(found, wanted);
    let sets = list(&report, "working_sets");
    assert!(sets.iter().all(|set| set["line_bytes"] == 64), "{report:#}");
    assert!(
        sets.iter()
            .all(|set| number(set, "huge_bytes") <= number(set, "bytes"))
    );
    assert_eq!(report["background"]["rate"], 512 << 20);
    assert!(report["cpus"]["foreground"].is_u64(), "{report:#}");
    assert!(
        list(&report, "verdicts").is_empty(),
        "both store to the cache"
    );
}

#[test]
fn hugepages_are_cleared_and_given_back_and_uncached_stores_are_judged() {
    let Some(pages) = Hugepages::take(2 << 20, 32) else {
        return;
    };
    let report = measured(
        "--memory size=64M,hugepage_size=2M --rate 1G --runs 2 --working-set 64K",
        0,
    );
    pages.assert_clean();
    assert_eq!(report["background"]["page_size"], 2 << 20);
    let uncached = Method::available().any(|method| method.stores() == Stores::Uncached);
    let verdicts = list(&report, "verdicts");
    assert_eq!(verdicts.len(), usize::from(uncached), "{report:#}");
    for verdict in verdicts {
        let per_gib = verdict["per_gib"].as_str();
        assert!(matches!(per_gib, Some("less" | "same" | "more")));
        assert_eq!(verdict["helps"], per_gib == Some("less"));
    }
}

#[test]
fn the_only_cpu_has_both_and_a_warning() {
    let args = "--working-set 4K --method cached";
    let everywhere = measured(&format!("{ORDINARY} {args}"), 0);
    let cpu = &everywhere["cpus"]["foreground"];
    let report = measured(&format!("{ORDINARY} {args} --cpus {cpu}"), 0);
    assert_eq!(&report["cpus"]["background"][0], cpu);
    let warnings = report["warnings"].to_string();
    assert!(warnings.contains("take turns on CPU"), "{warnings}");
}

#[test]
fn the_text_is_within_100_columns_and_the_files_have_every_row() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("neighbour.csv");
    let csv = path.to_str().expect("UTF-8");
    let svg = dir.path().join("neighbour.svg");
    let files = format!("--csv {csv} --chart {}", svg.display());
    let args = format!("bench neighbour {ORDINARY} --working-set 4K {files}");
    let ran = finish(prezero(&args)).exits_with(0);
    for line in ran.stdout.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    assert!(ran.stdout.contains("this decides"), "{ran:#?}");
    assert!(ran.stdout.contains("\nload      "), "{ran:#?}");
    let text = fs::read_to_string(&path).expect("it was written");
    let methods = Method::available().filter(|method| method.name() != "portable");
    assert_eq!(text.lines().count(), 2 + methods.count(), "{text}");
    let chart = fs::read_to_string(&svg).expect("it was drawn");
    assert!(chart.contains("\nalone\n") && chart.contains("\nworking set 4 KiB\n"));
}

#[test]
fn what_cannot_be_is_refused_with_what_can() {
    for (args, code, part, wanted) in [
        (
            "--working-set 5000",
            2,
            "multiple of 4 KiB",
            "--working-set 4K",
        ),
        ("--method memset", 2, "memset", "--method"),
        (
            "--method auto",
            2,
            "no method of its own",
            "leave --method out",
        ),
        ("--cpus 0,4095", 2, "CPU 4095", "choose among"),
        ("--runs 0", 2, "--runs", "prezero bench neighbour --help"),
        ("--rate 1", 2, "1 bytes a second", "--rate 7M"),
        (
            "--threads 0",
            2,
            "--threads",
            "prezero bench neighbour --help",
        ),
        ("--threads 100000", 2, "100000 threads on", "--threads "),
        (
            "--working-set 0",
            2,
            "'0' is zero",
            "prezero bench neighbour --help",
        ),
        ("--working-set 64", 2, "64 bytes", "--working-set 4K"),
        ("--memory 0", 2, "'0' is zero", "size="),
        ("--memory 1K", 2, "1 KiB", "size=2M"),
        ("--rate 0", 2, "--rate", "prezero bench neighbour --help"),
        ("--working-set 1000T", 3, "1000 TiB", "--working-set"),
        ("--csv /nowhere/n.csv", 2, "/nowhere/n.csv", "--csv"),
    ] {
        let report = measured(args, code);
        let (_, error, fix) = error_of(&report);
        assert!(error.contains(part), "{args}: {error}");
        assert!(fix.unwrap_or_default().contains(wanted), "{args}: {fix:?}");
        assert!(list(&report, "rows").is_empty(), "{report:#}");
    }
}

#[test]
fn too_few_hugepages_are_a_shortage_in_numbers() {
    let Some(pages) = Hugepages::exactly(2 << 20, 3) else {
        return;
    };
    let report = measured("--memory size=64M,hugepage_size=2M", 3);
    pages.assert_clean();
    let (class, error, _) = error_of(&report);
    assert_eq!(class, "shortage");
    assert!(error.contains("32 pages") && error.contains('3'), "{error}");
}

#[test]
fn a_signal_ends_it_and_the_pages_are_back() {
    let Some(pages) = Hugepages::take(2 << 20, 32) else {
        return;
    };
    let args = "bench neighbour --memory size=64M,hugepage_size=2M --rate 64M --working-set 4K";
    let mut running = Running::start(prezero(&format!("{args} --runs 1000 --json")));
    let pid = running.pid();
    let works = || {
        let names = thread_names_of(pid);
        names.iter().any(|name| name.starts_with("prezero-b"))
    };
    while !works() {
        assert!(!running.has_ended(), "it has much to do");
        thread::sleep(Duration::from_millis(1));
    }
    kill(pid, SIGTERM);
    let report = document(running.finish_within(Duration::from_secs(10)), 6);
    pages.assert_clean();
    assert_eq!(error_of(&report).0, "stopped");
    assert!(list(&report, "rows").is_empty(), "{report:#}");
}
