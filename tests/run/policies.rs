//! Policies on this machine's first node, and where memory policies are refused, as in a container.

use std::process::Command;

use prezero_testkit::{Hugepages, MachineLock, Refusal, Refused, require_kvm};

use crate::command::{Ran, error_of, finish, prezero};

const PAGE: u64 = 2 << 20;

/// The calls for memory policies.
const POLICY: [libc::c_long; 4] = [
    libc::SYS_mbind,
    libc::SYS_set_mempolicy,
    libc::SYS_get_mempolicy,
    libc::SYS_migrate_pages,
];

/// A run under a filter of system calls.
fn run_under(filter: Refused, args: &str) -> Ran {
    let mut command: Command = prezero(&format!("run {args}"));
    filter.put_on(&mut command);
    finish(command)
}

#[test]
fn every_policy_is_carried_out_and_checked() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::take(PAGE, 32) else {
        return;
    };
    for (nodes, policy) in [
        ("host_nodes=0", "bind"),
        ("host_numa_node=0", "bind"),
        ("host_nodes=0,policy=preferred", "preferred"),
        ("host_nodes=0,policy=interleave", "interleave"),
    ] {
        for memory in [
            "size=64M,hugepages=on,hugepage_size=2M",
            "size=32M,hugepages=off",
        ] {
            let args = format!("run --memory {memory},{nodes} --prealloc --verify --json");
            let report = finish(prezero(&args)).exits_with(0).json();
            let regions = report["regions"].as_array().expect("a list");
            assert!(
                regions.iter().all(|region| region["policy"] == policy),
                "{report:#}"
            );
            assert_eq!(report["placement"]["misplaced_pages"], 0, "{report:#}");
            assert_eq!(report["guest"]["nonzero_bytes"], 0, "{report:#}");
            pages.assert_clean();
        }
    }
}

#[test]
fn a_run_without_nodes_never_asks_for_a_policy() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::take(PAGE, 32) else {
        return;
    };
    for memory in [
        "size=64M,hugepages=on,hugepage_size=2M",
        "size=32M,hugepages=off",
    ] {
        let killed = Refused::new(&POLICY, Refusal::Kill);
        let args = format!("--memory {memory} --prealloc --verify --json");
        let report = run_under(killed, &args).exits_with(0).json();
        assert!(report["regions"][0]["policy"].is_null(), "{report:#}");
        pages.assert_clean();
    }
}

#[test]
fn refused_policies_are_the_hosts_fault_and_named_as_such() {
    if !require_kvm() {
        return;
    }
    let _lock = MachineLock::acquire();
    for (errno, nodes) in [
        (libc::EPERM, "host_numa_node=0"),
        (libc::ENOSYS, "host_numa_node=0"),
        (libc::EPERM, "host_nodes=0,policy=preferred"),
        (libc::EPERM, "policy=interleave"),
    ] {
        let errno = u16::try_from(errno).expect("an errno");
        let filter = Refused::new(&POLICY, Refusal::Errno(errno));
        let args = format!("--memory size=32M,hugepages=off,{nodes} --prealloc --json");
        let report = run_under(filter, &args).exits_with(4).json();
        let (class, message, fix) = error_of(&report);
        assert_eq!(class, "host");
        for named in ["seccomp", "CAP_SYS_NICE", "mbind"] {
            assert!(message.contains(named), "{message}");
            assert!(fix.is_some_and(|fix| fix.contains(named)), "{fix:?}");
        }
        // Doctor tries it, and says the same.
        let mut doctor = prezero(&format!("doctor {args}"));
        Refused::new(&POLICY, Refusal::Errno(errno)).put_on(&mut doctor);
        let judged = finish(doctor).exits_with(4).json();
        assert_eq!(error_of(&judged), (class, message, fix));
    }
}

#[test]
fn pages_are_counted_where_asking_for_them_is_refused() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::take(PAGE, 32) else {
        return;
    };
    let filter = || {
        let calls = [&POLICY[..], &[libc::SYS_move_pages]].concat();
        Refused::new(&calls, Refusal::Errno(1))
    };
    let memory = "--memory size=64M,hugepages=on,hugepage_size=2M --prealloc --verify";
    let ran = run_under(filter(), &format!("{memory} --json")).exits_with(0);
    assert_eq!(ran.stderr, "");
    let placement = &ran.json()["placement"];
    assert_eq!(
        (&placement["checked_pages"], &placement["misplaced_pages"]),
        (&32.into(), &0.into())
    );
    assert_eq!(placement["method"], "numa_maps");
    let ran = run_under(filter(), memory).exits_with(0);
    let line = "32 pages checked (by /proc/self/numa_maps), 0 on another node than planned";
    assert!(ran.stdout.contains(line), "{ran:#?}");
    pages.assert_clean();
}
