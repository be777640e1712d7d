//! Waiting for a child and its resource usage at once.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

/// Waits for the end of `child` and returns its peak resident set in bytes too, see wait4(2).
pub(crate) fn wait_with_peak_rss(mut child: Child) -> io::Result<(ExitStatus, u64)> {
    // A child that reads its input to the end would wait for us.
    drop(child.stdin.take());
    let pid = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: both pointers are to live locals of the types that wait4 writes.
        let result = unsafe { libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()) };
        if result == pid {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    // SAFETY: all-zero bytes are a valid rusage, whatever wait4 has written of it.
    let usage = unsafe { usage.assume_init() };
    let kib = u64::try_from(usage.ru_maxrss).unwrap_or(0);
    Ok((ExitStatus::from_raw(status), kib << 10))
}
