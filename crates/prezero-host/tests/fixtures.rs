//! Copies of the files of machines are read as a person would read them.

use std::path::{Path, PathBuf};

use prezero_host::{CpuQuota, Host, HugepagePool, HugetlbfsMount, IdSet, NodePool, PageSize, Thp};

fn fixture(name: &str) -> Host {
    let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/hosts");
    let host = Host::read(&hosts.join(name));
    assert_eq!(host.problems, []);
    host
}

fn ids(list: &str) -> IdSet {
    list.parse().unwrap()
}

#[test]
fn one_node() {
    let host = fixture("one-node");
    assert_eq!(host.kernel.release, "6.18.2");
    assert_eq!(host.kernel.preempt, "dynamic");
    assert_eq!(host.cpu.vendor, "AuthenticAMD");
    assert_eq!(host.cpu.model, "AMD EPYC 7763 64-Core Processor");
    assert_eq!(host.cpu.microcode, "0xa0011d5");
    assert_eq!(host.cpu.phys_addr_bits, Some(48));
    assert!(host.cpu.hypervisor && host.topology_known);
    assert_eq!(host.thp, Thp::Madvise);
    assert_eq!(host.mem_available, Some(6_832_208 << 10));
    assert_eq!(host.default_hugepage_size, Some(PageSize::HUGE_2M));
    assert_eq!(
        (host.allowed_cpus, host.allowed_nodes),
        (ids("0-1"), ids("0"))
    );
    assert_eq!(host.cpu_quota, None);

    let [node] = &host.nodes[..] else {
        panic!("{:?}", host.nodes)
    };
    assert_eq!((node.id, &node.cpus), (0, &ids("0-1")));
    assert_eq!(node.distances, [(0, 10)]);
    assert_eq!(node.mem_total, Some(8_145_920 << 10));
    let pool = NodePool {
        page_size: PageSize::HUGE_2M,
        total: 512,
        free: 512,
        surplus: 0,
    };
    assert_eq!(node.pool(PageSize::HUGE_2M), Some(&pool));
    let mount = HugetlbfsMount {
        path: "/dev/hugepages".into(),
        page_size: Some(PageSize::HUGE_2M),
        size_limit: None,
        read_only: false,
        covered: vec![],
    };
    assert_eq!(host.mounts, [mount]);
}

#[test]
fn two_sockets_with_uneven_pools() {
    let host = fixture("two-sockets-uneven");
    assert_eq!(host.kernel.preempt, "voluntary");
    assert_eq!(host.cpu.vendor, "GenuineIntel");
    assert_eq!(host.cpu.phys_addr_bits, Some(46));
    assert!(!host.cpu.hypervisor);
    let cpus: Vec<String> = host
        .nodes
        .iter()
        .map(|node| node.cpus.to_string())
        .collect();
    assert_eq!(cpus, ["0-3", "4-7"]);
    let free = |size| {
        host.nodes
            .iter()
            .map(|node| node.pool(size).unwrap().free)
            .collect::<Vec<_>>()
    };
    assert_eq!(free(PageSize::HUGE_2M), [1290, 758]);
    assert_eq!(free(PageSize::HUGE_1G), [0, 0]);
    assert_eq!(host.pool(PageSize::HUGE_2M).unwrap().available(), 2048);
    assert_eq!(host.node(1).unwrap().distance(0), Some(21));
    let large = &host.mounts[1];
    assert_eq!(large.path, PathBuf::from("/mnt/vm 1G"));
    assert_eq!(
        (large.page_size, large.size_limit),
        (Some(PageSize::HUGE_1G), Some(4 << 30))
    );
}

#[test]
fn eight_nodes_with_more_than_16_tib_of_pages() {
    let host = fixture("eight-nodes-16t");
    assert_eq!(host.kernel.preempt, "none");
    assert_eq!(host.cpu.phys_addr_bits, Some(52));
    assert_eq!(host.thp, Thp::Never);
    assert_eq!(host.cpu_quota, None);
    assert_eq!(host.nodes.len(), 8);
    assert!(
        host.nodes
            .iter()
            .all(|node| node.cpus.len() == 64 && node.pools[0].free == 1_150_000)
    );
    let all_cpus: IdSet = host.nodes.iter().flat_map(|node| &node.cpus).collect();
    assert_eq!(all_cpus, ids("0-511"));
    assert_eq!(host.allowed_cpus, all_cpus);
    let to_all = [
        (0, 12),
        (1, 10),
        (2, 12),
        (3, 12),
        (4, 32),
        (5, 32),
        (6, 32),
        (7, 32),
    ];
    assert_eq!(host.nodes[1].distances, to_all);
    let pool = host.pool(PageSize::HUGE_2M).unwrap();
    assert!(pool.available() * pool.page_size.bytes() > 16 << 40);
}

