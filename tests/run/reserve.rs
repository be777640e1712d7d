//! `--reserve`: pages are added for a run, said, and taken out again, however the run ends.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use libc::{SIGCONT, SIGINT, SIGSTOP, SIGTERM};
use prezero_testkit::{Hugepages, maps_containing_of, require_kvm, skip, thread_names_of};

use crate::command::{PublicCopy, Running, error_of, finish, prezero_run, run};
use crate::private_dev::{self, USER, as_user, kvm_of_group};
use crate::signals::signalled;
use crate::sys::kill;

/// Where `prezero run` keeps its lock and journals.
pub(crate) const STATE_DIR: &str = "/run/prezero";

const PAGE: u64 = 2 << 20;
const POOL: &str = "/proc/sys/vm/nr_hugepages";
const SOON: Duration = Duration::from_secs(5);

/// Whether this test may change the pools, after [`skip`] where not.
#[track_caller]
pub(crate) fn may_reserve() -> bool {
    let may = OpenOptions::new().write(true).open(POOL).is_ok();
    if !may {
        skip("hugepages", "only root can change the pools");
    }
    may
}

/// Four free pages, where growing is allowed and 2 MiB are the default size.
#[track_caller]
fn four_pages() -> Option<Hugepages> {
    if !require_kvm() {
        return None;
    }
    let pages = Hugepages::exactly(PAGE, 4)?;
    may_reserve().then_some(pages)
}

fn journals() -> usize {
    let entries = fs::read_dir(STATE_DIR).map_or(0, |entries| entries.flatten().count());
    // The lock stays.
    entries.saturating_sub(usize::from(
        Path::new(STATE_DIR).join("growth.lock").exists(),
    ))
}

#[test]
fn what_was_asked_and_got_is_said_and_given_back() {
    let Some(pages) = four_pages() else {
        return;
    };
    let before = journals();
    for (keys, node) in [
        ("hugepages=on", None),
        ("hugepages=auto", None),
        ("host_numa_node=0", Some(0)),
        ("host_nodes=0,policy=interleave", Some(0)),
        ("host_nodes=0,policy=preferred", None),
    ] {
        let args =
            format!("--memory size=64M,hugepage_size=2M,{keys} --reserve --prealloc --verify");
        let ran = run(&format!("{args} --json")).exits_with(0);
        assert_eq!(ran.stderr, "");
        let report = ran.json();
        let [grown] = &report["grown"].as_array().expect("a list")[..] else {
            panic!("{report:#}");
        };
        assert_eq!(
            (&grown["asked_pages"], &grown["got_pages"]),
            (&28.into(), &28.into())
        );
        assert_eq!(
            (&grown["page_size"], grown["node"].as_u64()),
            (&PAGE.into(), node)
        );
        assert_eq!(report["regions"][0]["backing"], "memfd");
        pages.assert_clean();
        let text = run(&args).exits_with(0).stdout;
        assert!(text.contains("28 pages of 2 MiB added"), "{text}");
        pages.assert_clean();
    }
    // Nothing is missing, so nothing is added.
    let enough = "--memory size=8M,hugepages=on,hugepage_size=2M --reserve --prealloc --json";
    let report = run(enough).exits_with(0).json();
    assert!(report.get("grown").is_none(), "{report:#}");
    pages.assert_clean();
    assert_eq!(journals(), before);
}

#[test]
fn the_pool_is_as_before_where_the_run_fails() {
    let Some(pages) = four_pages() else {
        return;
    };
    let memory = "hugepages=on,hugepage_size=2M --reserve --prealloc --json";
    for (args, code, class) in [
        // More than the machine has, and more than the guest can have.
        (format!("--memory size=4T,{memory}"), 3, "shortage"),
        (format!("--memory size=64M,{memory} --cpus 0"), 2, "usage"),
        (
            format!("--memory size=64M,{memory} --start-timeout 0s"),
            6,
            "stopped",
        ),
        (format!("--memory size=63M,{memory}"), 2, "usage"),
    ] {
        let report = run(&args).exits_with(code).json();
        assert_eq!(error_of(&report).0, class, "{report:#}");
        pages.assert_clean();
    }
    let copy = PublicCopy::new();
    let setup = kvm_of_group(USER, "660");
    let args = format!("--memory size=64M,{memory}");
    let command = private_dev::prezero_run(&setup, &as_user(USER), &copy.binary(), &args);
    let report = finish(command.expect("root may")).exits_with(4).json();
    let (class, message, fix) = error_of(&report);
    assert_eq!(class, "host");
    assert!(fix.is_some(), "{message}");
    pages.assert_clean();
}

