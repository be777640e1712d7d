//! `cargo xtask with-hugepages` as its users see it.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use prezero_testkit::{Counters, Hugepages, MachineLock, Pool, skip};

const PAGE: u64 = 2 << 20;
const SHOW: &str = "cat /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

fn xtask() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.arg("with-hugepages").stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    xtask().args(args).output().expect("starts")
}

/// The counters while nobody who takes the lock has changed them.
fn counters() -> Counters {
    let _lock = MachineLock::acquire();
    Pool::of(PAGE)
        .and_then(|pool| pool.counters())
        .expect("readable")
}

/// The pages that with-hugepages holds for its command are outside the machine's lock, so these tests take turns.
static TURN: Mutex<()> = Mutex::new(());

/// The turn of a test that changes the number of pages; None, and the test is skipped, where this process may not.
fn turn() -> Option<MutexGuard<'static, ()>> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    Hugepages::take(PAGE, counters().available() + 8).map(|_| turn)
}

#[test]
fn pages_last_as_long_as_the_command() {
    let Some(_turn) = turn() else { return };
    let before = counters();
    let request = format!("2M={}", before.available() + 8);
    let output = run(&[&request, "--", "sh", "-c", &format!("{SHOW}; exit 7")]);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let during: u64 = String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse()
        .expect("a count");
    assert!(during >= before.total + 8, "{during}");
    assert_eq!(counters(), before);
}

#[test]
fn a_signal_reaches_the_command_and_the_pages_come_back() {
    let Some(_turn) = turn() else { return };
    let before = counters();
    let request = format!("2M={}", before.available() + 8);
    let script = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.02; done";
    let mut child = xtask()
        .args([&request, "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped"))
        .read_line(&mut line)
        .expect("a line");
    assert_eq!(line, "ready\n");
    let kill = Command::new("sh")
        .args(["-c", &format!("kill -TERM {}", child.id())])
        .status();
    assert!(kill.expect("sh starts").success());
    assert_eq!(child.wait().expect("ends").code(), Some(9));
    assert_eq!(counters(), before);
}

#[test]
fn a_size_that_cannot_be_had_gives_back_the_others() {
    let Some(_turn) = turn() else { return };
    let before = counters();
    let request = format!("2M={},2K=1", before.available() + 8);
    let output = run(&[&request, "--", "echo", "run"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(
        stderr.contains("Cannot have 1 available pages of 2 KiB"),
        "{stderr}"
    );
    assert!(output.stdout.is_empty(), "the command did not run");
    assert_eq!(counters(), before);
}

#[test]
fn a_command_that_does_not_exist_is_an_error() {
    if Pool::of(PAGE).is_err() {
        return skip("hugepages", "no 2 MiB pages");
    }
    let output = run(&["2M=0", "--", "/nonexistent/command"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("Cannot run /nonexistent/command"));
}

#[test]
fn a_wrong_command_line_shows_the_usage() {
    let output = run(&["2M=1"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("usage: cargo xtask"));
}
