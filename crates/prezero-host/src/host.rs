//! All facts about a host.

use std::path::Path;

use crate::cgroup::{
    Cgroups, CpuQuota, Cpuset, HugetlbLimit, MemoryLimit, cpu_quota, cpusets, hugetlb_limits,
    memory_limits,
};
use crate::cpu::Cpu;
use crate::fields::{field, kilobytes, only};
use crate::hugepages::{HugepagePool, default_size, host_pools};
use crate::id_set::IdSet;
use crate::kernel::Kernel;
use crate::mountinfo;
use crate::mounts::{HugetlbfsMount, hugetlbfs};
use crate::node::{Node, read_ids, read_nodes};
use crate::page_size::PageSize;
use crate::process_limits::ProcessLimits;
use crate::root::{Problem, Root};
use crate::thp::Thp;

/// What is known about a host, and about the limits set on this process there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Host {
    /// The kernel.
    pub kernel: Kernel,
    /// The kind of CPU.
    pub cpu: Cpu,
    /// Whether the host says which CPUs it has, and on which nodes. If not, `nodes` is one node
    /// with the CPUs this process may use, and pinning threads would be guesswork.
    pub topology_known: bool,
    /// The online NUMA nodes, by id; one node 0 on a kernel without NUMA. Never empty.
    pub nodes: Vec<Node>,
    /// The hugepage pools of the whole host, by page size.
    pub pools: Vec<HugepagePool>,
    /// The size of hugepages where none is named, `Hugepagesize` of `/proc/meminfo`.
    pub default_hugepage_size: Option<PageSize>,
    /// When ordinary memory gets transparent hugepages.
    pub thp: Thp,
    /// Ordinary memory that can be had without swapping, in bytes: `MemAvailable` of
    /// `/proc/meminfo`. Hugepages in pools are not part of it.
    pub mem_available: Option<u64>,
    /// The hugetlbfs mounts, in the order of `/proc/self/mountinfo`.
    pub mounts: Vec<HugetlbfsMount>,
    /// The CPUs this thread may run on, `Cpus_allowed_list` of its `status` file in `/proc`; all
    /// CPUs of `nodes` where that is absent. Offline CPUs may be among them.
    pub allowed_cpus: IdSet,
    /// The nodes this thread may have memory from, `Mems_allowed_list`; all of `nodes` where that is
    /// absent, as on a kernel without cpusets.
    pub allowed_nodes: IdSet,
    /// CPUs that the kernel leaves to threads which ask for them by name: `isolcpus=` and isolated
    /// cpuset partitions, `/sys/devices/system/cpu/isolated`. `nohz_full=` alone does not isolate.
    pub isolated_cpus: IdSet,
    /// The memory nodes that cgroups allow, where they say so: those of this process's cgroup, then
    /// those of its parent, and so on.
    pub cpusets: Vec<Cpuset>,
    /// The tightest limit on CPU time.
    pub cpu_quota: Option<CpuQuota>,
    /// The limits on hugepages, none of them infinite: those of this process's cgroup, then those of
    /// its parent, and so on.
    pub hugetlb_limits: Vec<HugetlbLimit>,
    /// The limits on memory, in the same order.
    pub memory_limits: Vec<MemoryLimit>,
    /// The limits set with setrlimit(2).
    pub limits: ProcessLimits,
    /// Whether the kernel moves memory to the node of the CPU that uses it, in
    /// `/proc/sys/kernel/numa_balancing`. It leaves hugetlb pages alone (`task_numa_work` in the
    /// kernel's `kernel/sched/fair.c`), and unmaps other guest memory again and again to see who uses it.
    pub numa_balancing: bool,
    /// Files that exist but could not be understood.
    pub problems: Vec<Problem>,
}

impl Host {
    /// The facts of the running machine.
    #[must_use]
    pub fn probe() -> Self {
        Self::read(Path::new("/"))
    }

