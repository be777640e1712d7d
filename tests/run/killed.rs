//! SIGKILL at any moment: the pages come back by themselves, or where they cannot, what is left is found and undone.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use libc::SIGKILL;
use prezero_memory::leftovers;
use prezero_testkit::{Hugepages, require_kvm};

use crate::command::{Running, finish, prezero_run};
use crate::mounts::{MountPoint, prezero_after};
use crate::reserve::{STATE_DIR, may_reserve};
use crate::sys::{group_exists, kill};

const PAGE: u64 = 2 << 20;
const SOON: Duration = Duration::from_secs(2);

/// Starts it, kills it after at most `longest`, and says its number and whether it was killed before it ended.
#[track_caller]
pub(crate) fn killed(command: Command, longest: Duration) -> (u32, bool) {
    let random = RandomState::new().build_hasher().finish();
    let micros = u64::try_from(longest.as_micros()).expect("a short time");
    let delay = Duration::from_micros(random % micros);
    let mut running = Running::start(command);
    let pid = running.pid();
    // A shell that sets something up first is not what is killed.
    while !is_prezero(pid) && !running.has_ended() {
        thread::sleep(Duration::from_micros(200));
    }
    thread::sleep(delay);
    kill(pid, SIGKILL);
    let ran = running.finish_within(SOON);
    let killed = ran.signal() == Some(SIGKILL);
    assert!(killed || ran.status.success(), "after {delay:?}: {ran:#?}");
    assert!(!group_exists(pid), "a child is left, after {delay:?}");
    (pid, killed)
}

fn is_prezero(pid: u32) -> bool {
    let name = fs::read_to_string(format!("/proc/{pid}/comm"));
    name.is_ok_and(|name| name.trim_end() == "prezero")
}

/// How long such a run takes here.
#[track_caller]
pub(crate) fn length_of(command: impl Fn() -> Command) -> Duration {
    let took = [(); 3].map(|()| finish(command()).exits_with(0).took);
    // Most of the shortest of them is still within all others.
    took.into_iter().min().unwrap_or_default() * 4 / 5
}

#[test]
fn a_killed_run_leaves_nothing_behind() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::take(PAGE, 64) else {
        return;
    };
    let args = "--memory size=128M,hugepages=on,hugepage_size=2M --prealloc --verify";
    let longest = length_of(|| prezero_run(args));
    let dead = (0..20).filter(|_| {
        let (_, killed) = killed(prezero_run(args), longest);
        pages.assert_clean();
        killed
    });
    assert!(dead.count() >= 5, "too few were killed in time");
}

#[test]
fn a_killed_run_leaves_nothing_on_a_mount() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::take(PAGE, 64) else {
        return;
    };
    let at = MountPoint::new();
    let memory = format!("size=128M,hugepages=on,path={}", at.path().display());
    let args = format!("run --memory {memory} --prealloc --verify");
    let binary = Path::new(env!("CARGO_BIN_EXE_prezero"));
    let command = || prezero_after(&at.mount("size=128M"), "", binary, &args);
    if command().is_none() {
        return;
    }
    let longest = length_of(|| command().expect("it could before"));
    let dead = (0..20).filter(|_| {
        let (_, killed) = killed(command().expect("it could before"), longest);
        pages.assert_clean();
        killed
    });
    assert!(dead.count() >= 5, "too few were killed in time");
}

#[test]
fn what_a_killed_run_added_to_the_pool_is_found_and_its_fix_works() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::exactly(PAGE, 4) else {
        return;
    };
    if !may_reserve() {
        return;
    }
    let args = "--memory size=128M,hugepages=on,hugepage_size=2M --reserve --prealloc --verify";
    let longest = length_of(|| prezero_run(args));
    pages.assert_clean();
    let mut left = 0;
    for _ in 0..20 {
        let (pid, _) = killed(prezero_run(args), longest);
        let found = leftovers(Path::new(STATE_DIR)).expect("readable");
        let own = found.into_iter().filter(|leftover| leftover.pid == pid);
        for leftover in own {
            left += usize::from(!leftover.pools.is_empty());
            let fix = leftover.fix().replace("sudo ", "");
            let typed = Command::new("sh").args(["-ec", &fix]).output();
            let typed = typed.expect("sh starts");
            assert!(typed.status.success(), "{fix}: {typed:?}");
        }
        // A journal that had no entry yet stays behind, and owes nobody anything.
        let _ = fs::remove_file(format!("{STATE_DIR}/growth-{pid}-0"));
        let found = leftovers(Path::new(STATE_DIR)).expect("readable");
        assert!(
            found.iter().all(|leftover| leftover.pid != pid),
            "{found:?}"
        );
        pages.assert_clean();
    }
    assert!(left > 0, "none was killed while it had pages to give back");
}
