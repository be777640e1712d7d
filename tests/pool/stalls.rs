//! A worker that does not come back: the user is told, and a signal ends the command all the same.

use std::time::Duration;

use libc::{SIGINT, SIGTERM};
use prezero_testkit::thread_names_of;

use crate::command::{Running, error_of, finish, prezero};
use crate::fixture::{Fixture, PAGE, SEGMENT, eventually, size_of};
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
    let Some(fixture) = Fixture::new(256 + 16) else {
        return;
    };
    let free = fixture.pages.counters().free;
    fixture.pool("create", &size_of(8)).exits_with(0);
    fixture.stain_all();
    let (pool, exchanged) = (fixture.dir(), fixture.mount().join("exchanged"));
    let shown = exchanged.display();
    for args in [
        format!("pool create {shown} --exchange-only --size 32M --segment 32M"),
        format!("exec --pool {shown} --memory 32M -- true {{path}}"),
    ] {
        finish(prezero(&args)).exits_with(0);
    }
    let more = format!("{} --threads 1 --json", size_of(128));
    let slowly = "--rate 4M --threads 1 --json";
    let commands = [
        (&pool, "create", more.as_str(), SIGINT, "populated"),
        (&pool, "scrub", slowly, SIGTERM, "cleared"),
        (&exchanged, "scrub", slowly, SIGTERM, "populated"),
    ];
    let started: Vec<_> = commands
        .iter()
        .map(|(pool, what, args, ..)| {
            let command = format!("pool {what} {} {args}", pool.display());
            let free = fixture.pages.counters().free;
            let running = Running::start(prezero(&command));
            // At its work, and not before it: a thread that never begins holds up those that wait for it.
            match *what {
                "create" => eventually("a page is taken", || fixture.pages.counters().free < free),
                _ => std::thread::sleep(Duration::from_millis(500)),
            }
            let halted = halted(&running);
            (running, halted)
        })
        .collect();
    std::thread::sleep(Duration::from_secs(12));
    for ((_, _, _, signal, _), (running, _)) in commands.iter().zip(&started) {
        kill(running.pid(), *signal);
    }
    for ((pool, what, _, _, done), (running, halted)) in commands.iter().zip(started) {
        let ran = running.finish_within(Duration::from_secs(60)).exits_with(6);
        drop(halted);
        let told = ran.stderr.lines().next().unwrap_or_default();
        let says = format!("warning: No page was {done} for 1");
        assert!(told.starts_with(&says), "{ran:#?}");
        assert!(told.contains(" on node 0"), "{told}");
        let report = ran.json();
        assert_eq!(report["schema"], format!("prezero/pool-{what}/1"));
        assert_eq!(report["pool"], pool.display().to_string());
        if *what == "scrub" {
            assert_eq!(report["exchange"], *done == "populated", "{report:#}");
        }
        let (class, message, fix) = error_of(&report);
        assert_eq!(class, "stopped");
        assert!(message.starts_with("Stopped while the kernel"), "{message}");
        assert!(fix.is_some());
    }
    // What was not ready is not there, and what was not cleared is dirty.
    let [clean, dirty, leased, ..] = fixture.counts();
    assert!(clean + dirty < 128 && leased == 0, "{clean} {dirty}");
    assert_eq!(fixture.lies(), 0);
    std::fs::remove_dir_all(&exchanged).expect("it is ours");
    let pages = (clean + dirty) * SEGMENT / PAGE;
    eventually("nothing else is taken", || {
        fixture.pages.counters().free == free - pages
    });
}
