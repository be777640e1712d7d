//! The CPU time limit that control groups set on this process.

use std::path::{Path, PathBuf};

use super::{Cgroups, Version, read};
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

/// The tightest limit. Where both versions are in use, either may set one.
pub(crate) fn cpu_quota(root: &mut Root, cgroups: &Cgroups<'_>) -> Option<CpuQuota> {
    let mut tightest: Option<CpuQuota> = None;
    for group in cgroups.groups(root, "cpu") {
        let found = quota_of(root, group.version, &group.dir);
        if let Some(quota) = found
            && tightest
                .as_ref()
                .is_none_or(|tightest| quota.is_tighter_than(tightest))
        {
            tightest = Some(quota);
        }
    }
    tightest
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
