//! Signals: what `exec` passes on, and how `scrub` ends.

use libc::{SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};

use crate::command::{Running, error_of};
use crate::fixture::{Fixture, Supervised, eventually};
use crate::sys::kill;

#[test]
fn signals_are_passed_on_to_the_command() {
    let Some(fixture) = Fixture::with_pool(1) else {
        return;
    };
    for (signal, name) in [
        (SIGINT, "INT"),
        (SIGTERM, "TERM"),
        (SIGHUP, "HUP"),
        (SIGQUIT, "QUIT"),
        (SIGUSR1, "USR1"),
        (SIGUSR2, "USR2"),
        (SIGWINCH, "WINCH"),
    ] {
        let script = format!(
            "trap 'echo {name}; exit 9' {name}; echo ready >&2; while :; do sleep 0.01; done"
        );
        let exec = Supervised::start(&fixture, "--memory 4M", &["bash", "-c", &script]);
        // The trap is set once the loop runs.
        eventually("the loop runs", || exec.child("sleep").is_some());
        kill(exec.pid(), signal);
        let ran = exec.finish().exits_with(9);
        assert_eq!(ran.stdout, format!("{name}\n"));
        assert_eq!(fixture.counts(), [0, 1, 0, 0, 0]);
    }
}

#[test]
fn the_signal_that_killed_the_command_is_in_the_exit_code() {
    let Some(fixture) = Fixture::with_pool(1) else {
        return;
    };
    for signal in [SIGTERM, SIGKILL] {
        let exec = Supervised::start(&fixture, "--memory 4M", &["sleep", "30"]);
        kill(exec.child("sleep").expect("it runs"), signal);
        exec.finish().exits_with(128 + signal);
    }
    assert_eq!(fixture.counts(), [0, 1, 0, 0, 0]);
}

#[test]
fn a_command_starts_with_no_signal_blocked_or_caught() {
    let Some(fixture) = Fixture::with_pool(1) else {
        return;
    };
    let command = ["grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"];
    let plain = std::process::Command::new(command[0])
        .args(&command[1..])
        .output();
    let ran = crate::command::finish(fixture.exec("--memory 4M", &command)).exits_with(0);
    assert_eq!(ran.stdout.as_bytes(), plain.expect("grep").stdout);
}

#[test]
fn a_watch_ends_well_when_it_is_told_to() {
    let Some(fixture) = Fixture::with_pool(1) else {
        return;
    };
    for signal in [SIGTERM, SIGINT] {
        fixture.stain_all();
        let running = Running::start(fixture.command("scrub", "--watch --json"));
        eventually("clean", || fixture.counts() == [1, 0, 0, 0, 0]);
        kill(running.pid(), signal);
        let ran = running
            .finish_within(std::time::Duration::from_secs(5))
            .exits_with(0);
        let report = ran.json();
        assert_eq!(report["stopped"], true);
        assert_eq!(report["cleaned"]["segments"], 1, "{report:#}");
    }
    assert_eq!(fixture.lies(), 0);
}

#[test]
fn a_scrub_that_is_cut_short_says_so_and_leaves_the_rest_dirty() {
    let Some(fixture) = Fixture::with_pool(4) else {
        return;
    };
    fixture.stain_all();
    // Four seconds' work.
    let running = Running::start(fixture.command("scrub", "--rate 4M --json"));
    eventually("the first is clean", || fixture.counts()[0] > 0);
    kill(running.pid(), SIGTERM);
    let ran = running
        .finish_within(std::time::Duration::from_secs(2))
        .exits_with(6);
    let report = ran.json();
    assert_eq!(error_of(&report).0, "stopped");
    assert_eq!(report["stopped"], true);
    let [clean, dirty, ..] = fixture.counts();
    assert_eq!(
        clean,
        report["cleaned"]["segments"].as_u64().expect("a number")
    );
    assert!(dirty > 0 && clean + dirty == 4, "{clean} {dirty}");
    assert_eq!(fixture.lies(), 0);
}
