//! Hugepage pools: of the whole host and of one NUMA node.

use crate::fields::field;
use crate::page_size::PageSize;
use crate::root::Root;

/// The hugepages of one size on the whole host, in pages, from `/sys/kernel/mm/hugepages`
/// (`Documentation/admin-guide/mm/hugetlbpage.rst`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HugepagePool {
    /// The size of the pages.
    pub page_size: PageSize,
    /// Pages that exist, free or not, the surplus ones too.
    pub total: u64,
    /// Pages that nobody uses yet; those promised to a mapping still count as free.
    pub free: u64,
    /// Free pages promised to mappings that have not touched them yet.
    pub reserved: u64,
    /// Pages above the size the pool is set to; they go back to the kernel when they are freed.
    pub surplus: u64,
    /// How many surplus pages the kernel may add when the pool runs short.
    pub overcommit: u64,
}

impl HugepagePool {
    /// How many pages a new mapping can still reserve: `free - reserved + (overcommit - surplus)`.
    ///
    /// `free` alone is too high, because a mapping's reservation leaves its pages free until they are
    /// touched. Overcommit pages are added when the mapping reserves them, and that fails where the
    /// kernel finds no contiguous memory, so this is an upper bound where `overcommit` is not zero.
    /// The figures are read one after the other and may not belong together: nothing underflows.
    #[must_use]
    pub fn available(&self) -> u64 {
        let unreserved = self.free.saturating_sub(self.reserved);
        unreserved.saturating_add(self.overcommit.saturating_sub(self.surplus))
    }
}

/// The hugepages of one size on one NUMA node, in pages. How many of them are reserved is not
/// known: the kernel counts reservations for the whole host only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePool {
    /// The size of the pages.
    pub page_size: PageSize,
    /// Pages that exist on the node, free or not, the surplus ones too.
    pub total: u64,
    /// Pages of the node that nobody uses yet, reserved ones among them.
    pub free: u64,
    /// Pages of the node above what the pool is set to.
    pub surplus: u64,
}

impl From<&HugepagePool> for NodePool {
    fn from(pool: &HugepagePool) -> Self {
        let HugepagePool {
            page_size,
            total,
            free,
            surplus,
            ..
        } = *pool;
        Self {
            page_size,
            total,
            free,
            surplus,
        }
    }
}

/// The host's pools, by page size. Without `/sys`, `/proc` still tells about the default size.
pub(crate) fn host_pools(root: &mut Root, meminfo: &str) -> Vec<HugepagePool> {
    const HUGEPAGES: &str = "sys/kernel/mm/hugepages";
    if !root.is_dir(HUGEPAGES) {
        return default_pool(root, meminfo).into_iter().collect();
    }
    let mut pools = Vec::new();
    for (page_size, dir) in sizes(root, HUGEPAGES) {
        pools.extend(host_pool(root, page_size, &dir));
    }
    pools
}

fn host_pool(root: &mut Root, page_size: PageSize, dir: &str) -> Option<HugepagePool> {
    Some(HugepagePool {
        page_size,
        total: root.number(&format!("{dir}/nr_hugepages"))?,
        free: root.number(&format!("{dir}/free_hugepages"))?,
        reserved: root.number_or(&format!("{dir}/resv_hugepages"), 0)?,
        surplus: root.number_or(&format!("{dir}/surplus_hugepages"), 0)?,
        overcommit: root.number_or(&format!("{dir}/nr_overcommit_hugepages"), 0)?,
    })
}

fn default_pool(root: &mut Root, meminfo: &str) -> Option<HugepagePool> {
    let page_size = default_size(root, meminfo)?;
    let mut count = |name| {
        let value = field(meminfo, name)?;
        root.understand("proc/meminfo", value, |value| value.parse().ok())
    };
    let (total, free) = (count("HugePages_Total")?, count("HugePages_Free")?);
    let (reserved, surplus) = (count("HugePages_Rsvd")?, count("HugePages_Surp")?);
    let overcommit = root.number_or("proc/sys/vm/nr_overcommit_hugepages", 0)?;
    Some(HugepagePool {
        page_size,
        total,
        free,
        reserved,
        surplus,
        overcommit,
    })
}

/// The size of hugepages where none is named.
pub(crate) fn default_size(root: &mut Root, meminfo: &str) -> Option<PageSize> {
    let value = field(meminfo, "Hugepagesize")?;
    root.understand("proc/meminfo", value, |value| {
        crate::fields::kilobytes(value).and_then(PageSize::new)
    })
}

/// A node's pools, by page size, from its `hugepages` directory.
pub(crate) fn node_pools(root: &mut Root, hugepages: &str) -> Vec<NodePool> {
    let mut pools = Vec::new();
    for (page_size, dir) in sizes(root, hugepages) {
        pools.extend(node_pool(root, page_size, &dir));
    }
    pools
}

