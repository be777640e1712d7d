//! Machines that the fixtures do not cover: kernels without NUMA, incomplete and broken files.

use std::fs;

use prezero_host::{Host, IdSet, PageSize};
use proptest::prelude::*;

fn with_files(files: &[(&str, &[u8])]) -> (tempfile::TempDir, Host) {
    let dir = tempfile::tempdir().unwrap();
    for (path, contents) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }
    let host = Host::read(dir.path());
    (dir, host)
}

#[test]
fn a_kernel_without_numa_is_one_known_node_with_the_host_s_pools() {
    let (_dir, host) = with_files(&[
        ("sys/devices/system/cpu/online", b"0-3\n"),
        (
            "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
            b"9\n",
        ),
        (
            "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
            b"8\n",
        ),
        ("proc/self/status", b"Cpus_allowed_list:\t1\n"),
        ("proc/meminfo", b"MemTotal: 1024 kB\n"),
    ]);
    assert!(host.topology_known);
    assert_eq!(host.nodes.len(), 1);
    assert_eq!(host.nodes[0].cpus, "0-3".parse::<IdSet>().unwrap());
    assert_eq!(host.nodes[0].pool(PageSize::HUGE_2M).unwrap().free, 8);
    assert_eq!(host.nodes[0].mem_total, Some(1 << 20));
    assert_eq!(host.allowed_cpus, "1".parse::<IdSet>().unwrap());
    assert_eq!(
        host.allowed_nodes,
        "0".parse::<IdSet>().unwrap(),
        "no cpusets: no restriction"
    );
    assert_eq!(host.problems, []);
}

#[test]
fn nodes_that_are_not_understood_are_not_taken_for_a_kernel_without_numa() {
    let (dir, host) = with_files(&[
        ("sys/devices/system/node/online", b"all\n"),
        ("sys/devices/system/cpu/online", b"0-3\n"),
        ("proc/self/status", b"Cpus_allowed_list:\t0-3\n"),
    ]);
    assert!(!host.topology_known);
    assert_eq!(host.nodes[0].cpus, "0-3".parse::<IdSet>().unwrap());
    assert_eq!(host.problems.len(), 1);
    assert_eq!(
        host.problems[0].path,
        dir.path().join("sys/devices/system/node/online")
    );
}

#[test]
fn a_thread_s_own_limits_count_before_those_of_the_first_thread() {
    let (_dir, host) = with_files(&[
        ("proc/self/status", b"Cpus_allowed_list:\t0-3\n"),
        ("proc/thread-self/status", b"Cpus_allowed_list:\t2\n"),
    ]);
    assert_eq!(host.allowed_cpus, "2".parse::<IdSet>().unwrap());
}

#[test]
fn a_list_of_cpus_that_is_not_understood_is_a_problem_and_no_restriction() {
    let (_dir, host) = with_files(&[
        ("sys/devices/system/cpu/online", b"0-3\n"),
        ("proc/self/status", b"Cpus_allowed_list:\t3-0\n"),
    ]);
    assert_eq!(host.allowed_cpus, "0-3".parse::<IdSet>().unwrap());
    assert_eq!(host.problems.len(), 1);
}

#[test]
fn an_empty_directory_is_a_host_of_which_nothing_is_known() {
    let (dir, host) = with_files(&[]);
    assert_eq!(host.nodes.len(), 1);
    assert!(!host.topology_known && host.allowed_cpus.is_empty() && host.pools.is_empty());
    assert_eq!(host.problems, []);
    assert_eq!(Host::read(&dir.path().join("absent")).problems.len(), 1);
}

/// Every file that is read, so that each can be replaced by noise.
const FILES: &[&str] = &[
    "proc/cpuinfo",
    "proc/meminfo",
    "proc/version",
    "proc/cmdline",
    "proc/sys/kernel/osrelease",
    "proc/self/status",
    "proc/self/cgroup",
    "proc/self/mountinfo",
    "sys/devices/system/node/online",
    "sys/devices/system/node/node0/cpulist",
    "sys/devices/system/node/node0/distance",
    "sys/devices/system/node/node0/meminfo",
    "sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages",
    "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
    "sys/kernel/mm/transparent_hugepage/enabled",
    "sys/kernel/debug/sched/preempt",
    "sys/fs/cgroup/cpu.max",
    "sys/fs/cgroup/memory.max",
    "sys/fs/cgroup/memory.current",
    "sys/fs/cgroup/hugetlb.2MB.max",
    "sys/fs/cgroup/hugetlb.2MB.current",
    "proc/self/limits",
    "proc/sys/kernel/numa_balancing",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_bytes_in_every_file_are_a_host(
        contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), FILES.len()),
    ) {
        let files: Vec<_> = FILES.iter().copied().zip(contents.iter().map(Vec::as_slice)).collect();
        let (_dir, host) = with_files(&files);
        prop_assert!(!host.nodes.is_empty());
    }

    /// Noise in one file of an otherwise believable machine reaches deeper than noise everywhere.
    #[test]
    fn any_bytes_in_one_file_leave_the_others_readable(
        which in 0..FILES.len(),
        noise in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let mut files: Vec<(&str, &[u8])> = vec![
            ("proc/meminfo", b"MemAvailable: 8 kB\nHugepagesize: 2048 kB\n"),
            ("proc/self/status", b"Cpus_allowed_list:\t0\nMems_allowed_list:\t0\n"),
            ("proc/self/cgroup", b"0::/\n"),
            ("proc/self/mountinfo", b"31 1 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("sys/devices/system/node/online", b"0\n"),
            ("sys/devices/system/node/node0/cpulist", b"0-1\n"),
            ("sys/fs/cgroup/cpu.max", b"1000 2000\n"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", b"4\n"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", b"4\n"),
            ("sys/fs/cgroup/hugetlb.2MB.max", b"4096\n"),
            ("sys/fs/cgroup/hugetlb.2MB.current", b"0\n"),
            ("sys/fs/cgroup/memory.max", b"4096\n"),
            ("sys/fs/cgroup/memory.current", b"0\n"),
        ];
        files.retain(|(path, _)| *path != FILES[which]);
        files.push((FILES[which], &noise));
        let (dir, host) = with_files(&files);
        // Noise can be recorded too, and read again.
        let into = dir.path().join("recording");
        Host::record(dir.path(), &into).unwrap();
        let again = Host::read(&into);
        prop_assert_eq!(again.problems.len(), host.problems.len());
        prop_assert_eq!(&again.nodes, &host.nodes);
        prop_assert_eq!(&again.pools, &host.pools);
        prop_assert_eq!(&again.limits, &host.limits);
        prop_assert_eq!(again.hugetlb_limits.len(), host.hugetlb_limits.len());
        // However large a set of ids the noise asks for, it stays bounded.
        prop_assert!(host.nodes.len() <= 1 << 16 && host.allowed_cpus.len() <= 1 << 16);
        let needs = |path| FILES[which] != path;
        if needs("proc/meminfo") {
            prop_assert_eq!(host.mem_available, Some(8192));
        }
        if needs("sys/devices/system/node/online") {
            prop_assert!(host.topology_known);
        }
        if needs("proc/self/cgroup") && needs("proc/self/mountinfo") && needs("sys/fs/cgroup/cpu.max") {
            prop_assert_eq!(host.cpu_quota.map(|quota| quota.quota_us), Some(1000));
        }
    }
}
