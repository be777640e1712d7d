//! What holds for every document: schema prezero/run/1.

use std::fs;

use serde_json::Value;

use crate::command::{Ran, error_of};

/// What phases may be called, in the order in which they happen.
const PHASES: [&str; 11] = [
    "plan",
    "lease",
    "kvm",
    "reserve",
    "populate",
    "calibrate",
    "clear",
    "verify",
    "register",
    "load",
    "boot",
];
/// What the guest is created by: everything but the last two.
const CREATION: usize = 9;
/// "1 ms" of the contract.
const TOLERANCE_NS: u64 = 1_000_000;

#[track_caller]
pub(crate) fn number(value: &Value, key: &str) -> u64 {
    let number = value[key].as_u64();
    number.unwrap_or_else(|| panic!("{key} is not a number: {value:#}"))
}

#[track_caller]
pub(crate) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    let text = value[key].as_str();
    text.unwrap_or_else(|| panic!("{key} is not text: {value:#}"))
}

#[track_caller]
pub(crate) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    let list = value[key].as_array();
    list.unwrap_or_else(|| panic!("{key} is not a list: {value:#}"))
}

#[track_caller]
fn flag(value: &Value, key: &str) -> bool {
    let flag = value[key].as_bool();
    flag.unwrap_or_else(|| panic!("{key} is not a bool: {value:#}"))
}

#[track_caller]
fn sum(values: &[Value], key: &str) -> u64 {
    values.iter().map(|value| number(value, key)).sum()
}

/// Checks everything that holds for every run that succeeded.
#[track_caller]
pub(crate) fn check_success(ran: Ran, bytes: u64, eager: bool, verify: bool) -> Value {
    let ran = ran.exits_with(0);
    let report = ran.json();
    assert_eq!(text(&report, "schema"), "prezero/run/1");
    assert_eq!(text(&report, "version"), env!("CARGO_PKG_VERSION"));
    assert!(report.get("error").is_none(), "{report:#}");
    check_host(&report["host"]);
    let request = &report["request"];
    assert_eq!(number(request, "bytes"), bytes);
    assert_eq!(
        text(request, "prealloc"),
        if eager { "eager" } else { "off" }
    );
    let method = request.get("method").expect("null or a name");
    assert!(method.is_null() || method.is_string(), "{request:#}");
    check_memory(&report, bytes, eager);
    check_times(&report);
    check_workers(&report, bytes, eager);
    let throttled = report.get("throttled_ns").expect("a key");
    assert!(throttled.is_u64() || throttled.is_null(), "{report:#}");
    check_guest(&report["guest"], if verify { bytes } else { 0 });
    let warnings = list(&report, "warnings");
    for warning in warnings {
        let line = format!("warning: {}\n", warning.as_str().expect("text"));
        assert!(ran.stderr.contains(&line), "{ran:#?}");
    }
    assert_eq!(ran.stderr.lines().count(), warnings.len(), "{ran:#?}");
    report
}

#[track_caller]
fn check_host(host: &Value) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("readable");
    assert_eq!(text(host, "kernel"), release.trim());
    text(host, "cpu");
    text(host, "preempt");
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").expect("readable");
    let virtual_machine = cpuinfo.split_whitespace().any(|flag| flag == "hypervisor");
    assert_eq!(flag(host, "hypervisor"), virtual_machine);
    for node in list(host, "nodes") {
        number(node, "id");
        assert!(list(node, "cpus").iter().all(Value::is_u64), "{node:#}");
        for pool in list(node, "pools") {
            assert!(number(pool, "page_size").is_power_of_two());
            assert!(number(pool, "free") <= number(pool, "total"), "{pool:#}");
        }
    }
}

/// Whether fresh memory was to be cleared once more.
fn cleared_again(report: &Value) -> bool {
    text(&report["request"], "clear") == "always"
}

#[track_caller]
fn check_memory(report: &Value, bytes: u64, eager: bool) {
    let (regions, slots) = (list(report, "regions"), list(report, "slots"));
    assert_eq!(sum(regions, "len"), bytes, "{report:#}");
    assert_eq!(sum(slots, "len"), bytes, "{report:#}");
    let end = |range: &Value| number(range, "gpa") + number(range, "len");
    for (n, slot) in slots.iter().enumerate() {
        assert_eq!(number(slot, "slot"), n as u64);
        assert!(
            n == 0 || end(&slots[n - 1]) <= number(slot, "gpa"),
            "{report:#}"
        );
    }
    for region in regions {
        let (gpa, len) = (number(region, "gpa"), number(region, "len"));
        let page = number(region, "page_size");
        assert!(
            len > 0 && gpa.is_multiple_of(page) && len.is_multiple_of(page),
            "{region:#}"
        );
        let inside = |slot: &&Value| number(slot, "gpa") <= gpa && gpa + len <= end(slot);
        assert_eq!(slots.iter().filter(inside).count(), 1, "{report:#}");
        let node = number(region, "node");
        assert!(list(region, "nodes").contains(&node.into()), "{region:#}");
        match &region["policy"] {
            Value::Null => assert_eq!(list(region, "nodes").len(), 1, "{region:#}"),
            policy => assert!(
                ["bind", "preferred", "interleave"]
                    .iter()
                    .any(|name| policy == name)
            ),
        }
        let backing = text(region, "backing");
        assert!(["memfd", "thp", "base"].contains(&backing), "{backing}");
        assert_eq!(text(region, "origin"), "fresh");
        // The kernel clears fresh pages; a second clear by us is for nothing, unless it was asked for.
        let cleared_by = match (cleared_again(report), eager) {
            (true, _) => "user",
            (false, true) => "kernel",
            (false, false) => "none",
        };
        assert_eq!(text(region, "cleared_by"), cleared_by);
    }
    match &report["placement"] {
        Value::Null => assert!(!eager, "{report:#}"),
        placement => {
            assert!(
                eager && number(placement, "misplaced_pages") == 0,
                "{report:#}"
            );
            let pages = |region: &Value| number(region, "len") / number(region, "page_size");
            let pages: u64 = regions.iter().map(pages).sum();
            assert_eq!(number(placement, "checked_pages"), pages, "{report:#}");
            let method = text(placement, "method");
            assert!(["move_pages", "numa_maps"].contains(&method), "{method}");
        }
    }
}

