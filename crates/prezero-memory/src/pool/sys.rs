//! The system calls of the pool that rustix does not wrap.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use crate::sys::bytes;

/// The signal that a broken lease sends instead of SIGIO, whose default action ends the process.
/// Ignored by default, and a program that handles it must expect strays (signal(7)).
const LEASE_BROKEN: i32 = libc::SIGURG;

/// Of include/uapi/asm-generic/fcntl.h; libc lacks it.
const F_SETSIG: i32 = 10;

fn check(result: i32) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// fcntl(2), `F_SETLEASE` with `F_WRLCK`, and at once `F_UNLCK`: succeeds if the descriptor's open file
/// description, which is open for writing, is the only one of its file. Mappings count, as they keep
/// theirs alive. `EAGAIN` says that there is another; other errors, that this says nothing.
///
/// Whoever opens the file in between waits, or has `EWOULDBLOCK` with `O_NONBLOCK`, and the kernel sends
/// this process a signal.
pub(super) fn lease_and_release(file: BorrowedFd<'_>) -> io::Result<()> {
    let fd = file.as_raw_fd();
    // SAFETY: no memory operand.
    let fcntl = |cmd: i32, arg: i32| check(unsafe { libc::fcntl(fd, cmd, arg) });
    fcntl(F_SETSIG, LEASE_BROKEN)?;
    let leased = fcntl(libc::F_SETLEASE, libc::F_WRLCK);
    let released = match leased {
        Ok(()) => fcntl(libc::F_SETLEASE, libc::F_UNLCK),
        Err(_) => Ok(()),
    };
    // The description is handed out later, as it was opened.
    let _ = fcntl(F_SETSIG, 0);
    leased.and(released)
}

/// mmap(2) of a part of a hugetlbfs file, shared, readable and writable. The kernel picks an address that
/// is a multiple of the page size.
pub(super) fn map_shared(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<u64> {
    let out_of_range = |_| io::Error::from_raw_os_error(libc::EINVAL);
    let offset = libc::off_t::try_from(offset).map_err(out_of_range)?;
    // SAFETY: a new mapping at an address of the kernel's choice changes no existing one.
    let addr = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes(len)?,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_fd().as_raw_fd(),
            offset,
        )
    };
    if addr == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(addr.expose_provenance() as u64)
}

/// sched_setscheduler(2), `SCHED_IDLE`: the calling thread runs only where nothing else wants the CPU.
/// Anybody may do this to a thread of his own. By its number: musl's function always refuses.
pub(super) fn run_this_thread_when_idle() -> io::Result<()> {
    let priority: i32 = 0;
    let (call, policy) = (libc::SYS_sched_setscheduler, libc::SCHED_IDLE);
    // SAFETY: the kernel's struct sched_param is one int, which is live.
    match unsafe { libc::syscall(call, 0, policy, &raw const priority) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_thread_leaves_the_others_as_they_are() {
        // SAFETY: no memory operand.
        let policy = || unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
        let before = policy();
        std::thread::spawn(move || {
            run_this_thread_when_idle().unwrap();
            assert_eq!(policy(), libc::SCHED_IDLE.into());
        })
        .join()
        .unwrap();
        assert_eq!(policy(), before);
    }
}
