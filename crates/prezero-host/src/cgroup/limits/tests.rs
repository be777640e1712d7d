use super::*;
use crate::mountinfo;
use crate::root::with_files;
use proptest::prelude::*;

const V2: &str = "31 1 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
const V1: &str = "32 1 0:29 / /sys/fs/cgroup/hugetlb rw - cgroup cgroup rw,hugetlb\n\
                  33 1 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

/// (page size, kind, file, limit, usage)
type Found = (String, LimitKind, String, u64, u64);

fn hugetlb(files: &[(&str, &str)], cgroups: &str, mounts: &str) -> (Vec<Found>, usize) {
    let dir = with_files(files);
    let mut root = Root::new(dir.path());
    let mounts = mountinfo::parse(mounts).0;
    let pools = [PageSize::HUGE_2M, PageSize::HUGE_1G].map(|page_size| HugepagePool {
        page_size,
        total: 0,
        free: 0,
        reserved: 0,
        surplus: 0,
        overcommit: 0,
    });
    let limits = hugetlb_limits(&mut root, &Cgroups::new(cgroups, &mounts), &pools);
    let found = limits.iter().map(|limit| {
        let file = limit.file.display().to_string();
        let size = limit.page_size.to_string();
        (size, limit.kind, file, limit.limit, limit.usage)
    });
    (found.collect(), root.problems.len())
}

fn memory(files: &[(&str, &str)], cgroups: &str, mounts: &str) -> (Vec<MemoryLimit>, usize) {
    let dir = with_files(files);
    let mut root = Root::new(dir.path());
    let mounts = mountinfo::parse(mounts).0;
    let limits = memory_limits(&mut root, &Cgroups::new(cgroups, &mounts));
    (limits, root.problems.len())
}

fn found(size: &str, kind: LimitKind, file: &str, limit: u64, usage: u64) -> Found {
    (size.into(), kind, file.into(), limit, usage)
}

#[test]
fn every_level_size_and_kind_counts_on_its_own() {
    let files = [
        ("sys/fs/cgroup/a/b/hugetlb.2MB.max", "max\n"),
        ("sys/fs/cgroup/a/b/hugetlb.2MB.current", "0\n"),
        ("sys/fs/cgroup/a/b/hugetlb.1GB.rsvd.max", "3221225472\n"),
        ("sys/fs/cgroup/a/b/hugetlb.1GB.rsvd.current", "1073741824\n"),
        ("sys/fs/cgroup/a/hugetlb.2MB.max", "4194304\n"),
        ("sys/fs/cgroup/a/hugetlb.2MB.current", "2097152\n"),
        ("sys/fs/cgroup/a/hugetlb.16GB.max", "0\n"),
        ("sys/fs/cgroup/a/hugetlb.16GB.current", "0\n"),
    ];
    let expected = vec![
        found(
            "1 GiB",
            LimitKind::Reservation,
            "/sys/fs/cgroup/a/b/hugetlb.1GB.rsvd.max",
            3 << 30,
            1 << 30,
        ),
        found(
            "2 MiB",
            LimitKind::Usage,
            "/sys/fs/cgroup/a/hugetlb.2MB.max",
            4 << 20,
            2 << 20,
        ),
    ];
    assert_eq!(hugetlb(&files, "0::/a/b\n", V2), (expected, 0));
    assert_eq!(hugetlb(&files, "0::/a/b\n", V1), (vec![], 0));
}

#[test]
fn a_limit_of_nothing_is_a_limit() {
    let files = [
        ("sys/fs/cgroup/hugetlb.2MB.max", "0\n"),
        ("sys/fs/cgroup/hugetlb.2MB.current", "0\n"),
    ];
    assert_eq!(hugetlb(&files, "0::/\n", V2).0.len(), 1);
}

#[test]
fn the_largest_number_of_version_1_is_no_limit() {
    for base_page in [4u64 << 10, 64 << 10] {
        for page_size in [2u64 << 20, 16 << 30] {
            let pages = i64::MAX.unsigned_abs() / base_page;
            let none = pages / (page_size / base_page) * page_size;
            let files = [
                (
                    "sys/fs/cgroup/hugetlb/hugetlb.2MB.limit_in_bytes",
                    &*none.to_string(),
                ),
                ("sys/fs/cgroup/hugetlb/hugetlb.2MB.usage_in_bytes", "0\n"),
            ];
            assert_eq!(hugetlb(&files, "7:hugetlb:/\n", V1), (vec![], 0), "{none}");
        }
    }
}

