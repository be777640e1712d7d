//! System calls about the calling thread.

/// gettid(2).
pub(super) fn thread_id() -> libc::pid_t {
    // SAFETY: no operands.
    unsafe { libc::gettid() }
}
