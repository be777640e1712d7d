//! NUMA nodes.

use crate::fields::{field, kilobytes, only};
use crate::hugepages::{NodePool, node_pools};
use crate::id_set::IdSet;
use crate::page_size::PageSize;
use crate::root::Root;

/// A NUMA node, from `/sys/devices/system/node/nodeN`
/// (`Documentation/ABI/stable/sysfs-devices-node`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// The kernel's number for the node. Numbers need not be consecutive.
    pub id: u32,
    /// The online CPUs of the node. Empty for a node of memory only, as CXL makes them.
    pub cpus: IdSet,
    /// The distance to every online node, this one too, as (node id, distance) in the order of
    /// ids. 10 is the node itself; only the order of the figures means something.
    pub distances: Vec<(u32, u32)>,
    /// The node's memory in bytes; `Some(0)` is a node without memory, `None` an unknown amount.
    ///
    /// It can be far too low: a kernel that hands memory to its allocator on demand counts only
    /// what it has handed over, so this is no reason to refuse a request.
    pub mem_total: Option<u64>,
    /// Free base pages of the node, in bytes, hugepage pools not counted. As low as `mem_total`
    /// may be; good for comparing nodes.
    pub mem_free: Option<u64>,
    /// The node's hugepage pools, by page size.
    pub pools: Vec<NodePool>,
}

impl Node {
    /// The pool of this page size.
    #[must_use]
    pub fn pool(&self, page_size: PageSize) -> Option<&NodePool> {
        self.pools.iter().find(|pool| pool.page_size == page_size)
    }

    /// The distance to the node with this id.
    #[must_use]
    pub fn distance(&self, to: u32) -> Option<u32> {
        self.distances
            .iter()
            .find(|(id, _)| *id == to)
            .map(|(_, distance)| *distance)
    }
}

const NODES: &str = "sys/devices/system/node";

/// The online nodes, or `None` where the kernel does not tell about nodes.
pub(crate) fn read_nodes(root: &mut Root) -> Option<Vec<Node>> {
    let path = format!("{NODES}/online");
    let text = root.text(&path)?;
    let online = root.understand(&path, &text, |text| {
        text.parse()
            .ok()
            .filter(|online: &IdSet| !online.is_empty())
    })?;
    Some(
        online
            .iter()
            .map(|id| read_node(root, id, &online))
            .collect(),
    )
}

/// Only known names are opened: a node's directory has an entry for each block of its memory.
fn read_node(root: &mut Root, id: u32, online: &IdSet) -> Node {
    let dir = format!("{NODES}/node{id}");
    let meminfo = format!("{dir}/meminfo");
    let (total, free) = (format!("Node {id} MemTotal"), format!("Node {id} MemFree"));
    let memory = root.reduced(&meminfo, |text| only(text, &[&total, &free]));
    let memory = memory.unwrap_or_default();
    Node {
        id,
        cpus: read_ids(root, &format!("{dir}/cpulist")).unwrap_or_default(),
        distances: read_distances(root, &format!("{dir}/distance"), online),
        mem_total: memory_field(root, &meminfo, &memory, &total),
        mem_free: memory_field(root, &meminfo, &memory, &free),
        pools: node_pools(root, &format!("{dir}/hugepages")),
    }
}

/// A file that holds a list of ids.
pub(crate) fn read_ids(root: &mut Root, path: &str) -> Option<IdSet> {
    let text = root.text(path)?;
    root.understand(path, &text, |text| text.parse().ok())
}

/// `node_read_distance` in the kernel's `drivers/base/node.c` writes one figure per online node.
fn read_distances(root: &mut Root, path: &str, online: &IdSet) -> Vec<(u32, u32)> {
    let Some(text) = root.text(path) else {
        return Vec::new();
    };
    let distances = root.understand(path, &text, |text| {
        let figures: Vec<u32> = text
            .split_whitespace()
            .map(|word| word.parse().ok())
            .collect::<Option<_>>()?;
        (figures.len() == online.len()).then(|| online.iter().zip(figures).collect())
    });
    distances.unwrap_or_default()
}

fn memory_field(root: &mut Root, path: &str, text: &str, name: &str) -> Option<u64> {
    let value = field(text, name)?;
    root.understand(path, value, kilobytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::with_files;

    #[test]
    fn distances_follow_the_online_nodes_and_not_their_position() {
        let dir = with_files(&[
            ("sys/devices/system/node/online", "0,2-3\n"),
            ("sys/devices/system/node/node2/cpulist", "4-7\n"),
            ("sys/devices/system/node/node2/distance", "21 10 31\n"),
            (
                "sys/devices/system/node/node2/meminfo",
                "Node 2 MemTotal:       1024 kB\n",
            ),
        ]);
        let mut root = Root::new(dir.path());
        let nodes = read_nodes(&mut root).unwrap();
        let node = &nodes[1];
        assert_eq!(
            nodes.iter().map(|node| node.id).collect::<Vec<_>>(),
            [0, 2, 3]
        );
        assert_eq!(node.distances, [(0, 21), (2, 10), (3, 31)]);
        assert_eq!((node.distance(3), node.distance(1)), (Some(31), None));
        assert_eq!(node.cpus.to_string(), "4-7");
        assert_eq!(node.mem_total, Some(1 << 20));
        assert_eq!(root.problems, []);
    }

    #[test]
    fn a_row_of_distances_of_the_wrong_length_is_a_problem() {
        let dir = with_files(&[
            ("sys/devices/system/node/online", "0-1\n"),
            ("sys/devices/system/node/node0/distance", "10\n"),
            ("sys/devices/system/node/node1/distance", "21 ten\n"),
        ]);
        let mut root = Root::new(dir.path());
        assert!(
            read_nodes(&mut root)
                .unwrap()
                .iter()
                .all(|node| node.distances.is_empty())
        );
        assert_eq!(root.problems.len(), 2);
    }

    #[test]
    fn a_node_may_have_no_cpus_and_no_memory() {
        let dir = with_files(&[
            ("sys/devices/system/node/online", "0\n"),
            ("sys/devices/system/node/node0/cpulist", "\n"),
            (
                "sys/devices/system/node/node0/meminfo",
                "Node 0 MemTotal:          0 kB\n",
            ),
        ]);
        let mut root = Root::new(dir.path());
        let nodes = read_nodes(&mut root).unwrap();
        assert!(nodes[0].cpus.is_empty());
        assert_eq!(nodes[0].mem_total, Some(0));
        assert_eq!(root.problems, []);
    }
}
