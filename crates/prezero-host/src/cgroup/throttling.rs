//! How long control groups kept this process from running.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Cgroups, Version};
use crate::mountinfo;
use crate::root::Root;

/// The counters of throttled time of this process's cgroup and its parents, from a moment on.
///
/// The kernel counts for each group, whatever processes it has, and adds up its CPUs: the time may be
/// longer than what passed. (`cpu.stat`, Documentation/admin-guide/cgroup-v2.rst.)
#[derive(Debug, Clone, Default)]
pub struct CpuThrottling {
    counters: Vec<Counter>,
}

/// One group's counter.
#[derive(Debug, Clone)]
struct Counter {
    cgroup: PathBuf,
    version: Version,
    file: PathBuf,
    at_start: Duration,
}

/// Time for which a group's threads were ready and held back, because it had used up its quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Throttled {
    /// The group's directory.
    pub cgroup: PathBuf,
    /// The time, summed over CPUs.
    pub time: Duration,
}

impl CpuThrottling {
    /// Starts counting on the machine whose `/proc` and `/sys` are in `root`.
    #[must_use]
    pub fn start(root: &Path) -> Self {
        let root = &mut Root::new(root);
        let own = root.own_directory();
        let read = |root: &mut Root, name| root.unrecorded_text(format!("{own}/{name}"));
        let cgroup = read(root, "cgroup").unwrap_or_default();
        let mountinfo = read(root, "mountinfo").unwrap_or_default();
        let (mounts, _) = mountinfo::parse(&mountinfo);
        let groups = Cgroups::new(&cgroup, &mounts).groups(root, "cpu");
        let counters = groups.into_iter().filter_map(|group| {
            let file = root.join(group.dir.join("cpu.stat"));
            let at_start = counted(&file, group.version)?;
            Some(Counter {
                cgroup: group.dir,
                version: group.version,
                file,
                at_start,
            })
        });
        Self {
            counters: counters.collect(),
        }
    }

    /// The time since then, of the group with the longest; `None` where no group counts any.
    #[must_use]
    pub fn so_far(&self) -> Option<Throttled> {
        let times = self.counters.iter().filter_map(|counter| {
            let now = counted(&counter.file, counter.version)?;
            Some(Throttled {
                cgroup: counter.cgroup.clone(),
                time: now.saturating_sub(counter.at_start),
            })
        });
        // The innermost of equals: its quota is the one to change.
        times.reduce(|longest, other| match other.time > longest.time {
            true => other,
            false => longest,
        })
    }
}

/// Absent where the group has no controller of CPU time.
fn counted(file: &Path, version: Version) -> Option<Duration> {
    let text = fs::read_to_string(file).ok()?;
    let value = |name: &str| -> Option<u64> {
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(key, _)| *key == name)?.1.trim().parse().ok()
    };
    match version {
        Version::V1 => value("throttled_time").map(Duration::from_nanos),
        Version::V2 => value("throttled_usec").map(Duration::from_micros),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::with_files;

    const V2: &[(&str, &str)] = &[
        ("proc/self/cgroup", "0::/a/b\n"),
        (
            "proc/self/mountinfo",
            "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        ),
        ("sys/fs/cgroup/cpu.stat", "usage_usec 900\n"),
        (
            "sys/fs/cgroup/a/cpu.stat",
            "usage_usec 500\nnr_periods 9\nnr_throttled 2\nthrottled_usec 1000\n",
        ),
        (
            "sys/fs/cgroup/a/b/cpu.stat",
            "usage_usec 500\nthrottled_usec 50\n",
        ),
    ];

    #[test]
    fn the_group_that_was_held_back_longest_is_named() {
        let dir = with_files(V2);
        let start = CpuThrottling::start(dir.path());
        let so_far = start.so_far().expect("two groups count");
        assert_eq!(so_far.time, Duration::ZERO);
        assert_eq!(so_far.cgroup, Path::new("/sys/fs/cgroup/a/b"));
        let parent = dir.path().join("sys/fs/cgroup/a/cpu.stat");
        fs::write(parent, "throttled_usec 3500\n").unwrap();
        let own = dir.path().join("sys/fs/cgroup/a/b/cpu.stat");
        fs::write(own, "throttled_usec 60\n").unwrap();
        assert_eq!(
            start.so_far(),
            Some(Throttled {
                cgroup: "/sys/fs/cgroup/a".into(),
                time: Duration::from_micros(2500),
            })
        );
    }

    #[test]
    fn version_1_counts_nanoseconds() {
        let dir = with_files(&[
            ("proc/self/cgroup", "4:cpu,cpuacct:/vm\n"),
            (
                "proc/self/mountinfo",
                "30 23 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n",
            ),
            ("sys/fs/cgroup/cpu/vm/cpu.stat", "throttled_time 7\n"),
        ]);
        let start = CpuThrottling::start(dir.path());
        let file = dir.path().join("sys/fs/cgroup/cpu/vm/cpu.stat");
        fs::write(&file, "nr_periods 1\nthrottled_time 1007\n").unwrap();
        let so_far = start.so_far().map(|throttled| throttled.time);
        assert_eq!(so_far, Some(Duration::from_micros(1)));
        // A counter that went backwards is another group's of the same name.
        fs::write(&file, "throttled_time 3\n").unwrap();
        let so_far = start.so_far().map(|throttled| throttled.time);
        assert_eq!(so_far, Some(Duration::ZERO));
    }

    #[test]
    fn where_nothing_is_counted_nothing_is_claimed() {
        assert_eq!(CpuThrottling::start(with_files(&[]).path()).so_far(), None);
        let dir = with_files(&V2[..3]);
        assert_eq!(CpuThrottling::start(dir.path()).so_far(), None);
    }
}
