//! A worker that does not come back: the user is told, and a signal ends the command all the same.

use std::time::Duration;

use libc::{SIGINT, SIGTERM};
use prezero_testkit::thread_names_of;

use crate::command::{Running, error_of};
use crate::fixture::{Fixture, SEGMENT, eventually, size_of};
use crate::sys::{Halted, kill};

/// Halts the only worker of a command, which begins with one.
#[track_caller]
fn halted(running: &Running) -> Halted {
    let pid = running.pid();
    let worker = || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        let ids = tasks.flatten();
        let mut ids = ids.filter_map(|task| task.file_name().to_str()?.parse::<u32>().ok());
        ids.find(|id| *id != pid)
    };
    eventually("there is a worker", || {
        let names = thread_names_of(pid);
        names.iter().any(|name| name.starts_with("prezero-n"))
    });
    Halted::new(worker().expect("a worker"))
}

/// With a worker in a call that does not return, as far as the others can see.
#[test]
fn create_and_scrub_tell_of_a_stall_and_end_when_they_are_told_to() {
    // Long enough to be caught: at a rate, or because of its size.
    let Some(fixture) = Fixture::new(256) else {
        return;
    };
    fixture.pool("create", &size_of(8)).exits_with(0);
    fixture.stain_all();
    let more = format!("{} --threads 1 --json", size_of(128));
    let commands = [
        ("create", more.as_str(), SIGINT),
        ("scrub", "--rate 4M --threads 1 --json", SIGTERM),
    ];
    let started: Vec<_> = commands
        .iter()
        .map(|(what, args, _)| {
            let running = Running::start(fixture.command(what, args));
            let halted = halted(&running);
            (running, halted)
        })
        .collect();
    std::thread::sleep(Duration::from_secs(12));
    for ((.., signal), (running, _)) in commands.iter().zip(&started) {
        kill(running.pid(), *signal);
    }
    for ((what, ..), (running, halted)) in commands.iter().zip(started) {
        let ran = running.finish_within(Duration::from_secs(60)).exits_with(6);
        drop(halted);
        let told = ran.stderr.lines().next().unwrap_or_default();
        let done = if *what == "create" {
            "populated"
        } else {
            "cleared"
        };
        let says = format!("warning: No page was {done} for 1");
        assert!(told.starts_with(&says), "{ran:#?}");
        assert!(told.contains(" on node 0"), "{told}");
        let report = ran.json();
        assert_eq!(report["schema"], format!("prezero/pool-{what}/1"));
        assert_eq!(report["pool"], fixture.dir().display().to_string());
        let (class, message, fix) = error_of(&report);
        assert_eq!(class, "stopped");
        assert!(message.starts_with("Stopped while the kernel"), "{message}");
        assert!(fix.is_some());
    }
    // What was not ready is not there, and what was not cleared is dirty.
    let [clean, dirty, leased, ..] = fixture.counts();
    assert!(clean + dirty < 128 && leased == 0, "{clean} {dirty}");
    assert_eq!(fixture.lies(), 0);
    let pages = (clean + dirty) * SEGMENT / crate::fixture::PAGE;
    let counters = fixture.pages.counters();
    assert!(counters.total - counters.free >= pages);
}
