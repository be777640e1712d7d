//! How many threads populate which node, and on which CPUs.

use prezero_host::{Host, IdSet, Node};

use super::apportion::apportion;

/// One populating thread: the node whose memory it works on and the CPU it is pinned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerPlan {
    pub(crate) node: u32,
    pub(crate) cpu: Option<u32>,
    pub(crate) remote: bool,
}

impl WorkerPlan {
    /// A thread for a node's memory, pinned to `cpu` if one is given.
    #[must_use]
    pub fn new(node: u32, cpu: Option<u32>) -> Self {
        Self {
            node,
            cpu,
            remote: false,
        }
    }

    /// The node whose memory the thread works on.
    #[must_use]
    pub fn node(&self) -> u32 {
        self.node
    }

    /// The CPU it is pinned to, or `None` where the host does not say which CPUs a node has.
    #[must_use]
    pub fn cpu(&self) -> Option<u32> {
        self.cpu
    }

    /// Whether the CPU is another node's, because this one has none that the process may use.
    #[must_use]
    pub fn remote(&self) -> bool {
        self.remote
    }
}

/// The work of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeWork {
    /// The node.
    pub node: u32,
    /// Bytes to populate.
    pub bytes: u64,
    /// Pages, or other units that are worth a thread: more threads than these would idle.
    pub pages: u64,
}

/// Plans the threads that populate `work`. Without `threads` every usable CPU of every node with work gets one, bounded
/// by the cgroup CPU quota; isolated CPUs are left alone unless `cpus` names them or the process may run
/// on no others. With it, `threads` in all are shared out in proportion to bytes, at
/// least one per node. No node gets more threads than pages. [`crate::plan()`] does this for the
/// memory it plans; a monitor with mappings of its own calls it for [`crate::populate`].
#[must_use]
pub fn plan_workers(
    host: &Host,
    work: &[NodeWork],
    threads: Option<usize>,
    cpus: Option<&IdSet>,
) -> Vec<WorkerPlan> {
    // Isolated CPUs were taken from the scheduler for somebody's latency: a mask that has them by
    // accident is no leave to use them.
    let cpus = match cpus {
        Some(named) => host.allowed_cpus.intersection(named),
        None => host.unasked_cpus(),
    };
    let usable: Vec<NodeCpus> = work
        .iter()
        .map(|w| node_cpus(host, w.node, &cpus))
        .collect();
    let every: Vec<u64> = usable
        .iter()
        .map(|node| node.cpus.len().max(1) as u64)
        .collect();
    let quota = host.cpu_quota.as_ref().map(|quota| quota.cpus());
    let counts = match (threads, quota) {
        (Some(threads), _) => share_threads(threads as u64, work),
        (None, Some(quota)) if quota < every.iter().sum() => {
            let shares = share_threads(quota, work);
            shares
                .into_iter()
                .zip(&every)
                .map(|(share, &cpus)| share.min(cpus))
                .collect()
        }
        (None, _) => every,
    };
    let most = rayon::max_num_threads() as u64;
    let mut plan = Vec::new();
    for ((work, node), count) in work.iter().zip(&usable).zip(counts) {
        for n in 0..count.min(work.pages).min(most).max(1) {
            let cpu = match node.cpus.len() as u64 {
                0 => None,
                len => usize::try_from(n % len)
                    .ok()
                    .and_then(|n| node.cpus.get(n).copied()),
            };
            plan.push(WorkerPlan {
                node: work.node,
                cpu: cpu.filter(|_| host.topology_known),
                remote: node.remote,
            });
        }
    }
    plan
}

/// At least one thread per node, the rest in proportion to bytes.
fn share_threads(threads: u64, work: &[NodeWork]) -> Vec<u64> {
    let weights: Vec<u64> = work.iter().map(|w| w.bytes).collect();
    let rest = threads.saturating_sub(work.len() as u64);
    apportion(rest, &weights)
        .into_iter()
        .map(|share| share + 1)
        .collect()
}

struct NodeCpus {
    cpus: Vec<u32>,
    remote: bool,
}

