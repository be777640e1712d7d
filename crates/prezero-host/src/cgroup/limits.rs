//! The limits that control groups set on this process's hugepages and on its memory.

use std::path::PathBuf;

use super::{Cgroups, Group, Version, read};
use crate::hugepages::HugepagePool;
use crate::page_size::PageSize;
use crate::root::Root;

/// What a hugetlb limit counts (`Documentation/admin-guide/cgroup-v1/hugetlb.rst`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitKind {
    /// Pages when they are faulted in. Above it the fault fails, after the mapping was granted: a
    /// store is answered with SIGBUS, `MADV_POPULATE_WRITE` with EFAULT.
    Usage,
    /// Pages when a mapping reserves them (Linux 5.7). Above it `mmap` fails with ENOMEM.
    Reservation,
}

/// A limit on hugepages of one size, set by this process's cgroup or by one of its parents.
///
/// The kernel applies all of them. Parents outside this process's cgroup namespace, or above what is
/// mounted, cannot be seen. Pages that are in a file already are charged to whoever faulted them in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HugetlbLimit {
    /// The size of the pages.
    pub page_size: PageSize,
    /// What is counted.
    pub kind: LimitKind,
    /// The file that holds the limit, on the machine described: raising it means writing there.
    pub file: PathBuf,
    /// The limit in bytes.
    pub limit: u64,
    /// What the cgroup and its children have of it, in bytes.
    pub usage: u64,
}

impl HugetlbLimit {
    /// What is left of the limit, in bytes. It may be less than a page.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.limit.saturating_sub(self.usage)
    }
}

/// A limit on memory, set by this process's cgroup or by one of its parents: `memory.max` of version
/// 2, `memory.limit_in_bytes` of version 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryLimit {
    /// The file that holds the limit, on the machine described.
    pub file: PathBuf,
    /// The limit in bytes.
    pub limit: u64,
    /// What the cgroup and its children have of it, in bytes, page cache included.
    pub usage: u64,
    /// How much of the usage is page cache, in bytes: the kernel takes it back before it refuses.
    pub page_cache: u64,
    /// Whether hugetlb pages count too: the cgroup2 mount option `memory_hugetlb_accounting` (Linux
    /// 6.6). Otherwise the limit is no matter for hugepages.
    pub counts_hugetlb: bool,
}

impl MemoryLimit {
    /// What is left of the limit, in bytes, once page cache has been taken back.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.limit
            .saturating_sub(self.usage.saturating_sub(self.page_cache))
    }
}

/// The finite limits on pages of the pools' sizes, nearest group first.
pub(crate) fn hugetlb_limits(
    root: &mut Root,
    cgroups: &Cgroups<'_>,
    pools: &[HugepagePool],
) -> Vec<HugetlbLimit> {
    let mut limits = Vec::new();
    for group in cgroups.groups(root, "hugetlb") {
        for page_size in pools.iter().map(|pool| pool.page_size) {
            for (kind, part) in [(LimitKind::Usage, ""), (LimitKind::Reservation, "rsvd.")] {
                let stem = format!("hugetlb.{}.{part}", size_in_names(page_size));
                let found = finite_limit(root, &group, &stem);
                limits.extend(found.map(|(file, limit, usage)| HugetlbLimit {
                    page_size,
                    kind,
                    file,
                    limit,
                    usage,
                }));
            }
        }
    }
    limits
}

/// The finite limits on memory, nearest group first.
pub(crate) fn memory_limits(root: &mut Root, cgroups: &Cgroups<'_>) -> Vec<MemoryLimit> {
    let mut limits = Vec::new();
    for group in cgroups.groups(root, "memory") {
        let Some((file, limit, usage)) = finite_limit(root, &group, "memory.") else {
            continue;
        };
        let stat = group.dir.join("memory.stat");
        limits.push(MemoryLimit {
            file,
            limit,
            usage,
            page_cache: read(root, &stat, page_cache).unwrap_or(0).min(usage),
            counts_hugetlb: group.counts_hugetlb,
        });
    }
    limits
}

/// The limit file whose name starts with `stem`, its limit and its usage, both in bytes.
fn finite_limit(root: &mut Root, group: &Group, stem: &str) -> Option<(PathBuf, u64, u64)> {
    let (limit, usage) = match group.version {
        Version::V1 => ("limit_in_bytes", "usage_in_bytes"),
        Version::V2 => ("max", "current"),
    };
    let file = group.dir.join(format!("{stem}{limit}"));
    let limit = read(root, &file, limit_in_bytes)??;
    let usage = group.dir.join(format!("{stem}{usage}"));
    let usage = read(root, &usage, |text| text.trim().parse().ok())?;
    Some((file, limit, usage))
}

/// The file pages in `memory.stat`, with those of the children: version 1 names their sum `total_…`,
/// version 2 counts them always.
fn page_cache(stat: &str) -> Option<u64> {
    let field = |name: &str| {
        let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
        let (_, value) = lines.find(|(found, _)| *found == name)?;
        value.trim().parse::<u64>().ok()
    };
    let of = |name: &str| field(&format!("total_{name}")).or_else(|| field(name));
    of("inactive_file")?.checked_add(of("active_file")?)
}

/// A limit, or `Some(None)` for none: `max` in version 2; in version 1 the largest multiple of the
/// page size that fits into an `i64`, which depends on the architecture's base page.
fn limit_in_bytes(text: &str) -> Option<Option<u64>> {
    const NO_LIMIT: u64 = 1 << 62;
    match text.trim() {
        "max" => Some(None),
        limit => {
            let limit = limit.parse().ok()?;
            Some((limit < NO_LIMIT).then_some(limit))
        }
    }
}

/// `64KB`, `2MB`, `16GB`: `mem_fmt` in the kernel's `mm/hugetlb_cgroup.c`.
pub(super) fn size_in_names(page_size: PageSize) -> String {
    let bytes = page_size.bytes();
    match page_size.shift() {
        ..20 => format!("{}KB", bytes >> 10),
        20..30 => format!("{}MB", bytes >> 20),
        _ => format!("{}GB", bytes >> 30),
    }
}

#[cfg(test)]
mod tests;
