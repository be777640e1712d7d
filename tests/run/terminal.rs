//! A guest's console on a terminal, which is put back however the run ends.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};
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
    prezero: Child,
    _files: Files,
}

impl Terminal {
    /// Starts a guest of this code on a terminal, and waits until it has written "begun".
    fn with_guest(code: &[u8]) -> Self {
        let files = Files::new();
        let (mut shower, terminal) = sys::open_terminal();
        let before = sys::terminal_modes(&terminal);
        let end = || Stdio::from(terminal.try_clone().expect("another descriptor"));
        let mut command = prezero_run(&files.kernel(&[&print("begun"), code].concat()));
        command.stdin(end()).stdout(end()).stderr(end());
        sys::own_session(&mut command);
        let prezero = command.spawn().expect("it starts");
        let mut shown = String::new();
        while !shown.contains("begun") {
            let mut bytes = [0; 256];
            let len = shower.read(&mut bytes).expect("shown");
            shown.push_str(&String::from_utf8_lossy(&bytes[..len]));
        }
        Self {
            shower,
            terminal,
            before,
            prezero,
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

    /// Waits for the end; the exit code, or the signal as a negative number.
    #[track_caller]
    fn end(mut self) -> i32 {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.prezero.try_wait().expect("a child") {
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
        let _ = self.prezero.kill();
        let _ = self.prezero.wait();
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
    ] {
        let terminal = Terminal::with_guest(&FOREVER);
        terminal.assert_raw();
        sys::kill(terminal.prezero.id(), signal);
        assert_eq!(terminal.end(), code);
    }
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
    let running = terminal.prezero.try_wait().expect("a child").is_none();
    assert!(running, "keys that make signals are the guest's");
    terminal.shower.write_all(b"\x01x").expect("typed");
    assert_eq!(terminal.end(), 6);
}
