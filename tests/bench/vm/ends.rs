//! However it ends, the pages come back: after SIGINT, SIGTERM, and SIGKILL.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use libc::{SIGINT, SIGKILL, SIGTERM};
use prezero_testkit::{Hugepages, PrivateMount, skip};
use serde_json::Value;

use super::contract::{bench_vm, document, is_empty};
use super::{PAGE, executable, mounts_are_refused, pages};
use crate::command::{Running, error_of, finish};
use crate::contract::list;
use crate::sys::{group_exists, kill};

/// How long it may take to end after a signal.
const SOON: Duration = Duration::from_secs(10);

/// One that has so much to do that it cannot end before a signal, some way into it. None where it cannot
/// be at all.
fn running(dir: &Path, after: Duration) -> Option<Running> {
    let mut command = bench_vm("--memory 64M --runs 100000 --json");
    command.env("TMPDIR", dir);
    let mut running = Running::start(command);
    thread::sleep(after);
    if running.has_ended() {
        let ran = running.finish_within(SOON);
        assert!(mounts_are_refused(&ran), "it has much to do: {ran:#?}");
        return None;
    }
    Some(running)
}

#[track_caller]
fn all_is_back(pid: u32, pages: &Hugepages) {
    let deadline = Instant::now() + SOON;
    while group_exists(pid) {
        assert!(Instant::now() < deadline, "a child is left");
        thread::sleep(Duration::from_millis(1));
    }
    pages.assert_clean();
}

#[test]
fn a_signal_stops_it_and_everything_is_given_back() {
    let Some(pages) = pages() else { return };
    for (signal, after) in [(SIGINT, 1300), (SIGTERM, 700)] {
        let dir = tempfile::tempdir().expect("a directory");
        let Some(running) = running(dir.path(), Duration::from_millis(after)) else {
            return;
        };
        let pid = running.pid();
        kill(pid, signal);
        let report = document(running.finish_within(SOON), 6);
        assert_eq!(error_of(&report).0, "stopped");
        all_is_back(pid, &pages);
        is_empty(dir.path());
    }
}

