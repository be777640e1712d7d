//! mmap(2) and sched_setaffinity(2).

use std::io;
use std::mem;
use std::ptr;

use prezero_clear::{Span, SpanError};

/// A private mapping whose pages are all there.
#[derive(Debug)]
pub(crate) struct Memory {
    start: *mut u8,
    len: usize,
}

impl Memory {
    /// `len` bytes of hugepages of 2 MiB, or of whatever the kernel takes for ordinary memory.
    pub(crate) fn map(len: usize, hugepages: bool) -> io::Result<Self> {
        let huge = match hugepages {
            true => libc::MAP_HUGETLB | libc::MAP_HUGE_2MB,
            false => 0,
        };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | huge;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: without MAP_FIXED a mapping replaces none.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = Self {
            start: start.cast(),
            len,
        };
        // MAP_POPULATE would keep quiet about a page that it cannot have.
        // SAFETY: populating changes no contents.
        if unsafe { libc::madvise(start, len, libc::MADV_POPULATE_WRITE) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(memory)
    }

    /// All of it.
    pub(crate) fn span(&mut self) -> Result<Span<'_>, SpanError> {
        // SAFETY: mapped writable and populated by `map`, and borrowed for as long as the span.
        unsafe { Span::new(self.start, self.len) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and what was borrowed from it is gone.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

/// Keeps this thread on the first CPU that it may use; returns which.
pub(crate) fn pin() -> io::Result<usize> {
    // SAFETY: all-zero bytes are an empty set.
    let mut allowed: libc::cpu_set_t = unsafe { mem::zeroed() };
    let size = mem::size_of::<libc::cpu_set_t>();
    // SAFETY: the set is a live local of that size.
    if unsafe { libc::sched_getaffinity(0, size, &raw mut allowed) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the index is below the size of the set.
    let is_allowed = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &allowed) };
    let cpu = (0..8 * size).find(is_allowed);
    let cpu = cpu.ok_or_else(|| io::Error::other("no CPU is allowed"))?;
    // SAFETY: as above.
    let mut one: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the index is below the size of the set.
    unsafe { libc::CPU_SET(cpu, &mut one) };
    // SAFETY: the set is a live local of that size.
    if unsafe { libc::sched_setaffinity(0, size, &raw const one) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(cpu)
}
