//! A CPU quota: it bounds the workers, and the time it withheld is reported.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use prezero_testkit::{MachineLock, require_kvm, skip};

use crate::command::{finish, prezero, prezero_run_after};

/// A group that allows a tenth of a CPU, removed on drop.
struct QuotaGroup(PathBuf);

impl QuotaGroup {
    fn new() -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let missing = || io::Error::new(io::ErrorKind::NotFound, "no cpu controller");
        let point = |line: &str| line.split_whitespace().nth(4).map(PathBuf::from);
        let options = |line: &str| line.rsplit(' ').next().unwrap_or_default().to_owned();
        let v1 = mounts.lines().filter(|line| line.contains(" - cgroup "));
        let v1 = v1
            .filter(|line| options(line).split(',').any(|option| option == "cpu"))
            .find_map(point);
        let v2 = || {
            let root = mounts
                .lines()
                .find(|line| line.contains(" - cgroup2 "))
                .and_then(point)?;
            let on = fs::read_to_string(root.join("cgroup.subtree_control")).ok()?;
            on.split_whitespace()
                .any(|name| name == "cpu")
                .then_some(root)
        };
        let (root, file, quota) = match v1 {
            Some(root) => (root, "cpu.cfs_quota_us", "10000"),
            None => (v2().ok_or_else(missing)?, "cpu.max", "10000 100000"),
        };
        let dir = root.join(format!("prezero-quota-{}", std::process::id()));
        fs::create_dir(&dir)?;
        let group = Self(dir);
        fs::write(group.0.join(file), quota)?;
        Ok(group)
    }

    fn join(&self) -> String {
        format!("echo $$ > {}/cgroup.procs;", self.0.display())
    }
}

impl Drop for QuotaGroup {
    fn drop(&mut self) {
        for _ in 0..200 {
            match fs::remove_dir(&self.0) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    thread::sleep(Duration::from_millis(5));
                }
                _ => break,
            }
        }
    }
}

#[test]
fn time_that_the_quota_withheld_is_reported_with_advice() {
    if !require_kvm() {
        return;
    }
    let _lock = MachineLock::acquire();
    let group = match QuotaGroup::new() {
        Ok(group) => group,
        Err(error) => return skip("cpu cgroup", &error.to_string()),
    };
    let args = "--memory size=512M,hugepages=off --prealloc --json";
    let report = finish(prezero_run_after(&group.join(), args))
        .exits_with(0)
        .json();
    assert_eq!(
        report["workers"].as_array().map(Vec::len),
        Some(1),
        "{report:#}"
    );
    let throttled = report["throttled_ns"]
        .as_u64()
        .expect("the group counts it");
    assert!(throttled > 0, "{report:#}");
    let warnings: Vec<&str> = report["warnings"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|warning| warning.as_str())
        .collect();
    let dir: &Path = &group.0;
    let start = format!(
        "The CPU quota of {} held its threads back for ",
        dir.display()
    );
    let told = warnings.iter().find(|warning| warning.starts_with(&start));
    let told = told.unwrap_or_else(|| panic!("{warnings:?}"));
    assert!(
        told.ends_with("(raise its cpu.max, or use fewer --threads)"),
        "{told}"
    );
}

#[test]
fn withheld_time_is_warned_of_and_none_is_not() {
    if !require_kvm() {
        return;
    }
    let ran = finish(prezero(
        "run --memory size=64M,hugepages=off --prealloc --json",
    ));
    let report = ran.exits_with(0).json();
    // Where these tests run in a container with a quota, there may be some.
    let warned = report["warnings"].to_string().contains("The CPU quota of");
    let withheld = report["throttled_ns"].as_u64().unwrap_or(0);
    assert_eq!(withheld > 0, warned, "{report:#}");
}
