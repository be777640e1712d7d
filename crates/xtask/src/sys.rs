//! The one system call that the standard library does not wrap.

use std::io;
use std::process::Child;

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