#[test]
fn the_pool_is_as_before_where_the_guest_finds_a_byte() {
    let Some(pages) = four_pages() else {
        return;
    };
    // Not populated, so that the guest is slow.
    let args = "--memory size=256M,hugepages=on,hugepage_size=2M --reserve --verify --json";
    for _ in 0..20 {
        let mut running = Running::start(prezero_run(args));
        let pid = running.pid();
        if grown_and_running(&mut running) {
            write_into_guest(pid);
        }
        let ran = running.finish_within(SOON);
        pages.assert_clean();
        if ran.status.code() == Some(5) {
            let report = ran.json();
            assert_eq!(error_of(&report).0, "guest");
            assert_eq!(report["grown"][0]["got_pages"], 124, "{report:#}");
            return;
        }
    }
    panic!("the guest was always faster");
}

/// Waits for the guest to run; false if it was too fast.
fn grown_and_running(running: &mut Running) -> bool {
    while !running.has_ended() {
        let names = thread_names_of(running.pid());
        if names.iter().any(|name| name.starts_with("prezero-vcpu")) {
            return true;
        }
        thread::sleep(Duration::from_micros(200));
    }
    false
}

/// A byte at the end of the guest's memory, behind the back of everybody.
fn write_into_guest(pid: u32) {
    let maps = maps_containing_of(pid, "prezero-ram");
    let end = maps.last().and_then(|line| line.split(['-', ' ']).nth(1));
    let end = end.and_then(|end| u64::from_str_radix(end, 16).ok());
    let memory: Option<File> = OpenOptions::new()
        .write(true)
        .open(format!("/proc/{pid}/mem"))
        .ok();
    if let (Some(end), Some(memory)) = (end, memory) {
        // Fails where the guest has ended meanwhile.
        let _ = memory.write_at(&[1], end - 1);
    }
}

#[test]
fn the_pool_is_as_before_after_a_signal() {
    let Some(pages) = four_pages() else {
        return;
    };
    let args =
        "--memory size=512M,hugepages=on,hugepage_size=2M --reserve --prealloc --threads 1 --json";
    // timeout(1) sends its signal twice at once.
    for signals in [&[SIGINT][..], &[SIGTERM], &[SIGTERM, SIGTERM]] {
        let stopped = (0..10).find_map(|_| {
            let ran = signalled(args, "prezero-n", signals);
            pages.assert_clean();
            ran.filter(|ran| ran.status.code() != Some(0))
        });
        let report = stopped.expect("one in ten is in time").exits_with(6).json();
        assert_eq!(report["grown"][0]["got_pages"], 252, "{report:#}");
    }
}

#[test]
fn two_runs_and_an_operator_do_not_undo_each_other() {
    let Some(pages) = four_pages() else {
        return;
    };
    let start = pages.counters();
    let args = "--memory size=256M,hugepages=on,hugepage_size=2M --reserve --verify";
    for _ in 0..10 {
        let mut runs = [args, args].map(|args| Running::start(prezero_run(args)));
        let mut both = true;
        for run in &mut runs {
            both &= grown_and_running(run);
            kill(run.pid(), SIGSTOP);
        }
        let during = pages.counters().total;
        both &= during == start.total + 2 * 128 - 4;
        if both {
            operator(3);
        }
        for run in &runs {
            kill(run.pid(), SIGCONT);
        }
        for run in runs {
            run.finish_within(SOON).exits_with(0);
        }
        if both {
            let total = until_total(&pages, start.total + 3);
            operator(-3);
            assert_eq!(total, start.total + 3);
            pages.assert_clean();
            return;
        }
        pages.assert_clean();
    }
    panic!("the two were never at the same time");
}

fn operator(pages: i64) {
    let count = fs::read_to_string(POOL).expect("readable");
    let count: u64 = count.trim().parse().expect("a number");
    let count = count.checked_add_signed(pages).expect("enough pages");
    fs::write(POOL, count.to_string()).expect("root may");
}

/// The counters lag behind the last munmap.
pub(crate) fn until_total(pages: &Hugepages, wanted: u64) -> u64 {
    let deadline = Instant::now() + Duration::from_secs(2);
    while pages.counters().total != wanted && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
    pages.counters().total
}
