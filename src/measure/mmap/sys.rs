//! Fresh anonymous memory as `perf bench mem mmap` takes it, and its first touch.

use std::io;
use std::ops::Range;

use prezero_host::PageSize;

/// A private mapping that nothing else knows; unmapped on drop.
#[derive(Debug)]
pub(super) struct Fresh {
    addr: *mut u8,
    len: usize,
}

// SAFETY: it owns its memory, which belongs to no thread.
unsafe impl Send for Fresh {}

impl Fresh {
    /// mmap(2) of `len` bytes of anonymous memory on pages of `page`, all of it populated by the call
    /// (`MAP_POPULATE`) or none. `len` is a multiple of the page size. Hugepages are reserved by the
    /// call, which fails if the pool is short.
    pub(super) fn map(len: usize, page: PageSize, populate: bool) -> io::Result<Self> {
        let mut flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        if page > PageSize::BASE {
            let shift = i32::try_from(page.shift()).unwrap_or(0);
            flags |= libc::MAP_HUGETLB | shift << libc::MAP_HUGE_SHIFT;
        }
        if populate {
            flags |= libc::MAP_POPULATE;
        }
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice changes no existing one.
        let addr = unsafe { libc::mmap(std::ptr::null_mut(), len, rw, flags, -1, 0) };
        if addr == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let addr = addr.cast();
        Ok(Self { addr, len })
    }

    /// Reads and writes the first byte of each of these pages, those beyond the end left out. What is
    /// not there yet is faulted in. A cgroup's limit on hugepages is checked by the kernel only then, so
    /// one that was lowered a moment ago is a SIGBUS here, as it is in perf.
    pub(super) fn touch(&mut self, page: PageSize, pages: Range<usize>) {
        let size = usize::try_from(page.bytes()).unwrap_or(usize::MAX);
        for n in pages.start..pages.end.min(self.len / size) {
            // SAFETY: inside the mapping, which is readable and writable and nobody else's.
            unsafe {
                let first = self.addr.add(n * size);
                first.write_volatile(first.read_volatile().wrapping_add(1));
            }
        }
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // SAFETY: the mapping is this owner's, and it is the last use of it.
        unsafe { libc::munmap(self.addr.cast(), self.len) };
    }
}

/// An argument of prctl(2) that is not used: all 64 bits have to be zero.
const NONE: u64 = 0;

/// prctl(2) `PR_SET_THP_DISABLE`: whether this process goes without transparent hugepages, also those
/// that its settings give without madvise(2).
pub(super) fn set_thp_disabled(disabled: bool) -> io::Result<()> {
    // SAFETY: the call takes numbers only.
    match unsafe {
        libc::prctl(
            libc::PR_SET_THP_DISABLE,
            u64::from(disabled),
            NONE,
            NONE,
            NONE,
        )
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// prctl(2) `PR_GET_THP_DISABLE`.
pub(super) fn thp_disabled() -> bool {
    // SAFETY: the call takes numbers only.
    unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, NONE, NONE, NONE, NONE) == 1 }
}

#[cfg(test)]
impl Fresh {
    /// mincore(2): how many base pages are there.
    pub(super) fn resident(&self) -> usize {
        let mut pages = vec![0_u8; self.len / 4096];
        // SAFETY: the mapping is this owner's, and there is a byte for each of its pages.
        let result = unsafe { libc::mincore(self.addr.cast(), self.len, pages.as_mut_ptr()) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        pages.into_iter().filter(|page| page & 1 == 1).count()
    }
}
