//! System calls that the standard library does not wrap.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// `kill(2)`.
pub(crate) fn kill(pid: u32, signal: i32) {
    let pid = i32::try_from(pid).expect("process ids are positive");
    // SAFETY: kill takes no pointer.
    let result = unsafe { libc::kill(pid, signal) };
    assert_eq!(result, 0, "kill {pid}: {}", io::Error::last_os_error());
}

/// A hugetlbfs file mapped shared; hugetlbfs has no write(2), and read(2) would do for reading only.
#[derive(Debug)]
pub(crate) struct View {
    addr: *mut u8,
    len: usize,
}

impl View {
    #[track_caller]
    pub(crate) fn of(path: &Path) -> Self {
        let file = File::options().read(true).write(true).open(path);
        let file = file.unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let len = usize::try_from(file.metadata().expect("it is open").len()).expect("64 bits");
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (shared, fd) = (libc::MAP_SHARED, file.as_raw_fd());
        // SAFETY: a new mapping at an address of the kernel's choice.
        let addr = unsafe { libc::mmap(std::ptr::null_mut(), len, access, shared, fd, 0) };
        assert_ne!(
            addr,
            libc::MAP_FAILED,
            "{path:?}: {}",
            io::Error::last_os_error()
        );
        let addr = addr.cast();
        Self { addr, len }
    }

    pub(crate) fn fill(&self, byte: u8) {
        // SAFETY: the mapping is this view's and writable; no reference into it exists.
        unsafe { std::ptr::write_bytes(self.addr, byte, self.len) };
    }

    /// How many bytes are not zero.
    pub(crate) fn stained(&self) -> usize {
        // SAFETY: inside of the mapping.
        let byte = |n| unsafe { self.addr.add(n).read_volatile() };
        (0..self.len).step_by(64).filter(|n| byte(*n) != 0).count()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: the mapping is this view's.
        unsafe { libc::munmap(self.addr.cast(), self.len) };
    }
}

/// SIGKILL for all of a process group; true if there was anybody.
pub(crate) fn kill_group(group: u32) -> bool {
    let group = i32::try_from(group).expect("process ids are positive");
    // SAFETY: kill takes no pointer.
    unsafe { libc::kill(-group, libc::SIGKILL) == 0 }
}
