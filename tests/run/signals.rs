//! SIGINT and SIGTERM end a run cleanly wherever it is.

use std::fs;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use libc::{SIGINT, SIGTERM};
use prezero_testkit::{Hugepages, require_kvm, thread_names_of};

use crate::command::{Ran, Running, error_of, prezero_run};
use crate::sys::{group_exists, kill, pipe_capacity};

const PAGE: u64 = 2 << 20;

/// How long a run may take to end after a signal: a chunk of 32 MiB is some milliseconds' work.
const SOON: Duration = Duration::from_secs(2);

/// A signal is sent as soon as a thread of this name is seen, and may still come too late.
const ATTEMPTS: u32 = 20;

/// How long after the first signal another one is another request.
const ANOTHER: Duration = Duration::from_millis(300);

/// Runs it and sends `signals` once a thread whose name starts with `thread` is there. None if it ended before.
pub(crate) fn signalled(args: &str, thread: &str, signals: &[i32]) -> Option<Ran> {
    let mut running = Running::start(prezero_run(args));
    let pid = running.pid();
    while !thread_names_of(pid)
        .iter()
        .any(|name| name.starts_with(thread))
    {
        if running.has_ended() {
            return None;
        }
        thread::sleep(Duration::from_micros(200));
    }
    for signal in signals {
        kill(pid, *signal);
        // The kernel makes one of two that are not delivered yet.
        thread::sleep(Duration::from_millis(2));
    }
    let ran = running.finish_within(SOON);
    assert!(!group_exists(pid), "a child is left");
    Some(ran)
}

#[track_caller]
fn is_stopped_cleanly(args: &str, thread: &str, message: &str) {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::take(PAGE, 256) else {
        return;
    };
    // timeout(1) sends its signal to the process and at once to its group.
    for signals in [&[SIGINT][..], &[SIGTERM], &[SIGTERM, SIGTERM]] {
        let stopped = (0..ATTEMPTS).find_map(|_| {
            let ran = signalled(args, thread, signals)?;
            pages.assert_clean();
            // It was through with everything, or with this part of it.
            if ran.status.code() == Some(0) {
                return None;
            }
            let ran = ran.exits_with(6);
            let report = ran.json();
            let (class, found, fix) = error_of(&report);
            assert_eq!(class, "stopped");
            assert!(
                fix.is_some_and(|fix| fix.starts_with("run it again")),
                "{fix:?}"
            );
            found.contains(message).then_some(ran)
        });
        let ran = stopped.unwrap_or_else(|| panic!("{ATTEMPTS} attempts came too late"));
        assert!(ran.stderr.starts_with("error: "), "{ran:#?}");
    }
}

#[test]
fn a_signal_while_populating_stops_the_run_cleanly() {
    let args = "--memory size=512M,hugepages=on,hugepage_size=2M --prealloc --threads 1 --json";
    is_stopped_cleanly(args, "prezero-n", "populated on node");
}

#[test]
fn a_signal_while_the_guest_reads_stops_the_run_cleanly() {
    // Not populated, so that the guest waits for the kernel at every page.
    let args = "--memory size=512M,hugepages=on,hugepage_size=2M --verify --json";
    is_stopped_cleanly(args, "prezero-vcpu", "guest was cancelled");
}

#[test]
fn the_second_signal_kills_where_the_first_cannot_stop() {
    if !require_kvm() {
        return;
    }
    // Nobody reads stdout, so that the run hangs in its last step.
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let filling = vec![b'x'; pipe_capacity(&writer)];
    writer.write_all(&filling).expect("it fits");
    let mut command = prezero_run("--memory 64M,hugepages=off --json");
    command.stdout(writer);
    let mut running = Running::start_with_stdout_as_set(command);
    let pid = running.pid();
    let hangs = || {
        let call = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
        call.starts_with(&format!("{} 0x1 ", libc::SYS_write))
    };
    until("it writes to stdout", hangs);
    kill(pid, SIGINT);
    let delivered = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.contains("\nShdPnd:\t0000000000000000\n") && hangs()
    };
    until("the signal is delivered and the write resumed", delivered);
    kill(pid, SIGTERM);
    // Sooner than this it would be the same request.
    thread::sleep(ANOTHER);
    assert!(!running.has_ended(), "the first request only asks");
    kill(pid, SIGTERM);
    assert_eq!(running.finish_within(SOON).signal(), Some(SIGTERM));
    drop(reader);
}

#[track_caller]
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "not yet: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}
