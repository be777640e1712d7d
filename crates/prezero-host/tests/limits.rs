//! Limits of cgroups and of the process, as fixtures have them.

use std::path::Path;

use prezero_host::{CpuQuota, Host, HugetlbLimit, LimitKind, MemoryLimit, PageSize, ProcessLimits};

fn fixture(name: &str) -> Host {
    let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/hosts");
    let host = Host::read(&hosts.join(name));
    assert_eq!(host.problems, []);
    host
}

#[test]
fn parents_limit_a_group_that_has_no_limit_itself() {
    let host = fixture("cgroup2-parent-limit");
    let parent = Path::new("/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice");
    let usage = HugetlbLimit {
        page_size: PageSize::HUGE_2M,
        kind: LimitKind::Usage,
        file: parent.join("hugetlb.2MB.max"),
        limit: 1 << 30,
        usage: 256 << 20,
    };
    assert_eq!(usage.remaining(), 768 << 20);
    let large = HugetlbLimit {
        page_size: PageSize::HUGE_1G,
        kind: LimitKind::Usage,
        file: parent.join("hugetlb.1GB.max"),
        limit: 0,
        usage: 0,
    };
    let reservation = HugetlbLimit {
        page_size: PageSize::HUGE_2M,
        kind: LimitKind::Reservation,
        file: "/sys/fs/cgroup/kubepods.slice/hugetlb.2MB.rsvd.max".into(),
        limit: 2 << 30,
        usage: 1280 << 20,
    };
    assert_eq!(host.hugetlb_limits, [usage, large, reservation]);
    let memory = MemoryLimit {
        file: parent.join("memory.max"),
        limit: 8 << 30,
        usage: 1 << 30,
        page_cache: 0,
        counts_hugetlb: true,
    };
    assert_eq!(host.memory_limits, [memory]);
    assert_eq!(host.cpu_quota.unwrap().cgroup, parent);
}

#[test]
fn version_1_has_a_directory_for_each_controller() {
    let host = fixture("cgroup1");
    let own = HugetlbLimit {
        page_size: PageSize::HUGE_2M,
        kind: LimitKind::Usage,
        file: "/sys/fs/cgroup/hugetlb/machine/vm7/hugetlb.2MB.limit_in_bytes".into(),
        limit: 512 << 20,
        usage: 64 << 20,
    };
    let parent = HugetlbLimit {
        page_size: PageSize::HUGE_2M,
        kind: LimitKind::Reservation,
        file: "/sys/fs/cgroup/hugetlb/machine/hugetlb.2MB.rsvd.limit_in_bytes".into(),
        limit: 1 << 30,
        usage: 64 << 20,
    };
    assert_eq!(host.hugetlb_limits, [own, parent]);
    let memory = MemoryLimit {
        file: "/sys/fs/cgroup/memory/machine/memory.limit_in_bytes".into(),
        limit: 4 << 30,
        usage: 1 << 30,
        page_cache: 0,
        counts_hugetlb: false,
    };
    assert_eq!(host.memory_limits, [memory]);
    let quota = CpuQuota {
        quota_us: 250_000,
        period_us: 100_000,
        cgroup: "/sys/fs/cgroup/cpu,cpuacct/machine/vm7".into(),
    };
    assert_eq!(host.cpu_quota, Some(quota));
    let limits = ProcessLimits {
        file_size: Some(64 << 30),
        address_space: None,
        locked_memory: Some(64 << 10),
        open_files: Some(1024),
    };
    assert_eq!(host.limits, limits);
}

#[test]
fn a_host_that_says_nothing_of_limits_has_none() {
    for name in ["one-node", "no-sys"] {
        let host = fixture(name);
        assert_eq!((host.hugetlb_limits, host.memory_limits), (vec![], vec![]));
        assert_eq!(host.limits, ProcessLimits::default());
        assert!(!host.numa_balancing);
    }
}
