//! Hugepages in use: whoever holds them is found, and only what nobody holds is suspected.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use prezero_testkit::{Hugepages, skip};

use crate::command::{Running, finish};
use crate::contract::{doctor, one};
use crate::sys::{Mapping, Segment};

/// A shell in a mount namespace with 4 MiB in a file on a hugetlbfs of its own, below `dir`.
fn with_file(dir: &Path, then: &str) -> Command {
    let mut command = Command::new("unshare");
    let script = format!(
        "mount -t hugetlbfs -o pagesize=2M none {dir} && fallocate -l 4M {dir}/file && {then}",
        dir = dir.display()
    );
    command.args(["--mount", "--propagation", "private", "bash", "-c", &script]);
    command.arg(env!("CARGO_BIN_EXE_prezero"));
    command
}

/// Four free pages, none of the host's others in use, and the right to mount: or the test is skipped.
#[track_caller]
fn pages() -> Option<(Hugepages, tempfile::TempDir)> {
    let pages = Hugepages::take(2 << 20, 4)?;
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut tried = with_file(dir.path(), "true");
    let tried = tried.stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !tried.is_ok_and(|status| status.success()) {
        skip("hugetlbfs", "only root can mount one");
        return None;
    }
    let counters = pages.counters();
    if counters.total != counters.free {
        skip("hugepages", "somebody else uses hugepages");
        return None;
    }
    pages.assert_clean();
    Some((pages, dir))
}

#[track_caller]
fn held() -> (String, String) {
    // Whatever the exit code: there may be no /dev/kvm.
    let report = doctor("--json").json();
    let (level, message, _) = one(&report, "held");
    (level.to_owned(), message.to_owned())
}

/// Until the two pages are taken.
#[track_caller]
fn wait_for_use(pages: &Hugepages) {
    let deadline = Instant::now() + Duration::from_secs(10);
    let free = pages.counters().total - 2;
    while pages.counters().free != free {
        assert!(Instant::now() < deadline, "{:?}", pages.counters());
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn pages_that_nobody_holds_are_suspected() {
    let Some((pages, dir)) = pages() else { return };
    // A working directory holds the mount, and no table shows it any more.
    let unseen = format!(
        "cd {0} && umount -l {0} && \"$0\" doctor --json",
        dir.path().display()
    );
    let report = finish(with_file(dir.path(), &unseen)).json();
    let (level, message, fix) = one(&report, "held");
    assert_eq!(level, "warning", "{message}");
    assert!(
        message.starts_with("2 pages of 2 MiB used, but nobody holds them"),
        "{message}"
    );
    assert!(fix.contains("dmesg"), "{fix}");
    pages.assert_clean();
}

#[test]
fn a_file_on_a_mount_of_ones_own_is_named_by_its_path() {
    let Some((pages, dir)) = pages() else { return };
    let report = finish(with_file(dir.path(), "exec \"$0\" doctor --json")).json();
    let (level, message, _) = one(&report, "held");
    assert_eq!(level, "ok");
    let path = format!(" in {}/file", dir.path().display());
    assert!(message.ends_with(&path), "{message}");
    pages.assert_clean();
}

#[test]
fn a_file_in_another_mount_namespace_holds_its_pages() {
    let Some((pages, dir)) = pages() else { return };
    let holder = Running::start(with_file(dir.path(), "exec sleep 30"));
    wait_for_use(&pages);
    let (level, message) = held();
    assert_eq!(level, "ok");
    assert!(
        message.contains("2 pages of 2 MiB in use, in /proc/"),
        "{message}"
    );
    assert!(message.ends_with("/file"), "{message}");
    drop(holder);
    pages.assert_clean();
}

#[test]
fn a_descriptor_of_a_removed_file_holds_its_pages() {
    let Some((pages, dir)) = pages() else { return };
    let file = dir.path().join("file");
    let then = format!("exec 9<{0} && rm {0} && exec sleep 30", file.display());
    let holder = Running::start(with_file(dir.path(), &then));
    let pid = holder.pid();
    wait_for_use(&pages);
    // The file is used before it is removed.
    let deadline = Instant::now() + Duration::from_secs(10);
    let expected = format!("by a descriptor of process {pid}");
    loop {
        let (level, message) = held();
        assert_eq!(level, "ok");
        if message.ends_with(&expected) {
            break;
        }
        assert!(Instant::now() < deadline, "{message}, not {expected}");
    }
    drop(holder);
    pages.assert_clean();
}

#[test]
fn a_process_that_maps_them_holds_its_pages() {
    let Some((pages, _dir)) = pages() else { return };
    let mapping = Mapping::of_hugepages(4 << 20);
    let (level, message) = held();
    let expected = format!("2 pages of 2 MiB in use, by process {}", std::process::id());
    assert_eq!((level.as_str(), message), ("ok", expected));
    drop(mapping);
    pages.assert_clean();
}

#[test]
fn a_shared_segment_holds_its_pages_without_any_process() {
    let Some((pages, _dir)) = pages() else { return };
    let Some(segment) = Segment::of_hugepages(4 << 20) else {
        return skip("hugepages", "no System V segment of 2 MiB pages");
    };
    let (level, message) = held();
    assert_eq!(level, "ok");
    assert!(message.contains("shared memory segment"), "{message}");
    drop(segment);
    pages.assert_clean();
}

#[test]
fn pages_that_are_free_have_no_holder() {
    let Some((pages, _dir)) = pages() else { return };
    assert_eq!(
        held(),
        ("ok".to_owned(), "No hugepage is in use".to_owned())
    );
    pages.assert_clean();
}
