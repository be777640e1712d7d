//! What `plan` and `doctor` say of a pool: what a run takes of it, without taking it.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use prezero_memory::pool::TakeRequest;
use prezero_testkit::require_kvm;

use crate::command::{finish, prezero, run};
use crate::contract::{list, text};
use crate::pooled::{Pooled, SEGMENT, regions};

#[test]
fn plan_and_doctor_foresee_what_a_run_takes_and_change_nothing() {
    if !require_kvm() {
        return;
    }
    let Some(pooled) = Pooled::new(3, 48) else {
        return;
    };
    // One dirty, one leased, one clean.
    let one = TakeRequest {
        max_bytes: SEGMENT,
        ..TakeRequest::default()
    };
    drop(pooled.pool.take(&one).expect("it is free"));
    let lease = pooled.pool.take(&one).expect("it is free");
    assert_eq!(pooled.free(), (1, 1));
    let before = pooled.segments();
    let args = format!(
        "--memory size=48M,hugepages=on,host_numa_node=0 --prealloc --json --pool {}",
        pooled.dir().display()
    );
    let seen = ["plan", "doctor"].map(|command| {
        let seen = finish(prezero(&format!("{command} {args}"))).exits_with(0);
        assert_eq!(pooled.segments(), before, "{command} changed the pool");
        seen.json()
    });
    let report = run(&args).exits_with(0).json();
    let of_pool = |origin, by| ("pool", origin, by, 16);
    let fresh = ("memfd", "fresh", "kernel", 16);
    let taken = [of_pool("clean", "none"), of_pool("dirty", "user"), fresh];
    assert_eq!(regions(&report), taken);
    let [plan, doctor] = &seen;
    assert_eq!(plan["regions"], report["regions"]);
    assert_eq!(doctor["regions"], report["regions"]);
    assert_eq!(plan["pool"], report["pool"]);
    for key in ["clean_bytes", "dirty_bytes", "fresh_bytes"] {
        assert_eq!(report["pool"][key], SEGMENT, "{report:#}");
    }
    assert_eq!(plan["warnings"], report["warnings"]);
    let total = &doctor["recycled"][0]["totals"][0];
    for state in ["clean", "dirty", "leased"] {
        assert_eq!(total[state]["segments"], 1, "{doctor:#}");
    }
    drop(lease);
    // What takes none foresees none.
    let args = "--memory size=48M,hugepages=on --prealloc --json --pool none";
    for command in ["plan", "doctor"] {
        let seen = finish(prezero(&format!("{command} {args}"))).exits_with(0);
        assert_eq!(regions(&seen.json()), [("memfd", "fresh", "kernel", 48)]);
    }
}

#[test]
fn doctor_says_what_the_pool_at_the_default_place_has() {
    let Some(pooled) = Pooled::new(2, 16) else {
        return;
    };
    let dir = pooled.dir();
    if !pooled.is_at_default_place() {
        return;
    }
    let pool = || -> Vec<(String, String)> {
        let report = finish(prezero("doctor --json")).json();
        let findings = list(&report, "findings").iter();
        let of_pool = findings.filter(|finding| finding["name"] == "pool");
        of_pool
            .map(|found| (text(found, "level").into(), text(found, "message").into()))
            .collect()
    };
    let has = format!(
        "{}, on pages of 2 MiB: node 0: 32 MiB clean, 0 bytes dirty, 0 bytes leased",
        dir.display()
    );
    assert_eq!(pool(), [("ok".into(), has.clone())]);
    fs::write(dir.join("notes"), "").expect("a new file");
    let notes = format!("{}/notes is not a name of a pool's", dir.display());
    assert_eq!(pool(), [("ok".into(), has), ("warning".into(), notes)]);
    // A run leaves alone what others may change, and says so.
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let unused = format!(
        "The pool is not used: {} is open to others (mode 0755)",
        dir.display()
    );
    assert_eq!(pool(), [("warning".into(), unused)]);
}

#[test]
fn plan_and_doctor_refuse_the_pool_that_a_run_refuses() {
    let args = "--memory size=2M,hugepages=on --pool /proc --json";
    let report = run(args).exits_with(2).json();
    for command in ["plan", "doctor"] {
        let seen = finish(prezero(&format!("{command} {args}"))).exits_with(2);
        assert_eq!(seen.json()["error"], report["error"], "{command}");
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/hosts/one-node");
        let recorded = format!("{command} {args} --root {root}");
        let refused = finish(prezero(&recorded)).exits_with(2).json();
        let message = text(&refused["error"], "message");
        assert!(message.contains("recorded"), "{message}");
    }
    // Ordinary memory is not in segments, so that nobody looks.
    let args = "--memory size=2M,hugepages=off --pool /proc --json";
    for command in ["plan", "doctor", "run"] {
        let ran = finish(prezero(&format!("{command} {args}")));
        assert_ne!(ran.status.code(), Some(2), "{ran:#?}");
    }
}
