//! Killed at any moment, a pool opens again, and what is said to be clean is.

use std::thread;
use std::time::Duration;

use crate::command::Running;
use crate::fixture::{Fixture, SEGMENT, eventually, size_of};
use crate::sys::kill;

#[test]
fn a_scrub_killed_at_any_moment_leaves_no_lie() {
    let Some(fixture) = Fixture::with_pool(8) else {
        return;
    };
    for n in 0..30 {
        fixture.stain_all();
        let running = Running::start(fixture.command("scrub", "--method portable --threads 1"));
        thread::sleep(Duration::from_micros(700 * n));
        kill(running.pid(), libc::SIGKILL);
        drop(running);
        eventually("all are free", || {
            let [clean, dirty, ..] = fixture.counts();
            clean + dirty == 8
        });
        assert_eq!(fixture.lies(), 0, "kill {n}");
    }
    fixture.pool("scrub", "").exits_with(0);
    assert_eq!(fixture.counts(), [8, 0, 0, 0, 0]);
    assert_eq!(fixture.lies(), 0);
}

#[test]
fn a_create_killed_at_any_moment_leaves_whole_segments_only() {
    let Some(fixture) = Fixture::new(16) else {
        return;
    };
    let free = fixture.pages.counters().free;
    for n in 0..20 {
        let running = Running::start(fixture.command("create", &size_of(8)));
        thread::sleep(Duration::from_micros(700 * n));
        kill(running.pid(), libc::SIGKILL);
        drop(running);
        if !fixture.dir().exists() {
            continue;
        }
        let [clean, rest @ ..] = fixture.counts();
        assert_eq!(rest, [0; 4], "kill {n}");
        assert_eq!(
            fixture.status()["problems"],
            serde_json::json!([]),
            "kill {n}"
        );
        let used = clean * SEGMENT / crate::fixture::PAGE;
        eventually("nothing else is taken", || {
            fixture.pages.counters().free == free - used
        });
        fixture.pool("drain", "").exits_with(0);
    }
    fixture.pool("create", &size_of(8)).exits_with(0);
    assert_eq!(fixture.counts(), [8, 0, 0, 0, 0]);
}
