//! Watching over a running Linux guest: its output, its input, and when it is to stop.

use std::fmt;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::input::{Input, Typing};
use super::report::LinuxEnd;
use super::vcpu::Machine;
use crate::error::GuestError;
use crate::sys;
use crate::threads::VcpuThreads;

/// How often the monitor looks up by itself. Output is shown so often, not byte by byte.
const TICK: Duration = Duration::from_millis(20);

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
    let mut typing = Typing::new(control.input);
    loop {
        let from = typing.hand_over(&machine.devices);
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
        if readable && typing.read() {
            return Err(GuestError::Cancelled);
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
