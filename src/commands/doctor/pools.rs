//! The kernel's hugepage pools, and the mounts that give access to them by name.

use prezero_host::{Host, HugepagePool, PageSize};
use prezero_memory::ByteSize;

use super::Case;
use crate::report::doctor::Finding;

/// What is advised where no size was asked for.
const USUAL: u64 = 1 << 30;

/// One finding for each page size, or one that there is no page of any.
pub(super) fn pools(case: &Case<'_>) -> Vec<Finding> {
    const NAME: &str = "hugepages";
    let pools = &case.host.pools;
    if pools.is_empty() {
        let message = "This host's kernel offers no hugepages: ordinary memory is used";
        return vec![Finding::warning(NAME, message, "hugepages=off")];
    }
    if pools
        .iter()
        .all(|pool| pool.total == 0 && pool.overcommit == 0)
    {
        let wanted = if case.wanted == 0 { USUAL } else { case.wanted };
        let default = case
            .host
            .default_hugepage_size
            .unwrap_or(pools[0].page_size);
        // No more than the host has memory for.
        let wanted = case
            .host
            .mem_available
            .map_or(wanted, |free| wanted.min(free / 2));
        let pages = wanted.div_ceil(default.bytes());
        let kib = default.bytes() / 1024;
        let sizes: Vec<String> = pools
            .iter()
            .map(|pool| pool.page_size.to_string())
            .collect();
        return vec![Finding::warning(
            NAME,
            format!("There are no hugepages of any size ({})", sizes.join(", ")),
            format!(
                "echo {pages} | sudo tee /sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages"
            ),
        )];
    }
    pools
        .iter()
        .map(|pool| Finding::ok(NAME, describe(pool)))
        .collect()
}

fn describe(pool: &HugepagePool) -> String {
    let HugepagePool {
        page_size, total, ..
    } = pool;
    if *total == 0 && pool.overcommit == 0 {
        return format!("{page_size}: none");
    }
    let available = pool.available();
    let bytes = ByteSize(available.saturating_mul(page_size.bytes()));
    format!("{page_size}: {available} of {total} available ({bytes})")
}

/// A memfd needs none, so that none is no fault. Of several, the one that counts is named.
pub(super) fn mounts(host: &Host) -> Vec<Finding> {
    const NAME: &str = "mounts";
    if host.mounts.is_empty() {
        let message = "No hugetlbfs is mounted, and none is needed: memory is in memfds";
        return vec![Finding::ok(NAME, message)];
    }
    let mut sizes: Vec<Option<PageSize>> =
        host.mounts.iter().map(|mount| mount.page_size).collect();
    sizes.sort();
    sizes.dedup();
    sizes
        .into_iter()
        .map(|size| Finding::ok(NAME, mounts_of(host, size)))
        .collect()
}

fn mounts_of(host: &Host, size: Option<PageSize>) -> String {
    let mounts = host.mounts.iter().filter(|mount| mount.page_size == size);
    let paths: Vec<String> = mounts
        .map(|mount| {
            let read_only = if mount.read_only { " (read-only)" } else { "" };
            format!("{}{read_only}", mount.path.display())
        })
        .collect();
    let at = paths.join(", ");
    let Some(size) = size else {
        return format!("hugetlbfs with pages of unknown size: {at}");
    };
    match host.mount_for(size) {
        Some(chosen) if paths.len() > 1 => {
            format!(
                "hugetlbfs of {size} pages: {at}; the one chosen is {}",
                chosen.path.display()
            )
        }
        _ => format!("hugetlbfs of {size} pages: {at}"),
    }
}