    /// The facts of the machine whose `/proc` and `/sys` are in `root`.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        Self::read_below(&mut Root::new(root))
    }

    pub(crate) fn read_below(root: &mut Root) -> Self {
        let own = root.own_directory();
        let meminfo = root.reduced("proc/meminfo", |text| only(text, MEMINFO));
        let meminfo = meminfo.unwrap_or_default();
        let status_path = format!("{own}/status");
        let status = root.reduced(&status_path, |text| only(text, STATUS));
        let status = status.unwrap_or_default();
        let cgroup_path = format!("{own}/cgroup");
        let cgroup_text = root.unrecorded_text(&cgroup_path);
        let mountinfo_path = format!("{own}/mountinfo");
        let mountinfo_text = root.unrecorded_text(&mountinfo_path);
        let (all_mounts, broken) = mountinfo::parse(mountinfo_text.as_deref().unwrap_or_default());
        if broken > 0 {
            root.problem(
                &mountinfo_path,
                &format!("Has {broken} lines that were not understood"),
            );
        }

        let cgroups = Cgroups::new(cgroup_text.as_deref().unwrap_or_default(), &all_mounts);
        if cgroup_text.is_some() {
            root.keep_renamed(&cgroup_path, |names| cgroups.recorded(names));
        }
        if mountinfo_text.is_some() {
            root.keep_renamed(&mountinfo_path, |names| {
                mountinfo::recorded(&all_mounts, broken, names)
            });
        }
        let pools = host_pools(root, &meminfo);
        let default_hugepage_size = default_size(root, &meminfo);
        let mut allowed = |name| {
            field(&status, name)
                .and_then(|list| root.understand(&status_path, list, |list| list.parse().ok()))
        };
        let (allowed_cpus, allowed_nodes) =
            (allowed("Cpus_allowed_list"), allowed("Mems_allowed_list"));
        let (nodes, topology_known) = topology(root, &meminfo, &pools, allowed_cpus.as_ref());
        Self {
            kernel: Kernel::read(root),
            cpu: Cpu::read(root),
            topology_known,
            allowed_cpus: allowed_cpus
                .unwrap_or_else(|| nodes.iter().flat_map(|node| &node.cpus).collect()),
            allowed_nodes: allowed_nodes
                .unwrap_or_else(|| nodes.iter().map(|node| node.id).collect()),
            isolated_cpus: read_ids(root, "sys/devices/system/cpu/isolated").unwrap_or_default(),
            cpusets: cpusets(root, &cgroups),
            hugetlb_limits: hugetlb_limits(root, &cgroups, &pools),
            memory_limits: memory_limits(root, &cgroups),
            limits: ProcessLimits::read(root, &format!("{own}/limits")),
            numa_balancing: root.number_or("proc/sys/kernel/numa_balancing", 0) > Some(0),
            nodes,
            pools,
            default_hugepage_size,
            thp: Thp::read(root),
            mem_available: memory(root, &meminfo, "MemAvailable"),
            mounts: hugetlbfs(root, &mountinfo_path, &all_mounts, default_hugepage_size),
            cpu_quota: cpu_quota(root, &cgroups),
            problems: std::mem::take(&mut root.problems),
        }
    }

    /// The CPUs that this process may run on without asking for one by name: isolated ones are among
    /// them only if there are no others.
    #[must_use]
    pub fn unasked_cpus(&self) -> IdSet {
        let cpus = self.allowed_cpus.iter();
        let shared: IdSet = cpus
            .filter(|cpu| !self.isolated_cpus.contains(*cpu))
            .collect();
        match shared.is_empty() {
            true => self.allowed_cpus.clone(),
            false => shared,
        }
    }

    /// The node with this id.
    #[must_use]
    pub fn node(&self, id: u32) -> Option<&Node> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// The pool of this page size.
    #[must_use]
    pub fn pool(&self, page_size: PageSize) -> Option<&HugepagePool> {
        self.pools.iter().find(|pool| pool.page_size == page_size)
    }
}

/// What is looked up in `/proc/meminfo`.
const MEMINFO: &[&str] = &[
    "MemTotal",
    "MemFree",
    "MemAvailable",
    "HugePages_Total",
    "HugePages_Free",
    "HugePages_Rsvd",
    "HugePages_Surp",
    "Hugepagesize",
];

/// What is looked up in the `status` file of a thread.
const STATUS: &[&str] = &["Cpus_allowed_list", "Mems_allowed_list"];

/// The nodes, and whether the kernel told them. A kernel without NUMA is one node of all CPUs, and
/// without `/sys` nothing better is known than the CPUs this process may use.
fn topology(
    root: &mut Root,
    meminfo: &str,
    pools: &[HugepagePool],
    allowed_cpus: Option<&IdSet>,
) -> (Vec<Node>, bool) {
    if let Some(nodes) = read_nodes(root) {
        return (nodes, true);
    }
    // A node directory that is there but was not understood is not a kernel without NUMA.
    let online_cpus = match root.is_dir("sys/devices/system/node") {
        true => None,
        false => read_ids(root, "sys/devices/system/cpu/online"),
    };
    let topology_known = online_cpus.is_some();
    let node = Node {
        id: 0,
        cpus: online_cpus
            .or_else(|| allowed_cpus.cloned())
            .unwrap_or_default(),
        distances: vec![(0, 10)],
        mem_total: memory(root, meminfo, "MemTotal"),
        mem_free: memory(root, meminfo, "MemFree"),
        pools: pools.iter().map(Into::into).collect(),
    };
    (vec![node], topology_known)
}

fn memory(root: &mut Root, meminfo: &str, name: &str) -> Option<u64> {
    field(meminfo, name).and_then(|value| root.understand("proc/meminfo", value, kilobytes))
}
