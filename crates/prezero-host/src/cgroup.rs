//! The CPU time limit that control groups set on this process.

use std::path::{Component, Path, PathBuf};

use crate::mountinfo::{Mount, unescape};
use crate::root::Root;

/// A limit on CPU time: `quota_us` in every `period_us`, both in microseconds.
///
/// It is the tightest among this process's cgroup and its parents: the kernel applies all of them.
/// Parents outside this process's cgroup namespace, or above what is mounted, cannot be seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuQuota {
    /// CPU time per period, summed over all CPUs.
    pub quota_us: u64,
    /// The length of a period.
    pub period_us: u64,
    /// The directory of the cgroup that sets the limit.
    pub cgroup: PathBuf,
}

impl CpuQuota {
    /// How many CPUs can be kept busy, rounded up, at least 1.
    #[must_use]
    pub fn cpus(&self) -> u64 {
        self.quota_us.div_ceil(self.period_us.max(1)).max(1)
    }

    fn is_tighter_than(&self, other: &Self) -> bool {
        let product = |quota, period| u128::from(quota) * u128::from(period);
        product(self.quota_us, other.period_us) < product(other.quota_us, self.period_us)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// The tightest limit, from a `/proc/self/cgroup` (cgroups(7)) and the mounts. Where both versions
/// are in use, as under systemd's hybrid mode, either may set one.
pub(crate) fn cpu_quota(root: &mut Root, cgroups: &str, mounts: &[Mount<'_>]) -> Option<CpuQuota> {
    let mut tightest: Option<CpuQuota> = None;
    for (version, group) in cgroups.lines().filter_map(membership) {
        for mount in mounts.iter().filter(|mount| is_hierarchy(mount, version)) {
            let Some(below) = below_mount(Path::new(group), &unescape(mount.root)) else {
                continue;
            };
            let point = unescape(mount.point);
            for group in below.ancestors() {
                // Collecting drops the slash that joining an empty path leaves at the end.
                let group: PathBuf = point.join(group).components().collect();
                let found = quota_of(root, version, &group);
                if let Some(quota) = found
                    && tightest
                        .as_ref()
                        .is_none_or(|tightest| quota.is_tighter_than(tightest))
                {
                    tightest = Some(quota);
                }
            }
        }
    }
    tightest
}

/// A line `4:cpu,cpuacct:/group` (version 1) or `0::/group` (version 2).
fn membership(line: &str) -> Option<(Version, &str)> {
    let mut fields = line.splitn(3, ':');
    let (id, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
    if id == "0" && controllers.is_empty() {
        Some((Version::V2, group))
    } else if controllers.split(',').any(|controller| controller == "cpu") {
        Some((Version::V1, group))
    } else {
        None
    }
}

fn is_hierarchy(mount: &Mount<'_>, version: Version) -> bool {
    match version {
        Version::V1 => mount.fs_type == "cgroup" && mount.has_super_option("cpu"),
        Version::V2 => mount.fs_type == "cgroup2",
    }
}

/// The group's path below the mount point, or `None` for a group that the mount does not show: a
/// container may have only its own group mounted, and a group outside the cgroup namespace starts
/// with `/..` (cgroup_namespaces(7)).
fn below_mount(group: &Path, mount_root: &Path) -> Option<PathBuf> {
    let below = group.strip_prefix(mount_root).ok()?;
    let plain = below
        .components()
        .all(|component| matches!(component, Component::Normal(_)));
    plain.then(|| below.to_owned())
}

fn quota_of(root: &mut Root, version: Version, cgroup: &Path) -> Option<CpuQuota> {
    let (quota, period_us) = match version {
        Version::V1 => {
            let quota: i64 = read(root, &cgroup.join("cpu.cfs_quota_us"), |text| {
                text.trim().parse().ok()
            })?;
            let period = read(root, &cgroup.join("cpu.cfs_period_us"), cpu_period)?;
            // -1 stands for "no limit".
            (u64::try_from(quota).ok(), period)
        }
        Version::V2 => read(root, &cgroup.join("cpu.max"), cpu_max)?,
    };
    Some(CpuQuota {
        quota_us: quota?,
        period_us,
        cgroup: cgroup.to_owned(),
    })
}

fn read<T>(root: &mut Root, path: &Path, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let text = root.text(path)?;
    root.understand(path, &text, parse)
}

/// The quota and the period of `50000 100000`, or no quota for `max 100000`.
fn cpu_max(text: &str) -> Option<(Option<u64>, u64)> {
    let (quota, period) = text.trim().split_once(' ')?;
    let quota = match quota {
        "max" => None,
        quota => Some(quota.parse().ok()?),
    };
    Some((quota, cpu_period(period)?))
}

fn cpu_period(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|period| *period > 0)
}

#[cfg(test)]
mod tests;