#[test]
fn a_monitor_that_hangs_ends_with_it() {
    let Some(pages) = pages() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("qemu");
    let script = "#!/bin/sh\n[ \"$1\" = --version ] && exec echo QEMU emulator version 9.0.0\n\
        touch \"$0.runs\"\nexec sleep 1000\n";
    executable(&program, script);
    let runs = dir.path().join("qemu.runs");
    for signal in [SIGTERM, SIGKILL] {
        let own = tempfile::tempdir().expect("a directory");
        let args = format!("--memory 64M --threads 1 --peer qemu={}", program.display());
        let mut command = bench_vm(&args);
        command.env("TMPDIR", own.path());
        let mut running = Running::start(command);
        while !runs.exists() {
            if running.has_ended() {
                let ran = running.finish_within(SOON);
                assert!(mounts_are_refused(&ran), "nobody ended it: {ran:#?}");
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        let pid = running.pid();
        kill(pid, signal);
        drop(running.finish_within(SOON));
        all_is_back(pid, &pages);
        std::fs::remove_file(&runs).expect("it was made");
    }
}

#[test]
fn killed_at_any_moment_it_leaves_no_page_and_no_child() {
    let Some(pages) = pages() else { return };
    for after in [400, 510, 620, 730, 840, 950] {
        let dir = tempfile::tempdir().expect("a directory");
        let Some(running) = running(dir.path(), Duration::from_millis(after)) else {
            return;
        };
        let pid = running.pid();
        kill(pid, SIGKILL);
        drop(running.finish_within(SOON));
        all_is_back(pid, &pages);
    }
}

#[test]
fn what_a_killed_one_leaves_below_its_pool_the_next_one_removes() {
    let Some(pages) = pages() else { return };
    let Some(mount) = PrivateMount::hugetlbfs(PAGE) else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let bench = |runs: u32| {
        let pool = mount.path().display();
        let args = format!("--memory 64M --threads 1 --runs {runs} --pool {pool} --json");
        let mut command = bench_vm(&args);
        command.env("TMPDIR", dir.path());
        command
    };
    let left = |dir: &Path| std::fs::read_dir(dir).expect("a directory").count();
    // As timeout(1) sends its signal, it is one: what it asks for is an end in order.
    for signals in [&[SIGKILL][..], &[SIGTERM, SIGTERM]] {
        let mut running = Running::start(bench(100_000));
        let pid = running.pid();
        let filled = || {
            let own = std::fs::read_dir(mount.path()).expect("a mount").flatten();
            own.flat_map(|own| std::fs::read_dir(own.path().join("pool/node0")))
                .any(|segments| segments.count() > 0)
        };
        while !filled() {
            assert!(!running.has_ended(), "{:#?}", running.finish_within(SOON));
            thread::sleep(Duration::from_millis(1));
        }
        for signal in signals {
            kill(pid, *signal);
            // The kernel makes one of two that are not delivered yet.
            thread::sleep(Duration::from_millis(2));
        }
        drop(running.finish_within(SOON));
        let stays = left(mount.path());
        assert_eq!(stays, usize::from(signals == [SIGKILL]));
        let report = document(finish(bench(1)), 0);
        let notes = list(&report, "notes").iter().filter(|note| {
            let note = note.as_str().unwrap_or_default();
            note.contains("left by a bench vm that was killed")
        });
        assert_eq!(notes.count(), 2 * stays, "{report:#}");
        is_empty(mount.path());
        is_empty(dir.path());
    }
    pages.assert_clean();
}

#[test]
fn what_belongs_to_a_living_one_stays() {
    let Some(_pages) = pages() else { return };
    let Some(mount) = PrivateMount::hugetlbfs(PAGE) else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let bench = || {
        let pool = mount.path().display();
        let mut command = bench_vm(&format!("--memory 2M --runs 100000 --pool {pool}"));
        command.env("TMPDIR", dir.path());
        Running::start(command)
    };
    let (mut one, mut two) = (bench(), bench());
    let both = || {
        let count = |dir: &Path| std::fs::read_dir(dir).expect("a directory").count();
        count(mount.path()) == 2 && count(dir.path()) == 2
    };
    let deadline = Instant::now() + SOON;
    while !both() {
        assert!(Instant::now() < deadline, "not both are there");
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(Duration::from_millis(300));
    assert!(both() && !one.has_ended() && !two.has_ended());
    for running in [one, two] {
        kill(running.pid(), SIGTERM);
        drop(running.finish_within(SOON));
    }
    is_empty(mount.path());
    is_empty(dir.path());
}

/// What a dead one is called.
const DEAD: &str = "prezero-bench-0123456789abcdef";

#[test]
fn a_segment_that_somebody_has_leased_outlives_the_measurement_that_made_it() {
    let Some(_pages) = pages() else { return };
    let Some(mount) = PrivateMount::hugetlbfs(PAGE) else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let dead = mount.path().join(DEAD);
    DirBuilder::new()
        .mode(0o700)
        .create(&dead)
        .expect("it is ours");
    let pool = dead.join("pool");
    let args = "--size 4M --segment 2M";
    let mut create = Command::new(env!("CARGO_BIN_EXE_prezero"));
    create.args(["pool", "create"]).arg(&pool);
    create.args(args.split(' '));
    finish(create).exits_with(0);
    let segments = || -> Vec<PathBuf> {
        let node = std::fs::read_dir(pool.join("node0")).into_iter().flatten();
        node.flatten().map(|entry| entry.path()).collect()
    };
    assert_eq!(segments().len(), 2);
    let bench = || {
        let on = mount.path().display();
        let mut command = bench_vm(&format!("--memory 2M --threads 1 --pool {on} --json"));
        command.env("TMPDIR", dir.path());
        document(finish(command), 0)
    };
    let said = |report: &Value| {
        let notes = list(report, "notes").iter().filter_map(Value::as_str);
        let mut about = notes.filter(|note| note.contains(DEAD));
        let one = about.next().map(str::to_owned);
        (one, about.next().is_some())
    };
    let leased = File::open(&segments()[0]).expect("a segment");
    leased.lock().expect("nobody has it");
    let report = bench();
    let (Some(note), false) = said(&report) else {
        panic!("{report:#}");
    };
    assert!(note.contains("is in use by"), "{note}");
    assert_eq!(segments().len(), 1, "the other one is free");
    drop(leased);
    let (note, _) = said(&bench());
    assert!(note.is_some_and(|note| note.starts_with("Removed ")));
    is_empty(mount.path());
}

#[test]
fn what_others_have_mounted_below_such_a_name_stays() {
    let Some(_pages) = pages() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let [precious, temporary] = ["precious", "tmp"].map(|name| dir.path().join(name));
    let own = temporary.join(DEAD);
    for made in [&precious, &own] {
        std::fs::create_dir_all(made).expect("it is ours");
    }
    let file = precious.join("file");
    std::fs::write(&file, "").expect("it is ours");
    let bench = bench_vm("--memory 2M --threads 1");
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "sh",
        "-c",
        r#"mount --bind "$0" "$1" || exit 77; shift; exec "$@""#,
    ]);
    command.args([&precious, &own]).arg(bench.get_program());
    command.args(bench.get_args()).env("TMPDIR", &temporary);
    let ran = finish(command);
    if matches!(ran.status.code(), Some(1 | 77)) && ran.stderr.contains("unshare") {
        skip("mounts", &ran.stderr);
        return;
    }
    ran.exits_with(0);
    assert!(file.exists(), "it is not the measurement's");
}
