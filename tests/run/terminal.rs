//! A guest's console on a terminal, which is put back however the run ends.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use prezero_testkit::kernel::{FOREVER, print, write_port};
use prezero_testkit::require_kvm;

use crate::command::prezero_run;
use crate::linux::Files;
use crate::sys;

const PATIENCE: Duration = Duration::from_secs(30);

struct Terminal {
    shower: File,
    terminal: File,
    before: [u32; 3],
    /// The process that was started, and the one that is prezero.
    child: Child,
    prezero: u32,
    _files: Files,
}

impl Terminal {
    /// Starts a guest of this code on a terminal, and waits until it has written "begun".
    fn with_guest(code: &[u8]) -> Self {
        Self::start(code, sys::own_session)
    }

    fn start(code: &[u8], place: fn(&mut Command)) -> Self {
        let files = Files::new();
        let (mut shower, terminal) = sys::open_terminal();
        let before = sys::terminal_modes(&terminal);
        let end = || Stdio::from(terminal.try_clone().expect("another descriptor"));
        let mut command = prezero_run(&files.kernel(&[&print("begun"), code].concat()));
        command.stdin(end()).stdout(end()).stderr(end());
        place(&mut command);
        let child = command.spawn().expect("it starts");
        let mut shown = String::new();
        while !shown.contains("begun") {
            let mut bytes = [0; 256];
            let len = shower.read(&mut bytes).expect("shown");
            shown.push_str(&String::from_utf8_lossy(&bytes[..len]));
        }
        Self {
            prezero: sys::foreground_of(&shower),
            shower,
            terminal,
            before,
            child,
            _files: files,
        }
    }

    #[track_caller]
    fn assert_raw(&self) {
        let [_, output, editing] = sys::terminal_modes(&self.terminal);
        let lines = libc::ICANON | libc::ECHO | libc::ISIG;
        assert_eq!(editing & lines, 0, "keys are handed over one by one");
        assert_eq!(output, self.before[1], "output is as it was");
    }

