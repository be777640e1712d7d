//! Recorded hosts: what their files tell is found, and nothing is looked for that they cannot tell.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::contract::{doctor, examined, fixture, named, of_level, one};

#[track_caller]
fn of(host: &str, args: &str, code: i32) -> Value {
    examined(doctor(&format!("--root {host} --json {args}")), code)
}

/// A copy of a recorded host in which some files are different.
#[track_caller]
fn altered(name: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("temporary directory");
    let source = format!("{}/.", fixture(name));
    let copied = Command::new("cp")
        .args(["-r", &source])
        .arg(dir.path())
        .status();
    assert!(copied.is_ok_and(|status| status.success()));
    for (path, text) in files {
        fs::write(dir.path().join(path), text).expect("written");
    }
    dir
}

fn path(dir: &tempfile::TempDir) -> &str {
    dir.path().to_str().expect("UTF-8")
}

#[test]
fn the_live_kernel_is_left_out() {
    let report = of(&fixture("one-node"), "", 0);
    for name in ["kvm", "populate", "minor", "leases", "held", "reserved"] {
        assert_eq!(named(&report, name), [], "{report:#}");
    }
    let (level, message, _) = one(&report, "recording");
    assert_eq!(level, "ok");
    assert!(message.contains("not looked at"), "{message}");
}

#[test]
fn cgroup_limits_below_what_is_free_are_warnings_that_raise_them() {
    let report = of(&fixture("cgroup2-parent-limit"), "", 0);
    let limits = named(&report, "limits");
    assert!(
        limits.iter().any(|limit| limit.0 == "warning"),
        "{report:#}"
    );
    for (level, message, fix) in limits {
        let file = message
            .split_whitespace()
            .find(|word| word.starts_with('/'));
        let file = file.unwrap_or_else(|| panic!("no file: {message}"));
        assert!(
            message.contains(" used, ") && message.contains(" left"),
            "{message}"
        );
        if level == "warning" {
            let rest = fix.strip_prefix("echo ").unwrap_or_else(|| panic!("{fix}"));
            let (bytes, tee) = rest
                .split_once(" | sudo tee ")
                .unwrap_or_else(|| panic!("{fix}"));
            assert!(bytes.parse::<u64>().is_ok(), "{fix}");
            assert_eq!(tee, file);
            assert!(
                Path::new(&(fixture("cgroup2-parent-limit") + file)).exists(),
                "{file}"
            );
        }
    }
}

#[test]
fn raising_the_limits_as_told_ends_the_warnings() {
    let before = of(&fixture("cgroup2-parent-limit"), "", 0);
    let mut files = Vec::new();
    for (level, _, fix) in named(&before, "limits") {
        if level == "warning" {
            let (bytes, file) = fix[5..].split_once(" | sudo tee /").expect("a command");
            files.push((file, bytes));
        }
    }
    let after = of(path(&altered("cgroup2-parent-limit", &files)), "", 0);
    let levels: Vec<&str> = named(&after, "limits")
        .iter()
        .map(|limit| limit.0)
        .collect();
    assert!(
        !levels.is_empty() && levels.iter().all(|level| *level == "ok"),
        "{after:#}"
    );
}

#[test]
fn a_limit_that_the_request_exceeds_is_a_shortage() {
    let report = of(
        &fixture("cgroup2-parent-limit"),
        "--memory 7G,hugepages=on",
        3,
    );
    assert_eq!(one(&report, "memory").0, "problem");
}

#[test]
fn limits_of_the_process_are_warnings_with_ulimit() {
    let report = of(&fixture("cgroup1"), "", 0);
    let (level, message, fix) = one(&report, "ulimit");
    assert_eq!((level, fix), ("warning", "ulimit -f unlimited"));
    assert!(message.contains("64 GiB"), "{message}");
    assert_eq!(one(&of(&fixture("one-node"), "", 0), "ulimit").0, "ok");
}

#[test]
fn a_kernel_without_populate_is_a_problem_for_prealloc_only() {
    let report = of(&fixture("cgroup1"), "", 0);
    assert_eq!(one(&report, "kernel").0, "warning");
    let report = of(&fixture("cgroup1"), "--prealloc --memory 64M", 4);
    assert_eq!(one(&report, "kernel").0, "problem");
    assert_eq!(one(&report, "memory").0, "problem");
    assert!(
        report["error"]["message"]
            .as_str()
            .expect("text")
            .contains("5.10.0")
    );
}

#[test]
fn kernels_that_lose_1_gib_pages_are_named_where_there_are_such_pages() {
    let release = |release| altered("default-1g", &[("proc/sys/kernel/osrelease", release)]);
    for (kernel, level) in [
        ("6.5.13", "ok"),
        ("6.6.0-rc1", "warning"),
        ("6.8.0-71-generic", "warning"),
        ("6.9.0", "ok"),
    ] {
        let report = of(path(&release(kernel)), "", 0);
        let found = one(&report, "kernel");
        assert_eq!(found.0, level, "{kernel}: {found:?}");
        assert!(found.1.contains(kernel), "{found:?}");
    }
    let without = "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages";
    let none = altered(
        "default-1g",
        &[("proc/sys/kernel/osrelease", "6.8.0"), (without, "0")],
    );
    assert_eq!(one(&of(path(&none), "", 0), "kernel").0, "ok");
}

