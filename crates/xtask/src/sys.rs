//! The system calls that the standard library does not wrap.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// Sends `signal` to a child that has not been waited for, see kill(2).
pub(crate) fn signal(child: &Child, signal: i32) -> io::Result<()> {
    let pid = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
    // SAFETY: kill takes no pointer; the process id cannot have been given to another process, because the caller has
    // not waited for the child yet.
    if unsafe { libc::kill(pid, signal) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Has the kernel kill the command when the thread that starts it ends, however it ends: PR_SET_PDEATHSIG, see prctl(2).
pub(crate) fn end_with_parent(command: &mut Command) {
    let ask = || {
        // SAFETY: the operation takes a signal's number and no pointer.
        match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: between fork and exec the closure does nothing but one system call.
    unsafe { command.pre_exec(ask) };
}