    #[track_caller]
    fn until_raw(&self) {
        let deadline = Instant::now() + PATIENCE;
        while sys::terminal_modes(&self.terminal) == self.before {
            assert!(Instant::now() < deadline, "it does not take the terminal");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the end; the exit code, or the signal as a negative number.
    #[track_caller]
    fn end(mut self) -> i32 {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(sys::terminal_modes(&self.terminal), self.before);
        status
            .code()
            .unwrap_or_else(|| -status.signal().unwrap_or(0))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Both fail where it has been waited for already.
        if matches!(self.child.try_wait(), Ok(None)) && self.prezero != self.child.id() {
            // Its parent has not waited for it yet.
            sys::kill(self.prezero, libc::SIGKILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_terminal_is_put_back_at_the_end() {
    if !require_kvm() {
        return;
    }
    let terminal = Terminal::with_guest(&write_port(0x600, 0x34));
    assert_eq!(terminal.end(), 0);
}

#[test]
fn the_terminal_is_put_back_after_a_signal() {
    if !require_kvm() {
        return;
    }
    for (signal, code) in [
        (libc::SIGTERM, 6),
        (libc::SIGINT, 6),
        (libc::SIGHUP, -libc::SIGHUP),
        (libc::SIGQUIT, -libc::SIGQUIT),
        (libc::SIGABRT, -libc::SIGABRT),
        (libc::SIGALRM, -libc::SIGALRM),
        (libc::SIGBUS, -libc::SIGBUS),
        (libc::SIGFPE, -libc::SIGFPE),
        (libc::SIGILL, -libc::SIGILL),
        (libc::SIGIO, -libc::SIGIO),
        (libc::SIGPROF, -libc::SIGPROF),
        (libc::SIGPWR, -libc::SIGPWR),
        (libc::SIGSEGV, -libc::SIGSEGV),
        (libc::SIGSTKFLT, -libc::SIGSTKFLT),
        (libc::SIGSYS, -libc::SIGSYS),
        (libc::SIGTRAP, -libc::SIGTRAP),
        (libc::SIGUSR1, -libc::SIGUSR1),
        (libc::SIGUSR2, -libc::SIGUSR2),
        (libc::SIGVTALRM, -libc::SIGVTALRM),
        (libc::SIGXCPU, -libc::SIGXCPU),
        (libc::SIGRTMAX(), -libc::SIGRTMAX()),
    ] {
        let terminal = Terminal::with_guest(&FOREVER);
        terminal.assert_raw();
        sys::kill(terminal.prezero, signal);
        assert_eq!(terminal.end(), code);
    }
}

/// Waits until a process is stopped, or runs: the third field of its stat (proc_pid_stat(5)).
#[track_caller]
fn until_stopped(pid: u32, stopped: bool) {
    let deadline = Instant::now() + PATIENCE;
    let is_stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it is there");
        stat.contains(") T ")
    };
    while is_stopped() != stopped {
        assert!(Instant::now() < deadline, "stopped: {}", !stopped);
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_stopped_run_has_put_the_terminal_back_and_takes_it_again() {
    if !require_kvm() {
        return;
    }
    let mut terminal = Terminal::start(&FOREVER, sys::as_a_job::<false>);
    let mut cooked = None;
    // SIGSTOP cannot be seen, so a shell has to put the terminal back.
    for (signal, puts_back) in [
        (libc::SIGTSTP, true),
        (libc::SIGTSTP, true),
        (libc::SIGSTOP, false),
    ] {
        terminal.assert_raw();
        sys::kill(terminal.prezero, signal);
        until_stopped(terminal.prezero, true);
        if puts_back {
            assert_eq!(sys::terminal_modes(&terminal.terminal), terminal.before);
            cooked = Some(sys::all_modes(&terminal.terminal));
        } else if let Some(cooked) = &cooked {
            sys::set_modes(&terminal.terminal, cooked);
        }
        sys::kill(terminal.prezero, libc::SIGCONT);
        until_stopped(terminal.prezero, false);
        terminal.until_raw();
    }
    terminal.shower.write_all(b"\x01x").expect("typed");
    assert_eq!(terminal.end(), 6);
}

#[test]
fn a_run_that_goes_on_in_the_background_leaves_the_terminal_alone() {
    if !require_kvm() {
        return;
    }
    let terminal = Terminal::start(&FOREVER, sys::as_a_job::<true>);
    sys::kill(terminal.prezero, libc::SIGTSTP);
    until_stopped(terminal.prezero, true);
    let deadline = Instant::now() + PATIENCE;
    while sys::foreground_of(&terminal.shower) == terminal.prezero {
        assert!(Instant::now() < deadline, "nobody takes the terminal back");
        thread::sleep(Duration::from_millis(5));
    }
    sys::kill(terminal.prezero, libc::SIGCONT);
    until_stopped(terminal.prezero, false);
    thread::sleep(Duration::from_millis(200));
    until_stopped(terminal.prezero, false);
    assert_eq!(sys::terminal_modes(&terminal.terminal), terminal.before);
    sys::kill(terminal.prezero, libc::SIGUSR1);
    assert_eq!(terminal.end(), 128 + libc::SIGUSR1);
}

#[test]
fn ctrl_c_is_the_guests_and_ctrl_a_x_ends_it() {
    if !require_kvm() {
        return;
    }
    let mut terminal = Terminal::with_guest(&FOREVER);
    terminal.assert_raw();
    terminal.shower.write_all(b"\x03\x1a\x1c").expect("typed");
    thread::sleep(Duration::from_millis(200));
    let running = terminal.child.try_wait().expect("a child").is_none();
    assert!(running, "keys that make signals are the guest's");
    terminal.shower.write_all(b"\x01x").expect("typed");
    assert_eq!(terminal.end(), 6);
}
