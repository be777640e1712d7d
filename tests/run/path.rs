//! `path=`: guest memory in a nameless file on a hugetlbfs mount, or a refusal that creates nothing.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use libc::SIGKILL;
use prezero_testkit::{Hugepages, require_kvm};

use crate::command::{PublicCopy, Ran, Running, error_of, finish, prezero, run};
use crate::mounts::{MountPoint, prezero_after};
use crate::private_dev::{USER, as_user, kvm_of_group};
use crate::sys::kill;

const PAGE: u64 = 2 << 20;

fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_prezero"))
}

/// Runs it with a mount at `at`, after more setup.
#[track_caller]
fn run_on(at: &MountPoint, options: &str, setup: &str, args: &str) -> Option<Ran> {
    let setup = at.mount(options) + setup;
    prezero_after(&setup, "", binary(), args).map(finish)
}

fn spec(at: &MountPoint, mib: u64) -> String {
    format!("size={mib}M,hugepages=on,path={}", at.path().display())
}

#[track_caller]
fn is_empty(dir: &Path) {
    assert_eq!(fs::read_dir(dir).expect("readable").count(), 0);
}

#[test]
fn an_ordinary_directory_is_refused_and_nothing_is_created() {
    let at = MountPoint::new();
    let dir = at.path().display();
    for command in ["run", "plan"] {
        for (mode, path) in [("auto", format!("{dir}")), ("on", format!("{dir}/below"))] {
            let args = format!("{command} --memory size=64M,hugepages={mode},path={path} --json");
            let ran = finish(prezero(&args)).exits_with(2);
            let report = ran.json();
            let (class, message, fix) = error_of(&report);
            assert_eq!(class, "usage");
            assert!(message.contains("is not on a hugetlbfs mount"), "{message}");
            assert!(message.contains(&path) && fix.is_some(), "{report:#}");
            is_empty(at.path());
        }
    }
}

#[test]
fn memory_on_a_mount_has_no_name_and_is_given_back() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::take(PAGE, 32) else {
        return;
    };
    let at = MountPoint::new();
    // The list of files is what is on the mount when the command has ended.
    let listing = format!("trap 'ls -A {} >&2' EXIT; $0 ", at.path().display());
    let args = format!("run --memory {} --prealloc --verify --json", spec(&at, 64));
    let setup = at.mount("size=64M") + &listing + &args + "; exit $?;";
    let Some(command) = prezero_after(&setup, "", binary(), "") else {
        return;
    };
    let ran = finish(command).exits_with(0);
    assert_eq!(ran.stderr, "");
    let report = ran.json();
    assert_eq!(report["regions"][0]["backing"], "hugetlbfs", "{report:#}");
    assert_eq!(report["regions"][0]["page_size"], PAGE);
    assert_eq!(report["guest"]["scanned_bytes"], 64 << 20);
    pages.assert_clean();
}

#[test]
fn the_file_is_for_its_owner_only_and_goes_with_the_process() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::take(PAGE, 128) else {
        return;
    };
    let at = MountPoint::new();
    let setup = at.mount("mode=1777") + "umask 0; ";
    let args = format!("run --memory {} --prealloc --verify", spec(&at, 256));
    let mut seen = None;
    for _ in 0..10 {
        let Some(command) = prezero_after(&setup, "", binary(), &args) else {
            return;
        };
        let mut running = Running::start(command);
        let pid = running.pid();
        while seen.is_none() && !running.has_ended() {
            seen = file_below(pid, at.path());
            thread::sleep(Duration::from_micros(200));
        }
        if seen.is_some() {
            kill(pid, SIGKILL);
        }
        running.finish_within(Duration::from_secs(5));
        pages.assert_clean();
        if seen.is_some() {
            break;
        }
    }
    let (mode, links) = seen.expect("the file was never seen");
    assert_eq!((mode & 0o7777, links), (0o600, 0));
}

/// Mode and links of a process's open file below `dir`.
fn file_below(pid: u32, dir: &Path) -> Option<(u32, u64)> {
    let fds = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    fds.flatten().find_map(|fd| {
        let target = fs::read_link(fd.path()).ok()?;
        let below = target.starts_with(dir) && target != dir;
        let facts = below.then(|| fs::metadata(fd.path()).ok()).flatten()?;
        Some((facts.mode(), facts.nlink()))
    })
}

