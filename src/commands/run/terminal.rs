//! The guest's keyboard: stdin, and a terminal that hands over every key as it is typed.
//!
//! The terminal is put back when this process is done with it, however that comes about: at the end of a run, on a
//! panic, and on the signals that end a process, also a second one that does not wait for the run to unwind. Only
//! SIGKILL leaves it as it is (`stty sane`).

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;

use prezero_memory::Class;
use prezero_vmm::Input;

use super::serial::Serial;
use super::sys;
use crate::failure::Failure;

/// What a guest reads from its serial port.
pub(super) struct Keyboard {
    stdin: Option<io::Stdin>,
    /// Whether it is a terminal in raw mode.
    raw: bool,
}

impl Keyboard {
    /// Stdin, unless the console is a file or stdin is a terminal that another process group is at.
    pub(super) fn of_guest(serial: &Serial) -> Result<Self, Failure> {
        let stdin = io::stdin();
        let none = Self {
            stdin: None,
            raw: false,
        };
        if serial.is_file() {
            return Ok(none);
        }
        if !stdin.is_terminal() {
            return Ok(Self {
                stdin: Some(stdin),
                raw: false,
            });
        }
        // Reading or changing a terminal from the background stops the process.
        if !sys::is_in_foreground() {
            return Ok(none);
        }
        let failed = |error: io::Error| Failure {
            class: Class::Internal,
            message: format!("The terminal cannot be used for the guest's console: {error}"),
            fix: Some("run it with </dev/null, without input".to_owned()),
        };
        sys::make_raw().map_err(failed)?;
        Ok(Self {
            stdin: Some(stdin),
            raw: true,
        })
    }

    pub(super) fn input(&self) -> Option<Input<'_>> {
        let stdin = self.stdin.as_ref()?;
        Some(Input {
            fd: stdin.as_fd(),
            escape: self.raw,
        })
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        if self.raw {
            sys::restore();
        }
    }
}
