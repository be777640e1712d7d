//! Pools, state directories, children and an operator for the tests of growing.
#![allow(dead_code, reason = "every test file needs another part")]

use std::env;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use prezero_memory::{Control, GrowError, Growth, PageSize, PoolNeed};
use prezero_testkit::{Counters, Hugepages, Pool, skip};
use tempfile::TempDir;

/// The page size of these tests.
pub(crate) const PAGE: PageSize = PageSize::HUGE_2M;

/// A pool that nobody else changes meanwhile, and its counters; for root only.
pub(crate) fn pool(page: PageSize) -> Option<(Hugepages, Counters)> {
    let guard = Hugepages::take(page.bytes(), 0)?;
    let size = page.bytes() >> 10;
    let path = format!("/sys/kernel/mm/hugepages/hugepages-{size}kB/nr_hugepages");
    if let Err(error) = OpenOptions::new().write(true).open(&path) {
        skip("hugepages", &format!("{path}: {error}"));
        return None;
    }
    let counters = guard.counters();
    Some((guard, counters))
}

/// A state directory of its own, below a temporary directory.
pub(crate) struct State {
    dir: TempDir,
}

impl State {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        Self { dir }
    }

    /// Not there before the first growth.
    pub(crate) fn dir(&self) -> PathBuf {
        self.dir.path().join("prezero")
    }

    /// Grows the pools of this machine.
    pub(crate) fn grow(&self, needs: &[PoolNeed]) -> Result<Growth, GrowError> {
        Growth::grow(Path::new("/"), &self.dir(), needs, &Control::default())
    }

    /// The journals that are there.
    pub(crate) fn journals(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir()).expect("readable");
        let names = entries.map(|entry| entry.expect("readable").file_name());
        names
            .map(|name| name.into_string().expect("text"))
            .filter(|name| name != "growth.lock")
            .collect()
    }
}

/// So many pages more than are available now.
pub(crate) fn more(page: PageSize, pages: u64) -> PoolNeed {
    let available = counters(page).available();
    PoolNeed {
        page,
        node: None,
        pages: available + pages,
    }
}

/// The counters of a pool of this machine.
pub(crate) fn counters(page: PageSize) -> Counters {
    Pool::of(page.bytes())
        .and_then(|pool| pool.counters())
        .expect("sysfs")
}

/// An operator changes the size of the pool, on the lowest node.
pub(crate) fn operator(pages: i64) {
    let dir = Path::new("/sys/devices/system/node/node0/hugepages/hugepages-2048kB");
    let dir = match dir.is_dir() {
        true => dir,
        false => Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB"),
    };
    let count = |file: &str| -> u64 {
        let text = fs::read_to_string(dir.join(file)).expect("sysfs");
        text.trim().parse().expect("a number")
    };
    let size = count("nr_hugepages") - count("surplus_hugepages");
    let size = size.checked_add_signed(pages).expect("enough pages");
    fs::write(dir.join("nr_hugepages"), size.to_string()).expect("root may");
}

const POOL: &str = "sys/kernel/mm/hugepages/hugepages-2048kB";
const NODE: &str = "sys/devices/system/node/node0/hugepages/hugepages-2048kB";

/// A root in which the pool of 2 MiB pages is this machine's, but `free` of them are free, always,
/// and so many MiB of memory are available. None on a kernel without nodes.
pub(crate) fn root_with(free: Option<u64>, available: u64) -> Option<TempDir> {
    if !Path::new("/").join(NODE).is_dir() {
        return None;
    }
    let root = tempfile::tempdir().expect("temporary directory");
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().expect("below the root")).expect("created");
        fs::write(path, text).expect("written");
    };
    write(
        "proc/meminfo",
        &format!("MemAvailable: {} kB\n", available << 10),
    );
    write("proc/sys/vm/compact_memory", "");
    write("proc/sys/vm/drop_caches", "");
    write("sys/devices/system/node/online", "0\n");
    for dir in [POOL, NODE] {
        fs::create_dir_all(root.path().join(dir)).expect("created");
        if let Some(free) = free {
            write(&format!("{dir}/free_hugepages"), &format!("{free}\n"));
        }
        for entry in fs::read_dir(Path::new("/").join(dir)).expect("a pool") {
            let entry = entry.expect("readable");
            let link = root.path().join(dir).join(entry.file_name());
            if !link.exists() {
                symlink(entry.path(), link).expect("linked");
            }
        }
    }
    Some(root)
}

const STATE: &str = "PREZERO_TEST_STATE";

/// The ignored `test` of a test binary, for a process of its own that gets the directory.
pub(crate) fn child(mut command: Command, test: &str, state: &Path) -> Command {
    command
        .args([
            test,
            "--exact",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(STATE, state);
    command
}

/// The directory, in a process that [`child`] started; else the ignored test has nothing to do.
pub(crate) fn state_of_child() -> Option<PathBuf> {
    env::var_os(STATE).map(PathBuf::from)
}

/// Types commands as root, who needs no sudo.
#[track_caller]
pub(crate) fn type_in(commands: &str) {
    let script = commands.replace("sudo ", "");
    let output = Command::new("sh")
        .args(["-ec", &script])
        .output()
        .expect("sh starts");
    assert!(output.status.success(), "{script}\n{output:?}");
}
