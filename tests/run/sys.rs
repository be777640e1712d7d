//! System calls that the standard library does not wrap.

use std::io::{self, PipeWriter};
use std::os::fd::AsRawFd;

/// `kill(2)`. A process that has not been waited for keeps its id, so that nobody else can be hit.
pub(crate) fn kill(pid: u32, signal: i32) {
    let pid = i32::try_from(pid).expect("process ids are positive");
    // SAFETY: kill takes no pointer.
    let result = unsafe { libc::kill(pid, signal) };
    assert_eq!(result, 0, "kill {pid}: {}", io::Error::last_os_error());
}

/// Whether a process group has any process left, dead ones that nobody has waited for included.
pub(crate) fn group_exists(group: u32) -> bool {
    let group = i32::try_from(group).expect("process ids are positive");
    // SAFETY: kill takes no pointer, and signal 0 is not delivered to anybody.
    unsafe { libc::kill(-group, 0) == 0 }
}

/// How many bytes a pipe holds before a writer blocks (`F_GETPIPE_SZ`, fcntl(2)).
pub(crate) fn pipe_capacity(pipe: &PipeWriter) -> usize {
    // SAFETY: this command of fcntl takes no argument, and the descriptor is open.
    let size = unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_GETPIPE_SZ) };
    usize::try_from(size).expect("a pipe has a capacity")
}
