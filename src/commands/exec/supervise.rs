//! Waiting for the command, and passing signals on.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

use super::sys::{Signal, Signals, has_had_it_too, send};

/// Waits until the command ends, and returns the exit code that stands for it: its own, or 128 and the
/// signal that ended it, as a shell has it.
pub(super) fn to_its_end(mut child: Child, signals: &Signals) -> io::Result<u8> {
    loop {
        match signals.next()? {
            Signal::ChildChanged => {
                // It may only have been stopped, or be a child that was here before this program.
                if let Some(status) = child.try_wait()? {
                    return Ok(code_of(status));
                }
            }
            // Not waited for yet, so that the process id is still its own.
            Signal::Sent(number) => send(child.id(), number)?,
            Signal::OfTerminal(number) if has_had_it_too(child.id(), number) => {}
            Signal::OfTerminal(number) => send(child.id(), number)?,
        }
    }
}

fn code_of(status: ExitStatus) -> u8 {
    let signal = || status.signal().map(|signal| 128 + signal);
    let code = status.code().or_else(signal).unwrap_or(1);
    // Exit codes are bytes, signals are below 65.
    u8::try_from(code).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_was_killed_has_the_code_a_shell_would_have() {
        // As wait(2) has it: the code in the second byte, or the signal in the first.
        assert_eq!(code_of(ExitStatus::from_raw(0)), 0);
        assert_eq!(code_of(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(code_of(ExitStatus::from_raw(libc::SIGKILL)), 137);
    }
}