fn node_pool(root: &mut Root, page_size: PageSize, dir: &str) -> Option<NodePool> {
    Some(NodePool {
        page_size,
        total: root.number(&format!("{dir}/nr_hugepages"))?,
        free: root.number(&format!("{dir}/free_hugepages"))?,
        surplus: root.number_or(&format!("{dir}/surplus_hugepages"), 0)?,
    })
}

/// The sub-directories called `hugepages-2048kB` and so on, by size.
fn sizes(root: &mut Root, hugepages: &str) -> Vec<(PageSize, String)> {
    let mut sizes = Vec::new();
    for name in root.names(hugepages) {
        let dir = format!("{hugepages}/{name}");
        if let Some(size) = root.understand(&dir, &name, size_in_name) {
            sizes.push((size, dir));
        }
    }
    sizes.sort();
    sizes
}

fn size_in_name(name: &str) -> Option<PageSize> {
    let kilobytes: u64 = name
        .strip_prefix("hugepages-")?
        .strip_suffix("kB")?
        .parse()
        .ok()?;
    PageSize::new(kilobytes.checked_mul(1024)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::with_files;
    use proptest::prelude::*;

    const POOL: HugepagePool = HugepagePool {
        page_size: PageSize::HUGE_2M,
        total: 100,
        free: 60,
        reserved: 20,
        surplus: 5,
        overcommit: 8,
    };

    #[test]
    fn available_leaves_out_what_is_reserved_and_adds_what_may_grow() {
        assert_eq!(POOL.available(), 43);
    }

    #[test]
    fn available_never_underflows() {
        assert_eq!(
            HugepagePool {
                reserved: 61,
                ..POOL
            }
            .available(),
            3
        );
        assert_eq!(
            HugepagePool {
                overcommit: 4,
                ..POOL
            }
            .available(),
            40
        );
        assert_eq!(
            HugepagePool {
                overcommit: u64::MAX,
                ..POOL
            }
            .available(),
            u64::MAX
        );
    }

    #[test]
    fn pools_are_sorted_by_size_and_not_by_name() {
        let dir = with_files(&[
            (
                "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages",
                "1\n",
            ),
            (
                "sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages",
                "1\n",
            ),
            (
                "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
                "7\n",
            ),
            (
                "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
                "6\n",
            ),
            (
                "sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages",
                "2\n",
            ),
        ]);
        let mut root = Root::new(dir.path());
        let pools = host_pools(&mut root, "");
        let [small, large] = &pools[..] else {
            panic!("{pools:?}")
        };
        assert_eq!(
            (small.page_size, small.total, small.free, small.reserved),
            (PageSize::HUGE_2M, 7, 6, 2)
        );
        assert_eq!((large.page_size, large.available()), (PageSize::HUGE_1G, 1));
        assert_eq!(root.problems, []);
    }

    #[test]
    fn a_pool_with_a_figure_that_is_not_understood_is_left_out() {
        let dir = with_files(&[
            (
                "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
                "7\n",
            ),
            (
                "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
                "7\n",
            ),
            (
                "sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages",
                "-1\n",
            ),
            ("sys/kernel/mm/hugepages/hugepages-3kB/nr_hugepages", "7\n"),
        ]);
        let mut root = Root::new(dir.path());
        assert_eq!(host_pools(&mut root, ""), []);
        assert_eq!(root.problems.len(), 2);
    }

    #[test]
    fn meminfo_stands_in_for_a_missing_sys() {
        let dir = with_files(&[("proc/sys/vm/nr_overcommit_hugepages", "8\n")]);
        let mut root = Root::new(dir.path());
        let meminfo = "HugePages_Total: 100\nHugePages_Free: 60\nHugePages_Rsvd: 20\nHugePages_Surp: 5\nHugepagesize: 2048 kB\n";
        assert_eq!(host_pools(&mut root, meminfo), [POOL]);
        assert_eq!(
            host_pools(&mut root, "MemTotal: 1 kB\n"),
            [],
            "a kernel without hugetlb"
        );
        assert_eq!(root.problems, []);
    }

    proptest! {
        #[test]
        fn any_meminfo_is_read(size in "\\PC{0,20}|[0-9]{1,22} kB", total in "\\PC{0,20}|[0-9]{1,22}") {
            let dir = with_files(&[]);
            let mut root = Root::new(dir.path());
            let meminfo = format!("Hugepagesize: {size}\nHugePages_Total: {total}\nHugePages_Free: {total}\n");
            let _ = host_pools(&mut root, &meminfo);
        }

        #[test]
        fn any_name_is_a_size_or_none(name in "\\PC*|hugepages-[0-9]{0,22}kB") {
            let _ = size_in_name(&name);
        }
    }
}
