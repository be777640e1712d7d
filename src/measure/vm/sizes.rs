//! On which nodes the memory of all machines is, and what fewest and all workers are there.
//!
//! Each node with memory needs a worker of its own, so that one worker, which the baseline is, takes memory
//! on one node. Where a node has enough for the largest machine, all memory is there, that of other
//! monitors too: then nothing but the way differs between two rows.

use prezero_host::{Host, PageSize};
use prezero_memory::{Hugepages, MemorySpec, NodeChoice, Plan, PlanError, Prealloc, Request, plan};

/// The pages of all machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pages {
    pub(crate) page: PageSize,
    /// The node they are on, where the host has several and one has enough.
    pub(crate) node: Option<u32>,
}

impl Pages {
    /// A machine of this many bytes, populated.
    pub(super) fn request(self, bytes: u64) -> Request {
        let zone = MemorySpec {
            hugepages: Hugepages::On,
            hugepage_size: Some(self.page),
            nodes: self.node.map(NodeChoice::bind),
            ..MemorySpec::new(bytes)
        };
        Request {
            zones: vec![zone],
            prealloc: Prealloc::Eager,
            ..Request::default()
        }
    }

    fn plan(self, host: &Host, bytes: u64, threads: Option<usize>) -> Result<Plan, PlanError> {
        let request = Request {
            threads,
            ..self.request(bytes)
        };
        plan(host, &request)
    }
}

/// Machines of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) bytes: u64,
    /// The fewest workers that can make it: one for each node with memory of it.
    pub(crate) least: usize,
    /// All of them.
    pub(crate) all: usize,
}

/// What is known of all machines before the first is made.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) pages: Pages,
    /// In the order given.
    pub(crate) sizes: Vec<Size>,
    /// That of the largest, with all workers.
    pub(crate) plan: Plan,
}

/// Places machines of these sizes. That there is not enough for the largest is an error.
pub(crate) fn place(
    host: &Host,
    sizes: &[u64],
    page: PageSize,
    threads: Option<usize>,
) -> Result<Placed, PlanError> {
    let largest = sizes.iter().copied().max().unwrap_or_default();
    let node = node_for(host, largest, page);
    let pages = Pages { page, node };
    let of_size = |&bytes: &u64| {
        Ok(Size {
            bytes,
            least: pages.plan(host, bytes, Some(1))?.workers().len(),
            all: pages.plan(host, bytes, threads)?.workers().len(),
        })
    };
    Ok(Placed {
        pages,
        plan: pages.plan(host, largest, threads)?,
        sizes: sizes
            .iter()
            .map(of_size)
            .collect::<Result<_, PlanError>>()?,
    })
}

/// The node with the most free pages of those that have enough, and CPUs of their own.
fn node_for(host: &Host, bytes: u64, page: PageSize) -> Option<u32> {
    if host.nodes.len() < 2 {
        return None;
    }
    let fits = |id: u32| {
        let on_it = Pages {
            page,
            node: Some(id),
        };
        let planned = on_it.plan(host, bytes, Some(1)).ok()?;
        let own = planned.workers().iter().all(|worker| {
            let cpus = host
                .nodes
                .iter()
                .find(|node| node.id == id)
                .map(|node| &node.cpus);
            worker
                .cpu()
                .zip(cpus)
                .is_some_and(|(cpu, cpus)| cpus.contains(cpu))
        });
        own.then_some(id)
    };
    let free = |id: &u32| {
        let node = host.nodes.iter().find(|node| node.id == *id);
        let pool = node.and_then(|node| node.pools.iter().find(|pool| pool.page_size == page));
        // Of two that have as many, the first.
        (pool.map_or(0, |pool| pool.free), std::cmp::Reverse(*id))
    };
    let nodes = host.nodes.iter().map(|node| node.id);
    nodes.filter_map(fits).max_by_key(free)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const GIB: u64 = 1 << 30;

    fn placed(host: &str, sizes: &[u64], threads: Option<usize>) -> Placed {
        let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/hosts");
        let host = Host::read(&hosts.join(host));
        place(&host, sizes, PageSize::HUGE_2M, threads).expect("enough")
    }

    fn size(bytes: u64, least: usize, all: usize) -> Size {
        Size { bytes, least, all }
    }

    #[test]
    fn where_one_node_has_enough_for_the_largest_all_are_there_and_one_worker_is_one() {
        // Of its 1290 pages and 758 the first node's are enough.
        let two = placed("two-sockets-uneven", &[GIB, 2 * GIB], None);
        assert_eq!(two.pages.node, Some(0));
        let cpus = two.plan.workers().len();
        assert_eq!(two.sizes, [size(GIB, 1, cpus), size(2 * GIB, 1, cpus)]);
        assert!(two.plan.workers().iter().all(|worker| worker.node() == 0));
        let eight = placed("eight-nodes-16t", &[1550 * GIB], Some(8));
        assert_eq!(
            (eight.pages.node, &*eight.sizes),
            (Some(0), &[size(1550 * GIB, 1, 8)][..])
        );
    }

    #[test]
    fn where_none_has_enough_each_node_has_a_worker_and_rows_say_so() {
        let two = placed("two-sockets-uneven", &[3 * GIB], Some(1));
        assert_eq!(
            (two.pages.node, &*two.sizes),
            (None, &[size(3 * GIB, 2, 2)][..])
        );
        let more = placed("two-sockets-uneven", &[GIB, 3 * GIB], Some(4));
        assert_eq!(
            (more.pages.node, more.sizes[1]),
            (None, size(3 * GIB, 2, 4))
        );
    }

    #[test]
    fn a_host_of_one_node_needs_no_choice() {
        let one = placed("one-node", &[GIB], Some(1));
        assert_eq!(
            (one.pages.node, &*one.sizes),
            (None, &[size(GIB, 1, 1)][..])
        );
    }

    #[test]
    fn a_node_without_cpus_is_not_chosen() {
        let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/hosts");
        let host = Host::read(&hosts.join("memory-only-node"));
        let without = host.nodes.iter().filter(|node| node.cpus.is_empty());
        let without: Vec<u32> = without.map(|node| node.id).collect();
        assert!(!without.is_empty());
        let node = node_for(&host, 2 << 20, PageSize::HUGE_2M);
        assert!(node.is_none_or(|node| !without.contains(&node)), "{node:?}");
    }
}