/// The CPUs that may work for `node`: its own that the process may use, or else the nearest node's.
fn node_cpus(host: &Host, node: u32, cpus: &IdSet) -> NodeCpus {
    let usable = |node: &Node| -> Vec<u32> { node.cpus.intersection(cpus).iter().collect() };
    let own = host.nodes.iter().find(|candidate| candidate.id == node);
    let own_cpus = own.map(&usable).unwrap_or_default();
    if !own_cpus.is_empty() {
        return NodeCpus {
            cpus: own_cpus,
            remote: false,
        };
    }
    let distance = |other: u32| {
        let distances = own.map(|own| own.distances.as_slice()).unwrap_or_default();
        let known = distances.iter().find(|(id, _)| *id == other);
        known.map_or(u32::MAX, |(_, distance)| *distance)
    };
    let nearest = host
        .nodes
        .iter()
        .filter(|other| !usable(other).is_empty())
        .min_by_key(|other| (distance(other.id), other.id));
    NodeCpus {
        cpus: nearest.map(&usable).unwrap_or_default(),
        remote: nearest.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node's id, CPUs and distances.
    type NodeFacts<'a> = (u32, &'a str, &'a [(u32, u32)]);

    fn host(nodes: &[NodeFacts<'_>], allowed: &str) -> Host {
        Host {
            topology_known: true,
            allowed_cpus: allowed.parse().unwrap(),
            nodes: nodes
                .iter()
                .map(|(id, cpus, distances)| Node {
                    id: *id,
                    cpus: cpus.parse().unwrap(),
                    distances: distances.to_vec(),
                    ..Node::default()
                })
                .collect(),
            ..Host::default()
        }
    }

    fn work(node: u32, pages: u64) -> NodeWork {
        NodeWork {
            node,
            bytes: pages << 21,
            pages,
        }
    }

    fn cpus(plan: &[WorkerPlan], node: u32) -> Vec<u32> {
        let of_node = plan.iter().filter(|worker| worker.node == node);
        of_node.filter_map(|worker| worker.cpu).collect()
    }

    #[test]
    fn every_allowed_cpu_of_the_node_works() {
        let host = host(&[(0, "0-3", &[]), (1, "4-7", &[])], "1-5");
        let plan = plan_workers(&host, &[work(0, 100), work(1, 100)], None, None);
        assert_eq!(cpus(&plan, 0), [1, 2, 3]);
        assert_eq!(cpus(&plan, 1), [4, 5]);
        assert!(plan.iter().all(|worker| !worker.remote));
    }

    #[test]
    fn the_callers_cpu_list_narrows_the_choice() {
        let host = host(&[(0, "0-7", &[])], "0-7");
        let list = "2,5,90".parse().unwrap();
        let plan = plan_workers(&host, &[work(0, 100)], None, Some(&list));
        assert_eq!(cpus(&plan, 0), [2, 5]);
    }

    #[test]
    fn isolated_cpus_work_only_where_they_are_named_or_all_there_is() {
        let nearest: &[(u32, u32)] = &[(0, 12), (1, 10)];
        let mut host = host(&[(0, "0-3", &[]), (1, "4-7", nearest)], "0-7");
        host.isolated_cpus = "2-7".parse().unwrap();
        let on = |host: &Host, node, cpus: Option<&IdSet>| {
            let plan = plan_workers(host, &[work(node, 100)], None, cpus);
            (cpus_of(&plan), plan.iter().any(|worker| worker.remote))
        };
        assert_eq!(on(&host, 0, None), (vec![0, 1], false));
        // Every CPU of node 1 is isolated.
        assert_eq!(on(&host, 1, None), (vec![0, 1], true));
        let named = "3,5".parse().unwrap();
        assert_eq!(on(&host, 0, Some(&named)), (vec![3], false));
        assert_eq!(on(&host, 1, Some(&named)), (vec![5], false));
        host.allowed_cpus = "3-6".parse().unwrap();
        assert_eq!(on(&host, 0, None), (vec![3], false));
        assert_eq!(on(&host, 1, None), (vec![4, 5, 6], false));
    }

    fn cpus_of(plan: &[WorkerPlan]) -> Vec<u32> {
        plan.iter().filter_map(|worker| worker.cpu).collect()
    }

    #[test]
    fn a_node_without_cpus_borrows_the_nearest_nodes() {
        let distances: &[(u32, u32)] = &[(0, 32), (1, 12), (2, 10)];
        let host = host(
            &[(0, "0-1", &[]), (1, "2-3", &[]), (2, "", distances)],
            "0-3",
        );
        let plan = plan_workers(&host, &[work(2, 100)], None, None);
        assert_eq!(cpus(&plan, 2), [2, 3]);
        assert!(plan.iter().all(|worker| worker.remote));
    }

    #[test]
    fn threads_are_shared_in_proportion_with_one_at_least() {
        let host = host(&[(0, "0-15", &[]), (1, "16-31", &[])], "0-31");
        let plan = plan_workers(&host, &[work(0, 900), work(1, 100)], Some(10), None);
        assert_eq!((cpus(&plan, 0).len(), cpus(&plan, 1).len()), (8, 2));
        let plan = plan_workers(&host, &[work(0, 900), work(1, 1)], Some(1), None);
        assert_eq!((cpus(&plan, 0).len(), cpus(&plan, 1).len()), (1, 1));
    }

    #[test]
    fn more_threads_than_cpus_wrap_around() {
        let host = host(&[(0, "0-1", &[])], "0-1");
        let plan = plan_workers(&host, &[work(0, 100)], Some(5), None);
        assert_eq!(cpus(&plan, 0), [0, 1, 0, 1, 0]);
    }

    #[test]
    fn no_more_threads_than_pages() {
        let host = host(&[(0, "0-63", &[])], "0-63");
        assert_eq!(plan_workers(&host, &[work(0, 7)], None, None).len(), 7);
        assert_eq!(plan_workers(&host, &[work(0, 7)], Some(64), None).len(), 7);
    }

    #[test]
    fn the_cpu_quota_bounds_the_count() {
        let mut host = host(&[(0, "0-7", &[]), (1, "8-15", &[])], "0-15");
        host.cpu_quota = Some(prezero_host::CpuQuota {
            quota_us: 350_000,
            period_us: 100_000,
            cgroup: "/".into(),
        });
        let plan = plan_workers(&host, &[work(0, 500), work(1, 500)], None, None);
        assert_eq!(plan.len(), 4);
    }

    #[test]
    fn without_topology_threads_are_not_pinned() {
        let mut host = host(&[(0, "0-3", &[])], "0-3");
        host.topology_known = false;
        let plan = plan_workers(&host, &[work(0, 100)], None, None);
        assert_eq!(plan.len(), 4);
        assert!(plan.iter().all(|worker| worker.cpu.is_none()));
    }
}
