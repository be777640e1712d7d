//! `prezero bench mmap`: the work and the last line of perf's.

use std::fs;
use std::thread;
use std::time::Duration;

use libc::SIGINT;
use prezero_testkit::{Hugepages, thread_names_of};
use serde_json::Value;

use crate::command::{Ran, Running, error_of, finish, prezero};
use crate::contract::{check_instrument, list, number};
use crate::sys::kill;

const PAGE: u64 = 2 << 20;

/// The document, checked.
#[track_caller]
fn document(ran: Ran, code: i32) -> Value {
    let ran = ran.exits_with(code);
    let report = ran.json();
    assert_eq!(report["schema"], "prezero/bench-mmap/1");
    assert_eq!(report.get("error").is_some(), code != 0, "{report:#}");
    for warning in list(&report, "warnings") {
        let line = format!("warning: {}\n", warning.as_str().expect("text"));
        assert!(ran.stderr.contains(&line), "{ran:#?}");
    }
    for row in list(&report, "rows") {
        check_instrument(&report);
        check(row);
        let counted = report["counters_unavailable"].is_null();
        assert_eq!(row["counters"].is_object(), counted, "{report:#}");
    }
    report
}

#[track_caller]
fn measured(args: &str, code: i32) -> Value {
    document(finish(prezero(&format!("bench mmap {args} --json"))), code)
}

/// perf's rate is that of the samples: all bytes of a thread by all of its time, on average.
#[track_caller]
fn check(row: &Value) {
    let loops = list(row, "samples_ns");
    assert_eq!(row["loops"], loops.len(), "{row:#}");
    let threads = number(row, "threads");
    let mut all = 0.0;
    for times in loops {
        let times = times.as_array().expect("one for each thread");
        assert_eq!(row["threads"], times.len(), "{row:#}");
        let of = |time: &Value| time.as_f64().expect("nanoseconds");
        all += times.iter().map(of).sum::<f64>();
    }
    let bytes = number(row, "bytes") * number(row, "loops");
    let wanted = bytes / (all / threads / 1e9) / f64::from(1 << 30);
    let found = number(row, "perf_gib_per_second");
    assert!((found - wanted).abs() <= 1e-6 * wanted, "{row:#}");
    assert!(number(row, "gbps_mean") > 0.0, "{row:#}");
    assert_eq!(row["perf_error_percent"].is_null(), threads < 2.0);
}

#[test]
fn hugepages_are_mapped_both_ways_and_given_back() {
    let Some(pages) = Hugepages::take(PAGE, 32) else {
        return;
    };
    let report = measured("-p 2M -s 32M -l 2 -t 2", 0);
    pages.assert_clean();
    let [demand, populate] = list(&report, "rows") else {
        panic!("{report:#}");
    };
    assert_eq!(demand["function"], "demand");
    assert_eq!(populate["function"], "populate");
    for row in [demand, populate] {
        assert_eq!(row["page_size"], PAGE);
        assert_eq!((&row["threads"], &row["loops"]), (&2.into(), &2.into()));
    }
    assert!(report["host"]["preempt"].is_string(), "{report:#}");
    assert!(report["machine"]["load_after"].is_array(), "{report:#}");
    assert_eq!(list(&report, "cpus").len(), 2);
}

#[test]
fn the_options_and_the_last_line_are_perfs() {
    // As perf's own manual writes sizes.
    for size in [
        "-p 4KB -f populate -s 8MB -l 2",
        "--page 4k --size 8mb --nr_loops 2",
    ] {
        let ran = finish(prezero(&format!("bench mmap {size}"))).exits_with(0);
        let last = ran.stdout.lines().last().unwrap_or_default();
        let words: Vec<&str> = last.split_whitespace().collect();
        let [rate, unit] = words[..] else {
            panic!("{ran:#?}");
        };
        assert!(rate.parse::<f64>().is_ok_and(|rate| rate > 0.0), "{last}");
        assert!(matches!(unit, "GB/sec" | "MB/sec"), "{last}");
        assert!(ran.stdout.contains("GB = 2^30 bytes"), "{ran:#?}");
    }
}

