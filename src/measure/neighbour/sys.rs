//! The foreground's memory: ordinary, private, and on transparent hugepages where the kernel gives them.

use std::io;

/// One cache line of the chase: where the next one is.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct Line {
    pub(super) next: usize,
    rest: [usize; 7],
}

const _: () = assert!(size_of::<Line>() == 64);

/// Hugepages are asked for in whole ones, so that a small working set has one, too.
const HUGE: usize = 2 << 20;

/// Lines in a mapping that nothing else knows; unmapped on drop.
#[derive(Debug)]
pub(super) struct Lines {
    mapped: *mut libc::c_void,
    len: usize,
    first: *mut Line,
    count: usize,
}

// SAFETY: it owns its memory, which belongs to no thread.
unsafe impl Send for Lines {}

impl Lines {
    /// mmap(2) of zeros, and madvise(2) `MADV_HUGEPAGE`, which a kernel without transparent hugepages
    /// refuses and one where they are off ignores.
    pub(super) fn map(count: usize) -> io::Result<Self> {
        let bytes = count.checked_mul(size_of::<Line>());
        let whole = bytes.and_then(|bytes| bytes.checked_next_multiple_of(HUGE));
        let len = whole.and_then(|whole| whole.checked_add(HUGE));
        let len = len.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice changes no existing one.
        let mapped = unsafe { libc::mmap(std::ptr::null_mut(), len, rw, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let first = mapped.cast::<u8>();
        let first = first.wrapping_add(first.align_offset(HUGE));
        // SAFETY: the whole hugepages behind the first aligned address are inside of what was just mapped.
        unsafe { libc::madvise(first.cast(), len - HUGE, libc::MADV_HUGEPAGE) };
        Ok(Self {
            mapped,
            len,
            first: first.cast(),
            count,
        })
    }

    pub(super) fn all(&self) -> &[Line] {
        // SAFETY: so many lines are mapped, aligned and this owner's; any bytes are a line.
        unsafe { std::slice::from_raw_parts(self.first, self.count) }
    }

    pub(super) fn all_mut(&mut self) -> &mut [Line] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.first, self.count) }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        // SAFETY: the mapping is this owner's, and it is the last use of it.
        unsafe { libc::munmap(self.mapped, self.len) };
    }
}
