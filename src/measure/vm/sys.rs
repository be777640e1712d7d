//! System calls that neither the standard library nor rustix wraps.

use std::io::{self, PipeWriter, Read};
use std::mem::MaybeUninit;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use io_uring::IoUring;
use prezero_memory::{GuestRam, State};
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

use crate::clock;
use crate::report::run::nanoseconds;

/// Gives the calling thread, its children and the threads it starts later mounts of their own
/// (unshare(2)): what they mount nobody else sees, and it goes with the last of them.
pub(super) fn unshare_mounts() -> io::Result<()> {
    // SAFETY: unshare takes no pointer, and mounts of its own take no memory from anybody.
    match unsafe { libc::unshare(libc::CLONE_NEWNS) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A ring that holds memory pinned.
pub(super) struct Pin<'r, S: State> {
    ring: IoUring,
    /// It stays mapped as long as it is pinned.
    _ram: &'r GuestRam<S>,
}

impl<'r, S: State> Pin<'r, S> {
    /// Has the kernel pin all of the memory for good, in one call, as `pieces` of address and length
    /// (`IORING_REGISTER_BUFFERS`, io_uring_register(2)). What is not there is faulted in, and cleared.
    pub(super) fn new(
        ring: IoUring,
        ram: &'r GuestRam<S>,
        pieces: &[(u64, u64)],
    ) -> io::Result<Self> {
        let buffers = pieces.iter().map(|&(addr, len)| {
            let addr = usize::try_from(addr).map_err(io::Error::other)?;
            Ok(libc::iovec {
                iov_base: std::ptr::with_exposed_provenance_mut(addr),
                iov_len: usize::try_from(len).map_err(io::Error::other)?,
            })
        });
        let buffers = buffers.collect::<io::Result<Vec<_>>>()?;
        // SAFETY: what is mapped there stays mapped while this value borrows its owner, and what is not is
        // an error. No request is ever put into the ring, so that nothing is read or written through it.
        unsafe { ring.submitter().register_buffers(&buffers) }?;
        Ok(Self { ring, _ram: ram })
    }
}

impl<S: State> Drop for Pin<'_, S> {
    fn drop(&mut self) {
        // Closing the ring would do it later, in the background.
        let _ = self.ring.submitter().unregister_buffers();
    }
}

/// Starts a command that the kernel kills when the calling thread ends, however it does, and says when on
/// the [clock] of all it was about to call execve(2): what the fork before that took is not the command's.
/// What that message takes is over at the time that is written to `begun`, where somebody wants to know.
pub(super) fn spawn(
    command: &mut Command,
    begun: Option<PipeWriter>,
) -> io::Result<(Child, Duration)> {
    // The first reading looks for the vDSO, which may allocate.
    let _ = clock::now();
    let parent = getpid();
    let (mut reader, writer) = io::pipe()?;
    let prepare = move || -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // One that has ended before that call sends nothing.
        if getppid() != Some(parent) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        let time = nanoseconds(clock::now()).to_ne_bytes();
        // A pipe takes so little at once or not at all.
        rustix::io::write(&writer, &time)?;
        if let Some(begun) = &begun {
            rustix::io::write(begun, &nanoseconds(clock::now()).to_ne_bytes())?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec it makes nothing but system calls and allocates nothing.
    unsafe { command.pre_exec(prepare) };
    let mut child = command.spawn()?;
    let mut time = [0; 8];
    if let Err(error) = reader.read_exact(&mut time) {
        let _ = child.kill().and_then(|()| child.wait());
        return Err(error);
    }
    Ok((child, Duration::from_nanos(u64::from_ne_bytes(time))))
}

/// Waits for the end of a child (wait4(2)): its status, and the CPU time of it and all that it waited for.
pub(super) fn wait(child: &Child) -> io::Result<(ExitStatus, Duration)> {
    let pid = Pid::from_child(child).as_raw_nonzero().get();
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
    let time = |time: libc::timeval| {
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let micros = u64::try_from(time.tv_usec).unwrap_or(0);
        Duration::from_secs(seconds) + Duration::from_micros(micros)
    };
    let cpu = time(usage.ru_utime) + time(usage.ru_stime);
    Ok((ExitStatus::from_raw(status), cpu))
}
