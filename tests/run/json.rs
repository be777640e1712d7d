//! The document on stdout, in every mode and for every kind of failure: schema prezero/run/1.

use std::fs;
use std::process::Command;

use prezero_testkit::{Hugepages, require_kvm};
use serde_json::Value;

use crate::command::{error_of, finish, prezero_run, run};
use crate::contract::{check_failure, check_success, list, number, text};

#[test]
fn ordinary_memory_fulfils_the_contract_in_every_mode() {
    if !require_kvm() {
        return;
    }
    let memory = "--memory size=64M,hugepages=off --json";
    for (mode, eager, verify) in [
        ("", false, false),
        ("--verify", false, true),
        ("--prealloc", true, false),
        ("--prealloc=eager --verify", true, true),
        ("--prealloc=off", false, false),
    ] {
        let ran = run(&format!("{memory} {mode}"));
        let report = check_success(ran, 64 << 20, eager, verify);
        assert_ne!(report["regions"][0]["backing"], "memfd", "{report:#}");
    }
}

#[test]
fn hugepages_fulfil_the_contract_in_every_mode() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::take(2 << 20, 64) else {
        return;
    };
    let memory = "--memory size=128M,hugepages=on,hugepage_size=2M --json";
    for (mode, eager, verify) in [
        ("--prealloc --verify", true, true),
        ("--verify", false, true),
    ] {
        let ran = run(&format!("{memory} {mode}"));
        let report = check_success(ran, 128 << 20, eager, verify);
        for region in list(&report, "regions") {
            assert_eq!(text(region, "backing"), "memfd");
            assert_eq!(number(region, "page_size"), 2 << 20);
        }
        let nodes = list(&report["host"], "nodes").iter();
        let pools = nodes.flat_map(|node| list(node, "pools"));
        let pools: Vec<&Value> = pools.filter(|pool| pool["page_size"] == 2 << 20).collect();
        let sum = |key| pools.iter().map(|pool| number(pool, key)).sum::<u64>();
        let counters = pages.counters();
        assert_eq!((sum("total"), sum("free")), (counters.total, counters.free));
        pages.assert_clean();
    }
}

#[test]
fn memory_around_the_hole_is_two_slots() {
    if !require_kvm() {
        return;
    }
    // Never touched: the guest only reads, and reading maps the zero page.
    let ran = run("--memory 3136M,hugepages=off --verify --json");
    let report = check_success(ran, 3136 << 20, false, true);
    let slots = list(&report, "slots");
    let range = |slot: &Value| (number(slot, "gpa"), number(slot, "len"));
    assert_eq!(range(&slots[0]), (0, 3 << 30));
    assert_eq!(range(&slots[1]), (4 << 30, 64 << 20));
}

#[test]
fn workers_stay_on_the_cpus_that_the_command_may_use() {
    if !require_kvm() {
        return;
    }
    let status = fs::read_to_string("/proc/self/status").expect("readable");
    let allowed = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let cpu: String = allowed
        .expect("every kernel has it")
        .trim()
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    let run = prezero_run("--memory 64M,hugepages=off --prealloc --json");
    let mut command = Command::new("taskset");
    command
        .args(["--cpu-list", &cpu])
        .arg(run.get_program())
        .args(run.get_args());
    let report = check_success(finish(command), 64 << 20, true, false);
    let workers = list(&report, "workers");
    assert_eq!(workers.len(), 1, "{report:#}");
    assert_eq!(workers[0]["cpu"].to_string(), cpu);
    assert_eq!(workers[0]["pinned"], true);
}

#[test]
fn threads_is_the_number_of_workers() {
    if !require_kvm() {
        return;
    }
    for threads in [1, 3] {
        let memory = "size=64M,hugepages=off,host_numa_node=0";
        let ran = run(&format!(
            "--memory {memory} --prealloc --threads {threads} --json"
        ));
        let report = check_success(ran, 64 << 20, true, false);
        assert_eq!(list(&report, "workers").len(), threads, "{report:#}");
    }
}

#[test]
fn command_lines_that_cannot_be_read_are_answered_in_json() {
    for (args, part) in [
        ("--json", "No guest memory"),
        ("--json --memory", "--memory"),
        ("--json --memory 64M --unknown", "--unknown"),
        ("--json --memory 64M --threads many", "--threads"),
        ("--json --memory 64M --threads -1", "-1"),
        ("--json --memory 64M --cpus 1.5", "--cpus"),
        ("--json --memory 64M --prealloc=lazy", "--prealloc"),
        ("--json --memory 64M --memory 64M", "--memory"),
        ("--json --memory 64M stray", "stray"),
    ] {
        let report = check_failure(run(args), 2, "usage");
        let (_, message, fix) = error_of(&report);
        assert!(message.contains(part), "{args}: {message}");
        assert!(fix.is_some(), "{args}");
    }
}

#[test]
fn requests_that_are_refused_are_answered_in_json() {
    for (spec, code, class) in [
        ("0", 2, "usage"),
        ("64M,shared=on", 2, "usage"),
        ("4096T", 2, "usage"),
        ("64M,hugepages=off,host_numa_node=99", 2, "usage"),
        // More hugepages than anybody has.
        ("size=1T,hugepages=on,hugepage_size=2M", 3, "shortage"),
    ] {
        let report = check_failure(run(&format!("--memory {spec} --json")), code, class);
        assert!(error_of(&report).2.is_some(), "{report:#}");
    }
}
