//! termios(3): the terminal's modes, changed and put back.

use std::io;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::low_level;

use crate::stop;

/// Modes of the terminal at stdin before they were changed. Signal handlers read it.
static BEFORE: OnceLock<libc::termios> = OnceLock::new();

/// tcgetpgrp(3): whether this process may read from the terminal at stdin.
pub(super) fn is_in_foreground() -> bool {
    // SAFETY: both take no pointer; for what is no terminal the first returns -1.
    unsafe { libc::tcgetpgrp(libc::STDIN_FILENO) == libc::getpgrp() }
}

/// Has the terminal at stdin hand over keys one by one, without echo and without making signals of them, and has the
/// signals that end the process put it back first. Output stays as it was: a new line begins at its beginning.
pub(super) fn make_raw() -> io::Result<()> {
    let mut modes = MaybeUninit::uninit();
    // SAFETY: tcgetattr(3) fills what it is given when it succeeds.
    let mut modes: libc::termios = unsafe {
        match libc::tcgetattr(libc::STDIN_FILENO, modes.as_mut_ptr()) {
            0 => modes.assume_init(),
            _ => return Err(io::Error::last_os_error()),
        }
    };
    BEFORE.get_or_init(|| modes);
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        if stop::is_ignored(signal) {
            continue;
        }
        // What ends a run at once does so still; SIGINT and SIGTERM have been taken by `stop`.
        let ends = matches!(signal, SIGHUP | SIGQUIT);
        let action = move || {
            restore();
            if ends {
                let _ = low_level::emulate_default_handler(signal);
            }
        };
        // SAFETY: the action reads a cell that is filled, calls tcsetattr(3), and what signal-hook has for handlers.
        unsafe { low_level::register(signal, action) }?;
    }
    modes.c_iflag &= !(libc::ICRNL | libc::INLCR | libc::IGNCR | libc::IXON | libc::ISTRIP);
    modes.c_lflag &= !(libc::ICANON | libc::ECHO | libc::ISIG | libc::IEXTEN);
    modes.c_cc[libc::VMIN] = 1;
    modes.c_cc[libc::VTIME] = 0;
    set(&modes)
}

/// tcsetattr(3) with the modes that were there before; safe in a signal handler (signal-safety(7)).
pub(super) fn restore() {
    if let Some(modes) = BEFORE.get() {
        let _ = set(modes);
    }
}

fn set(modes: &libc::termios) -> io::Result<()> {
    // SAFETY: the modes are live.
    match unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, modes) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
