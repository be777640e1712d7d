//! Watching over a running Linux guest: its output, its input, and when it is to stop.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::LinuxEnd;
use super::vcpu::Machine;
use crate::error::GuestError;
use crate::sys;
use crate::threads::VcpuThreads;

/// How often the monitor looks up by itself. Output is shown so often, not byte by byte.
const TICK: Duration = Duration::from_millis(20);

/// The key that is the monitor's, as QEMU's: Ctrl-A.
const ESCAPE: u8 = 1;

/// Where a guest's input comes from.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Read when there is something to read and the guest has room for it, until its end.
    pub fd: BorrowedFd<'a>,
    /// Whether Ctrl-A is the monitor's, as on a terminal in raw mode: Ctrl-A x ends the machine, Ctrl-A twice is one
    /// Ctrl-A for the guest.
    pub escape: bool,
}

/// How to watch a running Linux guest, and how to stop it.
#[derive(Clone, Copy)]
pub struct LinuxControl<'a> {
    /// Set it from anywhere to stop the guest; noticed within about 20 ms.
    pub cancel: &'a AtomicBool,
    /// When to give up.
    pub deadline: Option<Instant>,
    /// Called, in the thread that called [`Linux::run`](super::Linux::run), with what the guest wrote to its serial
    /// port. A guest that writes faster waits.
    pub on_output: &'a dyn Fn(&[u8]),
    /// What the guest reads from its serial port.
    pub input: Option<Input<'a>>,
}

impl fmt::Debug for LinuxControl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinuxControl")
            .field("cancel", &self.cancel)
            .field("deadline", &self.deadline)
            .field("input", &self.input)
            .finish_non_exhaustive()
    }
}

/// Waits until a vCPU ends the machine or `control` does.
pub(super) fn watch(
    threads: &VcpuThreads<LinuxEnd>,
    machine: &Machine,
    control: &LinuxControl<'_>,
) -> Result<LinuxEnd, GuestError> {
    let mut input = control.input;
    let mut keys = Keys::default();
    loop {
        let room = machine.devices.input_room();
        let from = input.filter(|_| room > 0).map(|input| input.fd.as_raw_fd());
        let readable = sys::wait_readable(machine.wake.as_raw_fd(), from, TICK);
        // The count does not matter, and there may be none.
        let _ = machine.wake.read();
        show(machine, control);
        if let Some((_, ended)) = threads.next_ended(Duration::ZERO) {
            return ended;
        }
        if control.cancel.load(Ordering::Relaxed) {
            return Err(GuestError::Cancelled);
        }
        if control
            .deadline
            .is_some_and(|deadline| Instant::now() >= deadline)
        {
            return Err(GuestError::LinuxDeadline);
        }
        if let (true, Some(source)) = (readable, input) {
            let mut bytes = [0; 64];
            match sys::read(source.fd, &mut bytes[..room.min(64)]) {
                Ok(0) => input = None,
                Ok(len) => {
                    let (typed, ends) = keys.sort(&bytes[..len], source.escape);
                    machine.devices.input(&typed);
                    if ends {
                        return Err(GuestError::Cancelled);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => input = None,
            }
        }
    }
}

/// Shows what is due.
pub(super) fn show(machine: &Machine, control: &LinuxControl<'_>) {
    let due = machine.devices.console.drain();
    if !due.is_empty() {
        (control.on_output)(&due);
    }
}

/// Tells the guest's keys from the monitor's.
#[derive(Debug, Default)]
struct Keys {
    escaped: bool,
}

impl Keys {
    /// The guest's, and whether the machine is to end.
    fn sort(&mut self, bytes: &[u8], escape: bool) -> (Vec<u8>, bool) {
        if !escape {
            return (bytes.to_vec(), false);
        }
        let mut typed = Vec::new();
        for &byte in bytes {
            match (std::mem::take(&mut self.escaped), byte) {
                (false, ESCAPE) => self.escaped = true,
                (true, b'x' | b'X') => return (typed, true),
                (true, ESCAPE) | (false, _) => typed.push(byte),
                // Like QEMU's, other keys of the monitor do nothing.
                (true, _) => {}
            }
        }
        (typed, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_escape_key_is_the_monitors() {
        let mut keys = Keys::default();
        assert_eq!(keys.sort(b"a\x03\x01", true), (b"a\x03".to_vec(), false));
        assert_eq!(keys.sort(b"\x01b\x01cd", true), (b"\x01bd".to_vec(), false));
        assert_eq!(keys.sort(b"x\x01xy", true), (b"x".to_vec(), true));
        assert_eq!(
            Keys::default().sort(b"\x01x", false),
            (b"\x01x".to_vec(), false)
        );
    }
}
