//! A segment in use is never taken, whoever uses it and however.

use std::fs::File;

use crate::command::finish;
use crate::fixture::{Fixture, Supervised};
use crate::sys::{View, kill};

/// Nothing that wants a free segment gets the only one there is.
#[track_caller]
fn is_left_alone(fixture: &Fixture) {
    let ran = finish(fixture.exec("--memory 4M", &["true", "{path}"])).exits_with(3);
    let (message, _) = ran.error_and_fix();
    assert!(message.contains("are in use, by process"), "{message}");
    fixture.pool("scrub", "").exits_with(0);
    fixture.pool("drain", "").exits_with(0);
    fixture.pool("destroy", "").exits_with(3);
    assert_eq!(fixture.counts(), [0, 0, 1, 0, 0]);
}

#[test]
fn a_command_that_outlives_its_supervisor_keeps_its_segment() {
    let Some(fixture) = Fixture::with_pool(1) else {
        return;
    };
    let exec = Supervised::start(&fixture, "--memory 4M", &["sleep", "30"]);
    let child = exec.child("sleep").expect("it runs");
    kill(exec.pid(), libc::SIGKILL);
    is_left_alone(&fixture);
    kill(child, libc::SIGKILL);
    crate::fixture::eventually("free", || fixture.counts() == [0, 1, 0, 0, 0]);
    finish(fixture.exec("--memory 4M", &["true", "{path}"])).exits_with(0);
}

#[test]
fn a_mapping_or_an_open_path_without_the_lock_is_use_enough() {
    let Some(fixture) = Fixture::with_pool(1) else {
        return;
    };
    finish(fixture.exec("--memory 4M", &["true", "{path}"])).exits_with(0);
    let path = fixture.segments().remove(0);
    let mapped = View::of(&path);
    is_left_alone(&fixture);
    drop(mapped);
    let open = File::open(&path).expect("readable");
    is_left_alone(&fixture);
    drop(open);
    fixture.pool("scrub", "").exits_with(0);
    assert_eq!(fixture.counts(), [1, 0, 0, 0, 0]);
}

#[test]
fn a_command_that_drops_the_inherited_lock_keeps_its_segment() {
    let Some(fixture) = Fixture::with_pool(1) else {
        return;
    };
    // flock(1) unlocks the inherited descriptor, which unlocks it for prezero, too.
    let script = "for fd in /proc/$$/fd/*; do case $(readlink $fd) in *.dirty) \
                  flock --unlock ${fd##*/};; esac; done; exec sleep 30";
    let exec = Supervised::start(&fixture, "--memory 4M", &["bash", "-c", script, "{path}"]);
    crate::fixture::eventually("unlocked", || exec.child("sleep").is_some());
    is_left_alone(&fixture);
}
