use super::*;
use crate::mountinfo;
use crate::root::with_files;
use proptest::prelude::*;

const V2: &str = "31 1 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
const V1: &str = "32 1 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";

fn quota(
    files: &[(&str, &str)],
    cgroups: &str,
    mounts: &str,
) -> (Option<(u64, u64, String)>, usize) {
    let dir = with_files(files);
    let mut root = Root::new(dir.path());
    let mounts = mountinfo::parse(mounts).0;
    let quota = cpu_quota(&mut root, &Cgroups::new(cgroups, &mounts));
    let quota = quota.map(|quota| {
        (
            quota.quota_us,
            quota.period_us,
            quota.cgroup.display().to_string(),
        )
    });
    (quota, root.problems.len())
}

fn limit(quota_us: u64, period_us: u64, cgroup: &str) -> (Option<(u64, u64, String)>, usize) {
    (Some((quota_us, period_us, cgroup.to_owned())), 0)
}

#[test]
fn a_parent_may_be_tighter_than_the_group_itself() {
    let files = [
        ("sys/fs/cgroup/a/cpu.max", "50000 100000\n"),
        ("sys/fs/cgroup/a/b/cpu.max", "100000 100000\n"),
        ("sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n"),
    ];
    assert_eq!(
        quota(&files, "0::/a/b/c\n", V2),
        limit(50000, 100_000, "/sys/fs/cgroup/a")
    );
    assert_eq!(quota(&files, "0::/\n", V2), (None, 0));
}

#[test]
fn limits_are_compared_as_fractions_and_the_nearest_of_equals_is_named() {
    let files = [
        ("sys/fs/cgroup/a/cpu.max", "200000 400000\n"),
        ("sys/fs/cgroup/a/b/cpu.max", "5000 10000\n"),
        ("sys/fs/cgroup/a/b/c/cpu.max", "6000 10000\n"),
    ];
    assert_eq!(
        quota(&files, "0::/a/b/c\n", V2),
        limit(5000, 10000, "/sys/fs/cgroup/a/b")
    );
}

#[test]
fn version_1_has_a_file_for_each_figure() {
    let files = [
        ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
        ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "150000\n"),
        (
            "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us",
            "100000\n",
        ),
    ];
    let cgroups = "5:memory:/other\n4:cpu,cpuacct:/job\n3:cpuset:/\n";
    assert_eq!(
        quota(&files, cgroups, V1),
        limit(150_000, 100_000, "/sys/fs/cgroup/cpu,cpuacct/job")
    );
}

#[test]
fn a_hybrid_host_may_set_the_limit_in_either_version() {
    let mounts = format!("{V1}33 1 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    let files = [
        ("sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "300000\n"),
        ("sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n"),
        ("sys/fs/cgroup/unified/y/cpu.max", "200000 100000\n"),
    ];
    let found = quota(&files, "4:cpu,cpuacct:/x\n0::/y\n", &mounts);
    assert_eq!(found, limit(200_000, 100_000, "/sys/fs/cgroup/unified/y"));
}

#[test]
fn the_root_of_a_bind_mount_is_taken_off_the_path() {
    let mounts = "31 1 0:28 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n";
    let files = [
        ("sys/fs/cgroup/cpu.max", "1000 2000\n"),
        ("sys/fs/cgroup/in/cpu.max", "max 2000\n"),
    ];
    assert_eq!(
        quota(&files, "0::/docker/abc/in\n", mounts),
        limit(1000, 2000, "/sys/fs/cgroup")
    );
    assert_eq!(
        quota(&files, "0::/docker/abcd\n", mounts),
        (None, 0),
        "a sibling with a longer name"
    );
    assert_eq!(
        quota(&files, "0::/\n", mounts),
        (None, 0),
        "outside what is mounted"
    );
}

#[test]
fn a_group_outside_the_namespace_never_leads_out_of_the_mount() {
    let files = [
        ("sys/fs/cpu.max", "1000 2000\n"),
        ("sys/fs/cgroup/a/cpu.max", "1000 2000\n"),
    ];
    assert_eq!(quota(&files, "0::/../a\n", V2), (None, 0));
    let mounts = "31 1 0:28 /.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    assert_eq!(
        quota(&files, "0::/../a\n", mounts),
        limit(1000, 2000, "/sys/fs/cgroup/a")
    );
}

#[test]
fn limits_that_make_no_sense_are_problems() {
    for text in ["", "100000\n", "full 100000\n", "1 2 3\n", "1000 0\n"] {
        assert_eq!(
            quota(&[("sys/fs/cgroup/cpu.max", text)], "0::/\n", V2),
            (None, 1),
            "{text}"
        );
    }
}

#[test]
fn cpus_are_rounded_up_and_never_none() {
    let cpus = |quota_us, period_us| {
        CpuQuota {
            quota_us,
            period_us,
            cgroup: PathBuf::new(),
        }
        .cpus()
    };
    assert_eq!(cpus(150_000, 100_000), 2);
    assert_eq!(cpus(200_000, 100_000), 2);
    assert_eq!(cpus(1000, 100_000), 1);
    assert_eq!(cpus(0, 100_000), 1);
    assert_eq!(cpus(1, 0), 1);
}

proptest! {
    #[test]
    fn any_text_is_a_list_of_groups(cgroups in "[0-9cpu:,/. \n]{0,80}|\\PC*", max in "[0-9max -]{0,20}|\\PC*") {
        let _ = quota(&[("sys/fs/cgroup/cpu.max", &max)], &cgroups, V2);
    }
}