#[track_caller]
fn check_times(report: &Value) {
    let phases = list(report, "phases");
    let place = |phase: &Value| PHASES.iter().position(|name| *name == text(phase, "name"));
    let places: Vec<Option<usize>> = phases.iter().map(place).collect();
    assert!(places.iter().all(Option::is_some), "{report:#}");
    assert!(
        places.is_sorted_by(|a, b| a < b),
        "out of order, or twice: {report:#}"
    );
    for name in ["plan", "kvm", "reserve", "register", "load", "boot"] {
        assert!(
            phases.iter().any(|phase| phase["name"] == name),
            "no {name}: {report:#}"
        );
    }
    for phase in phases {
        number(phase, "bytes");
    }
    assert!(number(report, "started_ns") > 0, "{report:#}");
    let creation = number(report, "creation_ns");
    let up_to_register = |phase: &&Value| PHASES[..CREATION].contains(&text(phase, "name"));
    let spent: u64 = phases
        .iter()
        .filter(up_to_register)
        .map(|phase| number(phase, "ns"))
        .sum();
    assert!(
        spent.abs_diff(creation) <= TOLERANCE_NS,
        "{spent} ns in phases: {report:#}"
    );
    let first = number(report, "first_instruction_ns");
    assert!(first > creation && first <= sum(phases, "ns"), "{report:#}");
}

#[track_caller]
fn check_workers(report: &Value, bytes: u64, eager: bool) {
    let workers = list(report, "workers");
    assert_eq!(workers.is_empty(), !eager, "{report:#}");
    assert_eq!(
        sum(workers, "populated_bytes"),
        if eager { bytes } else { 0 },
        "{report:#}"
    );
    let cleared = if cleared_again(report) { bytes } else { 0 };
    assert_eq!(sum(workers, "cleared_bytes"), cleared, "{report:#}");
    assert_eq!(report.get("clear").is_some(), cleared > 0, "{report:#}");
    for worker in workers {
        let node = number(worker, "node");
        assert!(
            list(report, "regions")
                .iter()
                .any(|region| region["node"] == node)
        );
        assert!(
            number(worker, "cpu_ns") > 0 || worker["populated_bytes"] == 0,
            "{worker:#}"
        );
        assert!(
            worker["cpu"].is_u64() || worker["cpu"].is_null(),
            "{worker:#}"
        );
        if flag(worker, "pinned") && !flag(worker, "remote") {
            let mut nodes = list(&report["host"], "nodes").iter();
            let node = nodes
                .find(|candidate| candidate["id"] == node)
                .expect("a node of the host");
            assert!(list(node, "cpus").contains(&worker["cpu"]), "{report:#}");
        }
    }
}

#[track_caller]
fn check_guest(guest: &Value, scanned: u64) {
    assert_eq!(text(guest, "exit"), "shutdown");
    assert_eq!(number(guest, "scanned_bytes"), scanned);
    assert_eq!(number(guest, "scan_ns") > 0, scanned > 0, "{guest:#}");
    assert_eq!(number(guest, "nonzero_bytes"), 0);
    assert_eq!(guest.get("first_nonzero_gpa"), Some(&Value::Null));
}

/// Checks what holds for the document of every failure.
#[track_caller]
pub(crate) fn check_failure(ran: Ran, code: i32, class: &str) -> Value {
    let ran = ran.exits_with(code);
    let report = ran.json();
    assert_eq!(text(&report, "schema"), "prezero/run/1");
    let (of_report, message, fix) = error_of(&report);
    assert_eq!(of_report, class, "{report:#}");
    assert!(
        !message.ends_with(':') && !message.contains('\n'),
        "half a sentence: {message}"
    );
    assert!(
        report["error"].get("fix").is_some() && fix != Some(""),
        "{report:#}"
    );
    assert!(ran.stderr.contains("error: "), "for people, too: {ran:#?}");
    for key in ["regions", "slots", "phases", "workers", "warnings"] {
        list(&report, key);
    }
    for key in [
        "version",
        "host",
        "request",
        "placement",
        "throttled_ns",
        "started_ns",
        "creation_ns",
        "first_instruction_ns",
        "guest",
    ] {
        assert!(report.get(key).is_some(), "no {key}: {report:#}");
    }
    report
}
