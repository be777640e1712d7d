//! What is planned on this host is what a run then reports.

use prezero_testkit::{Hugepages, require_kvm};
use serde_json::Value;

use crate::command::{error_of, finish, prezero};

#[track_caller]
fn both(args: &str, code: i32) -> [Value; 2] {
    ["plan", "run"].map(|command| {
        let ran = finish(prezero(&format!("{command} {args} --json"))).exits_with(code);
        ran.json()
    })
}

#[test]
fn regions_slots_and_workers_are_the_same() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::take(2 << 20, 64) else {
        return;
    };
    for args in [
        "--memory 64M --prealloc",
        "--memory 64M",
        "--memory size=64M,hugepages=off --prealloc --threads 1",
        "--memory size=64M,hugepages=on,hugepage_size=2M,host_numa_node=0 --prealloc",
        "--memory-zone size=32M,id=a,hugepage_size=2M --memory-zone size=64M,hugepages=off --prealloc",
    ] {
        let [planned, ran] = both(args, 0);
        for key in ["regions", "slots", "request"] {
            assert_eq!(planned[key], ran[key], "{args}");
        }
        let placed = |report: &Value| -> Vec<(Value, Value)> {
            let workers = report["workers"].as_array().expect("a list").iter();
            workers
                .map(|worker| (worker["node"].clone(), worker["remote"].clone()))
                .collect()
        };
        assert_eq!(placed(&planned), placed(&ran), "{args}");
        pages.assert_clean();
    }
}

#[test]
fn a_shortage_is_the_same_and_planning_takes_nothing() {
    let Some(pages) = Hugepages::exactly(2 << 20, 10) else {
        return;
    };
    let before = pages.counters();
    let [planned, ran] = both("--memory size=64M,hugepages=on,hugepage_size=2M", 3);
    assert_eq!(error_of(&planned), error_of(&ran));
    let args = "plan --memory size=20M,hugepages=on,hugepage_size=2M --prealloc";
    finish(prezero(args)).exits_with(0);
    assert_eq!(pages.counters(), before);
    pages.assert_clean();
}