#[test]
fn a_mount_of_somebody_else_is_refused_with_its_owner() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::take(PAGE, 32) else {
        return;
    };
    let (at, copy) = (MountPoint::new(), PublicCopy::new());
    // /dev/kvm is made anew, so that the host's keeps its mode.
    let setup = at.mount("mode=755") + "mount -t tmpfs -o mode=755 none /dev && ";
    let setup = setup + &kvm_of_group(USER, "660");
    let args = format!("run --memory {} --prealloc --json", spec(&at, 64));
    let Some(command) = prezero_after(&setup, &as_user(USER), &copy.binary(), &args) else {
        return;
    };
    let ran = finish(command).exits_with(4);
    let report = ran.json();
    let (class, message, fix) = error_of(&report);
    assert_eq!(class, "host");
    let dir = at.path().display();
    let start =
        format!("No file can be created in {dir} by user {USER} (owned by user 0, mode 0755)");
    assert!(message.starts_with(&start), "{message}");
    let fix = fix.expect("a way out");
    assert!(
        fix.contains("a memfd needs no mount") && fix.contains(&format!("chown {USER} {dir}")),
        "{fix}"
    );
    pages.assert_clean();
    // The way out works.
    let args = "run --memory size=64M,hugepages=on,hugepage_size=2M --prealloc";
    let command = prezero_after(&setup, &as_user(USER), &copy.binary(), args);
    finish(command.expect("it could a moment ago")).exits_with(0);
    pages.assert_clean();
}

#[test]
fn the_size_of_a_mount_is_named_by_the_plan_and_by_the_kernel() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::take(PAGE, 64) else {
        return;
    };
    let at = MountPoint::new();
    let dir = at.path().display();
    let args = format!("run --memory {} --prealloc --json", spec(&at, 64));
    let Some(ran) = run_on(&at, "size=62M", "", &args) else {
        return;
    };
    let report = ran.exits_with(3).json();
    let (_, planned, fix) = error_of(&report);
    let limit =
        format!("The size limit of the mount {dir} is 62 MiB, 0 bytes in use, 64 MiB needed");
    assert!(planned.starts_with(&limit), "{planned}");
    let fix = fix.expect("the mount can grow");
    let size = format!("size={}", 64 << 20);
    assert!(fix.ends_with(&size), "{fix}");
    // Both ways out work; a remount would not (`hugetlbfs_fs_context_ops` has no reconfigure, fs/hugetlbfs/inode.c).
    run_on(&at, &size, "", &args)
        .expect("it could before")
        .exits_with(0);
    let memfd = args.replace(&format!("path={dir}"), "hugepage_size=2M");
    run_on(&at, "size=62M", "", &memfd)
        .expect("it could before")
        .exits_with(0);
    // A file of somebody else takes half of it, which only the kernel knows.
    let taken = format!("fallocate -l 32M {dir}/other && ");
    let ran = run_on(&at, "size=64M", &taken, &args).expect("it could before");
    let report = ran.exits_with(3).json();
    let (_, refused, _) = error_of(&report);
    let limit =
        format!("The size limit of the mount {dir} is 64 MiB, 32 MiB in use, 64 MiB needed");
    assert!(refused.starts_with(&limit), "{refused}");
    // Without hugepages=on it is ordinary memory, with the reason.
    let auto = args.replace("hugepages=on,", "");
    let ran = run_on(&at, "size=64M", &taken, &auto).expect("it could before");
    let ran = ran.exits_with(0);
    assert!(ran.stderr.contains(&limit), "{ran:#?}");
    pages.assert_clean();
}

#[test]
fn no_mount_is_needed_and_of_two_the_one_that_is_named_is_used() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::take(PAGE, 32) else {
        return;
    };
    let (one, two) = (MountPoint::new(), MountPoint::new());
    let setup = one.mount("size=2M") + &two.mount("size=64M");
    let memfd = "run --memory size=64M,hugepages=on,hugepage_size=2M --prealloc --json";
    let Some(command) = prezero_after(&setup, "", binary(), memfd) else {
        return;
    };
    let report = finish(command).exits_with(0).json();
    assert_eq!(report["regions"][0]["backing"], "memfd", "{report:#}");
    // Whatever mounts there are here, a memfd is on none of them.
    let report = run(memfd.strip_prefix("run ").expect("a run"))
        .exits_with(0)
        .json();
    assert_eq!(report["regions"][0]["backing"], "memfd", "{report:#}");
    for (at, code) in [(&one, 3), (&two, 0)] {
        let args = format!("run --memory {} --prealloc --json", spec(at, 64));
        let command = prezero_after(&setup, "", binary(), &args).expect("it could before");
        finish(command).exits_with(code);
        pages.assert_clean();
    }
}
