//! Limits of cgroups: an error that names the file, or ordinary memory with a warning that does, and never a SIGBUS or
//! the out-of-memory killer.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use prezero_testkit::{Hugepages, MachineLock, require_kvm, skip};

use crate::cgroup::Group;
use crate::command::{Ran, error_of, finish, prezero_run_after};

const PAGE: u64 = 2 << 20;
const LIMIT: u64 = 32 << 20;

#[track_caller]
fn run_in(dir: &Path, args: &str) -> Ran {
    let join = format!("echo $$ > {}/cgroup.procs;", dir.display());
    finish(prezero_run_after(&join, args))
}

/// Every mode of a run of 64 MiB in `dir`, where `file` allows half of that.
#[track_caller]
fn is_limited(dir: &Path, file: &Path, pages: &Hugepages) {
    for mode in ["--prealloc", ""] {
        let args = format!("--memory size=64M,hugepages=on,hugepage_size=2M {mode}");
        let ran = run_in(dir, &args).exits_with(3);
        assert_eq!(ran.stdout, "");
        let (error, fix) = ran.error_and_fix();
        let numbers = format!(
            "{} is 32 MiB, 0 bytes in use, 64 MiB needed, short by 32 MiB",
            file.display()
        );
        assert!(error.ends_with(&numbers), "{error}");
        let typed = format!("echo {} | sudo tee {}", 64 << 20, file.display());
        assert_eq!(fix, typed);
        let report = run_in(dir, &format!("{args} --json")).exits_with(3).json();
        assert_eq!(error_of(&report), ("shortage", error, Some(fix)));
        pages.assert_clean();

        let args = format!("--memory size=64M,hugepage_size=2M {mode} --verify --json");
        let ran = run_in(dir, &args).exits_with(0);
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:#?}");
        assert!(ran.stderr.contains(&numbers), "{ran:#?}");
        let report = ran.json();
        let backing = report["regions"][0]["backing"].as_str().expect("text");
        assert!(["thp", "base"].contains(&backing), "{report:#}");
        pages.assert_clean();
    }
}

#[test]
fn a_limit_on_hugepages_is_named_and_auto_does_without() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::take(PAGE, 32) else {
        return;
    };
    let group = match Group::new() {
        Ok(group) => group,
        Err(error) => return skip("cgroup", &error.to_string()),
    };
    for name in ["hugetlb.2MB.max", "hugetlb.2MB.rsvd.max"] {
        group.set(name, &LIMIT.to_string());
        is_limited(group.dir(), &group.dir().join(name), &pages);
        group.set(name, "max");
    }
    // A parent's limit holds for its children.
    let inner = group.inner();
    group.set("hugetlb.2MB.max", &LIMIT.to_string());
    is_limited(inner.dir(), &group.dir().join("hugetlb.2MB.max"), &pages);
    let enough = "--memory size=32M,hugepages=on,hugepage_size=2M --prealloc --verify";
    run_in(inner.dir(), enough).exits_with(0);
    pages.assert_clean();
}

/// A group of the memory controller, version 1 or 2, removed on drop.
struct MemoryGroup {
    dir: PathBuf,
    file: PathBuf,
}

impl MemoryGroup {
    fn new(limit: u64) -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let missing = || io::Error::new(io::ErrorKind::NotFound, "no memory controller");
        let v1 = |line: &&str| line.contains(" - cgroup ") && line.ends_with("memory");
        let line = mounts.lines().find(v1).ok_or_else(missing)?;
        let root = line.split_whitespace().nth(4).ok_or_else(missing)?;
        let dir = Path::new(root).join(format!("prezero-run-{}", std::process::id()));
        fs::create_dir(&dir)?;
        let group = Self {
            file: dir.join("memory.limit_in_bytes"),
            dir,
        };
        fs::write(&group.file, limit.to_string())?;
        Ok(group)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        for _ in 0..200 {
            match fs::remove_dir(&self.dir) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    thread::sleep(Duration::from_millis(5));
                }
                _ => break,
            }
        }
    }
}

#[test]
fn a_limit_on_memory_is_an_error_and_no_kill() {
    if !require_kvm() {
        return;
    }
    let _lock = MachineLock::acquire();
    let group = match MemoryGroup::new(128 << 20) {
        Ok(group) => group,
        Err(error) => return skip("memory cgroup", &error.to_string()),
    };
    let memory = "--memory size=256M,hugepages=off";
    let ran = run_in(&group.dir, &format!("{memory} --prealloc")).exits_with(3);
    let (error, fix) = ran.error_and_fix();
    let file = group.file.display().to_string();
    let start = format!("The cgroup limit on memory {file} is 128 MiB, ");
    assert!(
        error.starts_with(&start) && error.contains("256 MiB needed"),
        "{error}"
    );
    assert!(fix.starts_with("echo ") && fix.ends_with(&file), "{fix}");
    // What is typed is enough.
    let bytes = fix.split_whitespace().nth(1).expect("a number");
    let more: u64 = bytes.parse().expect("a number");
    fs::write(&group.file, (more + (32 << 20)).to_string()).expect("root may");
    run_in(&group.dir, &format!("{memory} --prealloc --verify")).exits_with(0);
    // Nobody asked for all of it at once.
    fs::write(&group.file, (128 << 20).to_string()).expect("root may");
    run_in(&group.dir, memory).exits_with(0);
}