#[test]
fn a_hybrid_host_has_the_limits_where_the_controller_is() {
    let mounts = format!("{V1}34 1 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    let files = [
        (
            "sys/fs/cgroup/hugetlb/job/hugetlb.2MB.rsvd.limit_in_bytes",
            "8388608\n",
        ),
        (
            "sys/fs/cgroup/hugetlb/job/hugetlb.2MB.rsvd.usage_in_bytes",
            "2097152\n",
        ),
        (
            "sys/fs/cgroup/memory/m/memory.limit_in_bytes",
            "1073741824\n",
        ),
        ("sys/fs/cgroup/memory/m/memory.usage_in_bytes", "4096\n"),
        (
            "sys/fs/cgroup/memory/memory.limit_in_bytes",
            "9223372036854771712\n",
        ),
        ("sys/fs/cgroup/memory/memory.usage_in_bytes", "4096\n"),
    ];
    let cgroups = "7:hugetlb:/job\n4:memory:/m\n0::/job\n";
    let expected = found(
        "2 MiB",
        LimitKind::Reservation,
        "/sys/fs/cgroup/hugetlb/job/hugetlb.2MB.rsvd.limit_in_bytes",
        8 << 20,
        2 << 20,
    );
    assert_eq!(hugetlb(&files, cgroups, &mounts), (vec![expected], 0));
    let expected = MemoryLimit {
        file: "/sys/fs/cgroup/memory/m/memory.limit_in_bytes".into(),
        limit: 1 << 30,
        usage: 4096,
        page_cache: 0,
        counts_hugetlb: false,
    };
    assert_eq!(expected.remaining(), (1 << 30) - 4096);
    assert_eq!(memory(&files, cgroups, &mounts), (vec![expected], 0));
}

#[test]
fn page_cache_does_not_count_against_what_is_left() {
    let stat = "anon 100\ninactive_file 2048\nactive_file 1024\n";
    let files = [
        ("sys/fs/cgroup/a/memory.max", "8192\n"),
        ("sys/fs/cgroup/a/memory.current", "8192\n"),
        ("sys/fs/cgroup/a/memory.stat", stat),
    ];
    let (limits, problems) = memory(&files, "0::/a\n", V2);
    assert_eq!(
        (limits[0].page_cache, limits[0].remaining(), problems),
        (3072, 3072, 0)
    );
    // Version 1 shows this group's own first, then the sum with its children.
    assert_eq!(
        page_cache(
            "inactive_file 1\nactive_file 2\ntotal_inactive_file 10\ntotal_active_file 20\n"
        ),
        Some(30)
    );
    assert_eq!(page_cache("inactive_file x\n"), None);
}

#[test]
fn a_mount_option_makes_memory_limits_count_hugetlb_pages() {
    let files = [
        ("sys/fs/cgroup/a/memory.max", "4096\n"),
        ("sys/fs/cgroup/a/memory.current", "8192\n"),
    ];
    let counts = |mounts: &str| {
        let (limits, problems) = memory(&files, "0::/a\n", mounts);
        assert_eq!((limits.len(), problems, limits[0].remaining()), (1, 0, 0));
        limits[0].counts_hugetlb
    };
    assert!(!counts(V2));
    let mount = "31 1 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,memory_hugetlb_accounting\n";
    assert!(counts(mount));
}

#[test]
fn a_hierarchy_that_is_mounted_twice_counts_once() {
    let files = [
        ("x/hugetlb.2MB.max", "2097152\n"),
        ("x/hugetlb.2MB.current", "0\n"),
        ("y/hugetlb.2MB.max", "4194304\n"),
        ("y/hugetlb.2MB.current", "0\n"),
        ("y/b/hugetlb.2MB.max", "2097152\n"),
        ("y/b/hugetlb.2MB.current", "0\n"),
    ];
    let mounts = "31 1 0:28 /a/b /x rw - cgroup2 none rw\n32 1 0:28 /a /y rw - cgroup2 none rw\n";
    let (limits, problems) = hugetlb(&files, "0::/a/b\n", mounts);
    let files: Vec<_> = limits.iter().map(|limit| limit.2.as_str()).collect();
    let expected = ["/y/b/hugetlb.2MB.max", "/y/hugetlb.2MB.max"];
    assert_eq!((&files[..], problems), (&expected[..], 0));
}

#[test]
fn sizes_in_names_are_the_kernel_s() {
    let name = |bytes| size_in_names(PageSize::new(bytes).unwrap());
    assert_eq!(name(64 << 10), "64KB");
    assert_eq!(name(512 << 10), "512KB");
    assert_eq!(name(2 << 20), "2MB");
    assert_eq!(name(512 << 20), "512MB");
    assert_eq!(name(1 << 30), "1GB");
    assert_eq!(name(16 << 30), "16GB");
    assert_eq!(name(1 << 40), "1024GB");
}

#[test]
fn a_figure_that_is_not_understood_is_a_problem_and_no_limit() {
    for (max, current) in [
        ("-1\n", "0\n"),
        ("", "0\n"),
        ("2M\n", "0\n"),
        ("0\n", "none\n"),
    ] {
        let files = [
            ("sys/fs/cgroup/hugetlb.2MB.max", max),
            ("sys/fs/cgroup/hugetlb.2MB.current", current),
        ];
        assert_eq!(hugetlb(&files, "0::/\n", V2), (vec![], 1), "{max}{current}");
    }
}

proptest! {
    #[test]
    fn any_figures_are_limits(max in "[0-9max -]{0,22}|\\PC*", current in "[0-9]{0,22}|\\PC*") {
        let files = [
            ("sys/fs/cgroup/hugetlb.2MB.max", &*max),
            ("sys/fs/cgroup/hugetlb.2MB.current", &*current),
        ];
        let (limits, problems) = hugetlb(&files, "0::/\n", V2);
        prop_assert!(limits.len() + problems <= 1);
    }
}