#[test]
fn without_sys_the_one_node_has_the_cpus_this_process_may_use() {
    let host = fixture("no-sys");
    assert!(!host.topology_known);
    assert_eq!(host.kernel.preempt, "none or voluntary");
    assert_eq!(host.thp, Thp::Unavailable);
    let pool = HugepagePool {
        page_size: PageSize::HUGE_2M,
        total: 1024,
        free: 1000,
        reserved: 300,
        surplus: 0,
        overcommit: 16,
    };
    assert_eq!(host.pools, [pool]);
    assert_eq!(host.pools[0].available(), 716);
    let [node] = &host.nodes[..] else {
        panic!("{:?}", host.nodes)
    };
    assert_eq!((node.id, &node.cpus), (0, &ids("2-5,8")));
    assert_eq!(node.pools[0].free, 1000);
    assert_eq!(node.mem_total, Some(32_505_856 << 10));
    assert_eq!(host.mounts, []);
}

#[test]
fn node_ids_may_have_gaps_and_nodes_no_cpus() {
    let host = fixture("sparse-node-ids");
    assert_eq!(
        host.nodes.iter().map(|node| node.id).collect::<Vec<_>>(),
        [0, 2, 3]
    );
    assert_eq!(host.nodes[2].distances, [(0, 24), (2, 14), (3, 10)]);
    assert!(host.nodes[2].cpus.is_empty());
    assert_eq!(host.nodes[2].pools[0].free, 8192);
    assert_eq!(
        (host.allowed_cpus, host.allowed_nodes),
        (ids("1-7"), ids("0,2-3"))
    );
    assert_eq!(host.kernel.preempt, "lazy");
    let quota = CpuQuota {
        quota_us: 350_000,
        period_us: 100_000,
        cgroup: "/sys/fs/cgroup/machine.slice".into(),
    };
    assert_eq!(quota.cpus(), 4);
    assert_eq!(host.cpu_quota, Some(quota));
    assert!(host.mounts[1].read_only);
}

/// A CXL device: its memory is a node of its own, far from all CPUs.
#[test]
fn a_node_of_memory_only_is_far_from_both_sockets() {
    let host = fixture("memory-only-node");
    let node = host.node(2).unwrap();
    assert!(node.cpus.is_empty());
    assert_eq!(node.distances, [(0, 38), (1, 28), (2, 10)]);
    assert_eq!(node.mem_total, Some(128 << 30));
    assert_eq!(node.pool(PageSize::HUGE_2M).unwrap().free, 4096);
    assert_eq!(host.allowed_nodes, ids("0-2"));
    assert!(host.numa_balancing, "2 is tiering, and moves memory too");
    assert_eq!(host.kernel.preempt, "voluntary");
}

#[test]
fn a_node_of_cpus_only_has_neither_memory_nor_pools() {
    let host = fixture("cpu-only-node");
    let node = host.node(1).unwrap();
    assert_eq!(node.cpus, ids("4-7"));
    assert_eq!(node.mem_total, Some(0));
    assert_eq!(node.pools, []);
    assert_eq!(host.allowed_nodes, ids("0"));
    assert!(host.numa_balancing);
}

#[test]
fn the_default_size_may_be_1_gib() {
    let host = fixture("default-1g");
    assert_eq!(host.default_hugepage_size, Some(PageSize::HUGE_1G));
    let available = |size| host.pool(size).unwrap().available();
    assert_eq!(available(PageSize::HUGE_1G), 12);
    assert_eq!(available(PageSize::HUGE_2M), 1280);
    assert_eq!(host.mounts[0].page_size, Some(PageSize::HUGE_1G));
    let path = |size| host.mount_for(size).unwrap().path.clone();
    assert_eq!(path(PageSize::HUGE_1G), PathBuf::from("/dev/hugepages"));
    assert_eq!(path(PageSize::HUGE_2M), PathBuf::from("/mnt/huge_2MB"));
    assert!(!host.numa_balancing);
}

/// The sum over the nodes is the host's figure, as it is on a real machine at rest.
#[test]
fn fixtures_agree_with_themselves() {
    for name in [
        "one-node",
        "two-sockets-uneven",
        "eight-nodes-16t",
        "sparse-node-ids",
        "memory-only-node",
        "cpu-only-node",
        "cgroup2-parent-limit",
        "cgroup1",
        "default-1g",
    ] {
        let host = fixture(name);
        for pool in &host.pools {
            let of_nodes = || {
                host.nodes
                    .iter()
                    .filter_map(|node| node.pool(pool.page_size))
            };
            assert_eq!(
                of_nodes().map(|pool| pool.total).sum::<u64>(),
                pool.total,
                "{name}"
            );
            assert_eq!(
                of_nodes().map(|pool| pool.free).sum::<u64>(),
                pool.free,
                "{name}"
            );
        }
    }
}
