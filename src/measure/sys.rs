//! System calls about the calling thread.

use std::io;

/// 8192 CPUs: the most that x86's kernel can be built for (`NR_CPUS`, arch/x86/Kconfig).
const MASK_WORDS: usize = 128;
const BITS: usize = u64::BITS as usize;

/// gettid(2).
pub(super) fn thread_id() -> libc::pid_t {
    // SAFETY: no operands.
    unsafe { libc::gettid() }
}

/// CPUs, a bit for each.
pub(super) type Mask = [u64; MASK_WORDS];

/// sched_setaffinity(2): the calling thread runs on `cpu` only.
pub(super) fn pin_this_thread(cpu: u32) -> io::Result<()> {
    set_affinity(&mask([cpu]))
}

/// A mask of these CPUs, but for those beyond its end.
pub(super) fn mask(cpus: impl IntoIterator<Item = u32>) -> Mask {
    let mut mask = [0; MASK_WORDS];
    for cpu in cpus {
        let cpu = cpu as usize;
        if let Some(word) = mask.get_mut(cpu / BITS) {
            *word |= 1 << (cpu % BITS);
        }
    }
    mask
}

/// sched_setaffinity(2): the calling thread runs on these CPUs.
pub(super) fn set_affinity(mask: &Mask) -> io::Result<()> {
    let size = size_of_val(mask);
    let number = libc::SYS_sched_setaffinity;
    // SAFETY: the mask is live and of `size` bytes.
    match unsafe { libc::syscall(number, 0, size, mask.as_ptr()) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// sched_getaffinity(2): the CPUs that the calling thread may run on.
pub(super) fn affinity() -> io::Result<Mask> {
    let mut mask: Mask = [0; MASK_WORDS];
    let size = size_of_val(&mask);
    let number = libc::SYS_sched_getaffinity;
    // SAFETY: the mask is live, writable and of `size` bytes.
    match unsafe { libc::syscall(number, 0, size, mask.as_mut_ptr()) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(mask),
    }
}
