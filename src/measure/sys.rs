//! System calls about the calling thread.

use std::io;

/// 4096 CPUs: no kernel is built for more on the hosts of this project.
const MASK_WORDS: usize = 64;
const BITS: usize = u64::BITS as usize;

/// gettid(2).
pub(super) fn thread_id() -> libc::pid_t {
    // SAFETY: no operands.
    unsafe { libc::gettid() }
}

/// sched_setaffinity(2): the calling thread runs on `cpu` only.
pub(super) fn pin_this_thread(cpu: u32) -> io::Result<()> {
    let cpu = cpu as usize;
    let mut mask = [0_u64; MASK_WORDS];
    let word = mask.get_mut(cpu / BITS);
    *word.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))? |= 1 << (cpu % BITS);
    let size = size_of_val(&mask);
    let number = libc::SYS_sched_setaffinity;
    // SAFETY: the mask is live and of `size` bytes.
    match unsafe { libc::syscall(number, 0, size, mask.as_ptr()) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
