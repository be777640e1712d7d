//! `--root`: the plan for a recorded host.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::command::{error_of, finish, prezero};

fn hosts() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/hosts");
    let entries = fs::read_dir(dir).expect("the recorded hosts");
    let mut hosts: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    hosts.sort();
    assert!(hosts.len() >= 10, "{hosts:?}");
    hosts
}

#[test]
fn every_recorded_host_is_planned_for_at_once() {
    for host in hosts() {
        let root = host.display();
        let mut fastest = Duration::MAX;
        for memory in ["1G", "size=1G,hugepages=off", "size=1T"] {
            let args = format!("plan --memory {memory} --prealloc --root {root} --json");
            let ran = finish(prezero(&args));
            fastest = fastest.min(ran.took);
            let report = ran.json();
            assert_eq!(report["schema"], "prezero/plan/1");
            match ran.status.code() {
                Some(0) => {
                    assert!(report.get("error").is_none(), "{report:#}");
                    assert!(!report["slots"].as_array().expect("a list").is_empty());
                }
                Some(2..=4) => {
                    let (_, message, fix) = error_of(&report);
                    assert!(!message.is_empty() && fix.is_some(), "{root}: {report:#}");
                }
                _ => panic!("{root}: {ran:#?}"),
            }
        }
        // The contract is 100 ms; a busy machine is given ten times that.
        assert!(fastest < Duration::from_secs(1), "{root}: {fastest:?}");
    }
}

#[test]
fn a_recorded_host_is_planned_for_and_not_this_one() {
    let root = hosts()
        .into_iter()
        .find(|host| host.ends_with("eight-nodes-16t"));
    let root = root.expect("a host of that name");
    let args = format!(
        "plan --memory 12T --prealloc --root {} --json",
        root.display()
    );
    let ran = finish(prezero(&args)).exits_with(0);
    let report = ran.json();
    assert_eq!(report["host"]["nodes"].as_array().map(Vec::len), Some(8));
    let regions = report["regions"].as_array().expect("a list").iter();
    let bytes: u64 = regions.filter_map(|region| region["len"].as_u64()).sum();
    assert_eq!(bytes, 12 << 40);
}

#[test]
fn a_parents_limit_of_a_recorded_host_is_named() {
    let root = hosts()
        .into_iter()
        .find(|host| host.ends_with("cgroup2-parent-limit"));
    let root = root.expect("a host of that name");
    let plan = |memory: &str| {
        let args = format!("plan --memory {memory} --root {} --json", root.display());
        finish(prezero(&args))
    };
    // From above until it fits, the first thing in the way is the limit or the number of pages.
    let mut named = None;
    for gib in (1..=64).rev() {
        let ran = plan(&format!("size={gib}G,hugepages=on"));
        match ran.status.code() {
            Some(0) => break,
            _ => named = Some(ran.exits_with(3).json()),
        }
    }
    let report = named.expect("64 GiB are too many");
    let (class, message, fix) = error_of(&report);
    assert_eq!(class, "shortage");
    assert!(
        message.contains("cgroup limit") && message.contains("/sys/fs/cgroup"),
        "{message}"
    );
    assert!(fix.is_some_and(|fix| fix.contains("sudo tee /sys/fs/cgroup")));
}