#[test]
fn numa_balancing_matters_for_ordinary_memory_only() {
    let host = fixture("memory-only-node");
    for (args, level) in [
        ("", "ok"),
        ("--memory 64M,hugepages=off", "warning"),
        ("--memory 64M,hugepages=on,hugepage_size=2M", "ok"),
    ] {
        let report = of(&host, args, 0);
        let (found, message, fix) = one(&report, "balancing");
        assert_eq!(found, level, "{args}: {message}");
        assert_eq!(fix.contains("kernel.numa_balancing=0"), level == "warning");
    }
}

#[test]
fn of_several_mounts_the_chosen_one_is_named() {
    let report = of(&fixture("default-1g"), "", 0);
    let mounts = named(&report, "mounts");
    assert_eq!(mounts.len(), 2, "{report:#}");
    assert!(
        mounts[0].1.contains("2 MiB") && mounts[0].1.ends_with("/mnt/huge_2MB"),
        "{mounts:?}"
    );
    assert!(
        mounts[1].1.ends_with("the one chosen is /dev/hugepages"),
        "{mounts:?}"
    );
    assert!(of_level(&report, "problem").is_empty());
    let report = of(&fixture("sparse-node-ids"), "", 0);
    let mounts = named(&report, "mounts");
    assert!(
        mounts
            .iter()
            .any(|mount| mount.1.contains("/dev/hugepages1G (read-only)")),
        "{mounts:?}"
    );
}

#[test]
fn cpus_quotas_and_topology_are_looked_at() {
    let of_cpus = |host: &str| of(&fixture(host), "", 0);
    let report = of_cpus("sparse-node-ids");
    let cpus = named(&report, "cpus");
    let quota = cpus
        .iter()
        .find(|cpus| cpus.0 == "warning")
        .expect("a quota");
    assert!(
        quota.1.contains("/sys/fs/cgroup/machine.slice allows"),
        "{cpus:?}"
    );
    assert!(quota.1.contains(": 4 of "), "{cpus:?}");
    assert_eq!(
        quota.2,
        "echo max | sudo tee /sys/fs/cgroup/machine.slice/cpu.max"
    );

    let report = of_cpus("no-sys");
    let cpus = named(&report, "cpus");
    assert!(
        cpus.iter()
            .any(|cpus| cpus.0 == "warning" && cpus.1.contains("topology")),
        "{cpus:?}"
    );

    let report = of_cpus("memory-only-node");
    let cpus = named(&report, "cpus");
    assert!(cpus.iter().all(|cpus| cpus.0 == "ok"), "{cpus:?}");
    assert!(
        cpus.iter().any(|cpus| cpus.1.contains("has no CPUs")),
        "{cpus:?}"
    );
}

#[test]
fn no_hugepages_at_all_is_a_warning_with_the_number_to_add() {
    let pool = "sys/kernel/mm/hugepages/hugepages-2048kB";
    let node = "sys/devices/system/node/node0/hugepages/hugepages-2048kB";
    let zero = |dir: &str, file: &str| (format!("{dir}/{file}"), "0\n");
    let mut files: Vec<(String, &str)> = Vec::new();
    for dir in [pool, node] {
        files.extend([zero(dir, "nr_hugepages"), zero(dir, "free_hugepages")]);
    }
    let large = "sys/kernel/mm/hugepages/hugepages-1048576kB";
    if Path::new(&fixture("one-node")).join(large).exists() {
        files.extend([zero(large, "nr_hugepages"), zero(large, "free_hugepages")]);
    }
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(path, text)| (path.as_str(), *text))
        .collect();
    let host = altered("one-node", &files);
    for (args, pages) in [("", 512), ("--memory 3G", 1536)] {
        let report = of(path(&host), args, 0);
        let (level, _, fix) = one(&report, "hugepages");
        let command = format!("echo {pages} | sudo tee /{pool}/nr_hugepages");
        assert_eq!((level, fix), ("warning", command.as_str()));
    }
    // The plan falls back, and says so.
    let report = of(path(&host), "--memory 3G", 0);
    let memory = named(&report, "memory");
    assert!(
        memory
            .iter()
            .any(|memory| memory.0 == "warning" && memory.1.contains("ordinary")),
        "{memory:?}"
    );
}

#[test]
fn a_file_that_is_not_understood_is_a_warning() {
    let host = altered("one-node", &[("proc/meminfo", "Hugepagesize: many kB\n")]);
    let report = of(path(&host), "", 0);
    let (level, message, fix) = one(&report, "files");
    assert_eq!(level, "warning");
    assert!(
        message.contains("meminfo") && fix.ends_with("proc/meminfo"),
        "{message}, {fix}"
    );
}

#[test]
fn memory_far_from_its_cpus_is_a_warning_with_a_node_that_has_both() {
    let host = fixture("sparse-node-ids");
    let memory = "--prealloc --memory size=1G,hugepages=on,hugepage_size=2M";
    let report = of(&host, &format!("{memory},host_numa_node=3"), 0);
    let warnings = named(&report, "memory");
    let warning = warnings.iter().find(|memory| memory.1.contains("remote"));
    let (level, _, fix) = warning.unwrap_or_else(|| panic!("{report:#}"));
    assert_eq!(*level, "warning");
    let report = of(&host, &format!("{memory},{fix}"), 0);
    assert_eq!(one(&report, "memory").0, "ok");
}

#[test]
fn a_recording_that_is_not_there_is_code_2() {
    let report = of("/nonexistent", "", 2);
    assert_eq!(report["error"]["class"], "usage");
}
