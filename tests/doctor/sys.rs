//! System calls that the standard library does not wrap.

use std::io;

/// Private hugepages of 2 MiB, until it is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    addr: *mut libc::c_void,
    len: usize,
}

impl Mapping {
    /// mmap(2) of `len` bytes of 2 MiB pages, all of them faulted in.
    #[track_caller]
    pub(crate) fn of_hugepages(len: usize) -> Self {
        let flags = libc::MAP_PRIVATE
            | libc::MAP_ANONYMOUS
            | libc::MAP_HUGETLB
            | libc::MAP_HUGE_2MB
            | libc::MAP_POPULATE;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice changes no existing one.
        let addr = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0) };
        assert_ne!(addr, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        Self { addr, len }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nobody has been given the address.
        assert_eq!(unsafe { libc::munmap(self.addr, self.len) }, 0);
    }
}

/// A System V segment of 2 MiB pages that no process is attached to, until it is dropped.
#[derive(Debug)]
pub(crate) struct Segment(i32);

impl Segment {
    /// shmget(2) of `len` bytes, each page touched. None where the default size is another one.
    #[track_caller]
    pub(crate) fn of_hugepages(len: usize) -> Option<Self> {
        let flags = libc::IPC_CREAT | libc::SHM_HUGETLB | 0o600;
        // SAFETY: no memory operand.
        let id = unsafe { libc::shmget(libc::IPC_PRIVATE, len, flags) };
        if id == -1 {
            return None;
        }
        let segment = Self(id);
        // SAFETY: a new mapping at an address of the kernel's choice, `len` bytes long, that nobody else knows.
        unsafe {
            let addr = libc::shmat(id, std::ptr::null(), 0);
            assert_ne!(addr as isize, -1, "{}", io::Error::last_os_error());
            for page in (0..len).step_by(2 << 20) {
                addr.cast::<u8>().add(page).write_volatile(1);
            }
            assert_eq!(libc::shmdt(addr), 0);
        }
        Some(segment)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: this command of shmctl takes no pointer.
        unsafe { libc::shmctl(self.0, libc::IPC_RMID, std::ptr::null_mut()) };
    }
}