#[test]
fn the_files_have_each_function() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("mmap.csv");
    let csv = path.to_str().expect("UTF-8");
    let svg = dir.path().join("mmap.svg");
    let files = format!("--csv {csv} --chart {}", svg.display());
    measured(&format!("-p 4K -s 4M -l 1 {files}"), 0);
    let text = fs::read_to_string(&path).expect("it was written");
    let names: Vec<&str> = (text.lines().skip(1))
        .map(|line| line.split(',').next().unwrap_or_default())
        .collect();
    assert_eq!(names, ["demand", "populate"]);
    let chart = fs::read_to_string(&svg).expect("it was drawn");
    assert!(chart.contains("\ndemand\n") && chart.contains("\npopulate\n"));
}

#[test]
fn what_cannot_be_is_refused_with_what_can() {
    for (args, code, part, wanted) in [
        ("-p 3M", 2, "no size of a page", "--page 2M"),
        ("-p 2M -s 5M", 2, "whole number", "-s 4M or -s 6M"),
        ("-s 4K", 2, "whole number", "-s 2M"),
        ("-s 0", 2, "'0' is zero", "prezero bench mmap --help"),
        ("-p 0", 2, "'0' is zero", "prezero bench mmap --help"),
        ("-l 0", 2, "--nr_loops", "prezero bench mmap --help"),
        ("-s 2.5M", 2, "2M and 3M", "prezero bench mmap --help"),
        ("-f bogus", 2, "populate", "prezero bench mmap --help"),
        ("-p 4K -s 16777215T", 2, "more than a CPU", "-s 4G"),
        ("-p 4K -s 100T", 3, "100 TiB", "-s "),
        ("-p 4K -s 4K -t 1000000", 2, "1000000 threads on", "-t "),
        ("-t 0", 2, "--threads", "prezero bench mmap --help"),
        ("-f both", 2, "--function", "prezero bench mmap --help"),
        ("-p 64G -s 64G", 4, "64 GiB", "-p 4K"),
    ] {
        let report = measured(args, code);
        let (_, error, fix) = error_of(&report);
        assert!(error.contains(part), "{args}: {error}");
        assert!(fix.unwrap_or_default().contains(wanted), "{args}: {fix:?}");
        assert!(list(&report, "rows").is_empty(), "{report:#}");
    }
}

#[test]
fn too_few_hugepages_for_all_threads_are_a_shortage_in_numbers() {
    let Some(pages) = Hugepages::exactly(PAGE, 8) else {
        return;
    };
    let report = measured("-p 2M -s 16M -t 2 -l 1", 3);
    let enough = measured("-p 2M -s 16M -t 1 -l 1", 0);
    pages.assert_clean();
    let (class, error, fix) = error_of(&report);
    assert_eq!(class, "shortage");
    assert!(error.contains("16 pages") && error.contains('8'), "{error}");
    assert!(
        fix.is_some_and(|fix| fix.contains("nr_hugepages")),
        "{fix:?}"
    );
    assert_eq!(list(&enough, "rows").len(), 2);
}

#[test]
fn a_signal_ends_it_between_two_touches_and_the_pages_are_back() {
    let Some(pages) = Hugepages::take(PAGE, 32) else {
        return;
    };
    let mut running = Running::start(prezero("bench mmap -p 2M -s 64M -l 1000000 --json"));
    let pid = running.pid();
    let works = || {
        let names = thread_names_of(pid);
        names.iter().any(|name| name.starts_with("prezero-m"))
    };
    while !works() {
        assert!(!running.has_ended(), "it has much to do");
        thread::sleep(Duration::from_millis(1));
    }
    kill(pid, SIGINT);
    let report = document(running.finish_within(Duration::from_secs(10)), 6);
    pages.assert_clean();
    assert_eq!(error_of(&report).0, "stopped");
    assert!(list(&report, "rows").is_empty(), "{report:#}");
}
