//! A process that is put into a real cgroup, or a real mount namespace, sees what is set there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use prezero_host::{CpuQuota, Host, HugetlbLimit, HugetlbfsMount, LimitKind, PageSize};
use prezero_testkit::{Hugepages, skip};

/// Runs in a child process only: what the tests below put in place does not hold for this one.
#[test]
#[ignore = "a part of the other tests"]
fn prints_what_this_process_sees() {
    let host = Host::probe();
    println!("{:?}", host.cpu_quota);
    host.mounts.iter().for_each(|mount| println!("{mount:?}"));
    for limit in &host.hugetlb_limits {
        println!("{limit:?}");
    }
    println!("{:?}", host.limits);
}

/// What the test above prints after `setup`, a shell script with `$dir` as argument, has run.
fn seen_after(setup: &str, dir: &Path) -> Option<String> {
    let run = "exec \"$2\" --exact prints_what_this_process_sees --ignored --nocapture";
    let program = std::env::current_exe().unwrap();
    let output = Command::new("unshare")
        .args([
            "--mount",
            "sh",
            "-c",
            &format!("set -e; {setup}; {run}"),
            "sh",
        ])
        .args([dir, &program])
        .output()
        .ok()?;
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A cgroup and one inside it, removed at the end.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new(hierarchy: &str) -> Option<Self> {
        let group = Self(Path::new(hierarchy).join(format!("prezero-host-{}", process::id())));
        fs::create_dir_all(group.inner()).ok().map(|()| group)
    }

    fn inner(&self) -> PathBuf {
        self.0.join("inner")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(self.inner());
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn the_quota_of_a_parent_cgroup_is_seen() {
    let in_version = |path: &str, needle: &str| {
        fs::read_to_string(path)
            .is_ok_and(|text| text.split_whitespace().any(|word| word.contains(needle)))
    };
    let (group, limits): (_, &[_]) = if in_version("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "") {
        let limits = &[
            ("cpu.cfs_period_us", "20000"),
            ("cpu.cfs_quota_us", "30000"),
        ];
        (Cgroup::new("/sys/fs/cgroup/cpu"), limits)
    } else if in_version("/sys/fs/cgroup/cgroup.subtree_control", "cpu") {
        (Cgroup::new("/sys/fs/cgroup"), &[("cpu.max", "30000 20000")])
    } else {
        return skip("cgroup", "a cgroup hierarchy with the cpu controller");
    };
    let Some(group) = group else {
        return skip("cgroup", "permission to make a cgroup");
    };
    for (name, value) in limits {
        fs::write(group.0.join(name), value).unwrap();
    }

    let quota = CpuQuota {
        quota_us: 30000,
        period_us: 20000,
        cgroup: group.0.clone(),
    };
    let Some(seen) = seen_after("echo $$ > \"$1/cgroup.procs\"", &group.inner()) else {
        return skip("cgroup", "permission to move a process, and unshare(1)");
    };
    assert!(seen.contains(&format!("{:?}", Some(quota))), "{seen}");
}

/// The hugetlb controller for the children of a cgroup, put back to what it was at the end.
struct Controller(Option<PathBuf>);

impl Controller {
    fn enable(group: &Path) -> Option<Self> {
        let file = group.join("cgroup.subtree_control");
        let enabled = fs::read_to_string(&file).ok()?;
        if enabled.split_whitespace().any(|name| name == "hugetlb") {
            return Some(Self(None));
        }
        fs::write(&file, "+hugetlb").ok()?;
        Some(Self(Some(file)))
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        if let Some(file) = &self.0 {
            let _ = fs::write(file, "-hugetlb");
        }
    }
}

#[test]
fn hugetlb_limits_of_a_group_and_its_parent_are_seen_with_their_usage() {
    let Some(pages) = Hugepages::take(2 << 20, 2) else {
        return;
    };
    let tree = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        .into_iter()
        .find(|tree| {
            fs::read_to_string(format!("{tree}/cgroup.controllers"))
                .is_ok_and(|names| names.split_whitespace().any(|name| name == "hugetlb"))
        });
    let Some(tree) = tree else {
        return skip("cgroup", "a cgroup2 tree with the hugetlb controller");
    };
    let _of_tree = Controller::enable(Path::new(tree));
    let Some(group) = Cgroup::new(tree) else {
        return skip("cgroup", "permission to make a cgroup");
    };
    let Some(_of_group) = Controller::enable(&group.0) else {
        return skip("cgroup", "permission to use the hugetlb controller");
    };
    fs::write(group.0.join("hugetlb.2MB.max"), "64M").unwrap();
    fs::write(group.inner().join("hugetlb.2MB.rsvd.max"), "32M").unwrap();
    fs::write(group.inner().join("hugetlb.1GB.max"), "0").unwrap_or_default();

    // A file of two pages, gone with the mount namespace.
    let mount = tempfile::tempdir().unwrap();
    let point = mount.path().display();
    let setup = format!(
        "echo $$ > \"$1/cgroup.procs\"; mount -t hugetlbfs -o pagesize=2M none {point}; \
         fallocate -l 4M {point}/file"
    );
    let Some(seen) = seen_after(&setup, &group.inner()) else {
        return skip(
            "cgroup",
            "permission to move a process and to mount hugetlbfs",
        );
    };
    let usage = HugetlbLimit {
        page_size: PageSize::HUGE_2M,
        kind: LimitKind::Usage,
        file: group.0.join("hugetlb.2MB.max"),
        limit: 64 << 20,
        usage: 4 << 20,
    };
    assert!(seen.contains(&format!("{usage:?}")), "{seen}");
    let reservation = format!(
        "{:?}, limit: {}",
        group.inner().join("hugetlb.2MB.rsvd.max"),
        32 << 20
    );
    assert!(seen.contains(&reservation), "{seen}");
    pages.assert_clean();
}

#[test]
fn a_limit_on_the_size_of_files_is_seen() {
    // The unit of the shell is 512 bytes, as POSIX has it.
    let seen = seen_after("ulimit -f 2048", Path::new("/"));
    let Some(seen) = seen else {
        return skip("hugetlbfs", "permission to make a mount namespace");
    };
    assert!(seen.contains("file_size: Some(1048576)"), "{seen}");
}

#[test]
fn a_mount_is_seen_with_its_options() {
    let dir = tempfile::Builder::new()
        .prefix("huge pages ")
        .tempdir()
        .unwrap();
    let setup = "mount -t hugetlbfs -o ro,pagesize=2M,size=8M none \"$1\"";
    let Some(seen) = seen_after(setup, dir.path()) else {
        return skip(
            "hugetlbfs",
            "permission to mount hugetlbfs in a namespace of its own",
        );
    };
    let mount = HugetlbfsMount {
        path: dir.path().into(),
        page_size: Some(PageSize::HUGE_2M),
        size_limit: Some(8 << 20),
        read_only: true,
        covered: vec![],
    };
    assert!(seen.contains(&format!("{mount:?}")), "{seen}");
}

/// The first of two mounts on one path cannot be reached by that path.
#[test]
fn a_covered_mount_is_not_seen() {
    let dir = tempfile::tempdir().unwrap();
    let setup = "mount -t hugetlbfs none \"$1\"; mount -t tmpfs none \"$1\"";
    let Some(seen) = seen_after(setup, dir.path()) else {
        return skip(
            "hugetlbfs",
            "permission to mount hugetlbfs in a namespace of its own",
        );
    };
    assert!(!seen.contains(dir.path().to_str().unwrap()), "{seen}");
}
