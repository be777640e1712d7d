//! Limits that cgroups and setrlimit(2) set on this process, next to what is free.

use std::path::Path;

use prezero_host::{Host, LimitKind};
use prezero_memory::ByteSize;

use super::Case;
use crate::report::doctor::Finding;

const NAME: &str = "limits";

/// The finite limits of this process's cgroups, in the order in which the kernel meets them.
pub(super) fn cgroups(case: &Case<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for limit in &case.host.hugetlb_limits {
        let what = match limit.kind {
            LimitKind::Usage => format!("{} hugepages in use", limit.page_size),
            LimitKind::Reservation => format!("reserved {} hugepages", limit.page_size),
        };
        let pool = case.host.pool(limit.page_size);
        let free = pool.map_or(0, |pool| {
            pool.available().saturating_mul(limit.page_size.bytes())
        });
        let wanted = case.bytes_of(Some(limit.page_size.bytes()));
        found.push(judge(
            &what,
            &limit.file,
            limit.limit,
            limit.usage,
            free,
            wanted,
        ));
    }
    for limit in &case.host.memory_limits {
        let hugetlb = case.host.pools.iter().map(|pool| pool.page_size.bytes());
        let (mut free, mut wanted) = (0_u64, case.bytes_of(None));
        if limit.counts_hugetlb {
            for pool in &case.host.pools {
                let bytes = pool.available().saturating_mul(pool.page_size.bytes());
                free = free.max(bytes);
            }
            wanted += hugetlb.map(|size| case.bytes_of(Some(size))).sum::<u64>();
        }
        found.push(judge(
            "memory",
            &limit.file,
            limit.limit,
            // Page cache is taken back before anything is refused.
            limit.usage.saturating_sub(limit.page_cache),
            free,
            wanted,
        ));
    }
    if found.is_empty() {
        found.push(Finding::ok(
            NAME,
            "No cgroup limits hugepages or memory, as far as can be seen here",
        ));
    }
    found
}

/// A limit is worth a warning where it, and not the pool, decides how large a guest can be.
fn judge(what: &str, file: &Path, limit: u64, usage: u64, free: u64, wanted: u64) -> Finding {
    let (path, remaining) = (file.display(), limit.saturating_sub(usage));
    let message = format!(
        "{what}: {path} is {}, {} used, {} left",
        ByteSize(limit),
        ByteSize(usage),
        ByteSize(remaining)
    );
    let more = free.max(wanted);
    if more <= remaining {
        return Finding::ok(NAME, message);
    }
    let (why, more) = match wanted > remaining {
        true => ("are needed", wanted),
        false => ("are free", free),
    };
    let raised = usage.saturating_add(more);
    Finding::warning(
        NAME,
        format!("{message}; {} {why}", ByteSize(more)),
        format!("echo {raised} | sudo tee {path}"),
    )
}

/// The limits of setrlimit(2) that a large guest meets.
pub(super) fn process(host: &Host) -> Vec<Finding> {
    const NAME: &str = "ulimit";
    let limits = [
        (host.limits.file_size, "Files, memfds too, may have", "-f"),
        (
            host.limits.address_space,
            "The address space may have",
            "-v",
        ),
    ];
    let mut found: Vec<Finding> = Vec::new();
    for (limit, what, option) in limits {
        found.extend(limit.map(|limit| {
            let message = format!("{what} {} at most (ulimit {option})", ByteSize(limit));
            Finding::warning(NAME, message, format!("ulimit {option} unlimited"))
        }));
    }
    if found.is_empty() {
        found.push(Finding::ok(
            NAME,
            "File size and address space are not limited",
        ));
    }
    found
}
