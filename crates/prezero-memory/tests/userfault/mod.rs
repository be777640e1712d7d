//! Ordinary memory whose missing pages a process has to provide itself (userfaultfd(2)): as long as it does not, the
//! kernel does not return from populating.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const UFFD_API: u64 = 0xaa;
const REGISTER_MODE_MISSING: u64 = 1;

const fn ioctl_number(direction: u64, number: u64, size: u64) -> u64 {
    (direction << 30) | (size << 16) | (UFFD_API << 8) | number
}

/// `struct uffdio_api` and `struct uffdio_register` of linux/userfaultfd.h.
#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Register {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

/// A private mapping, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Unanswered {
    addr: u64,
    len: usize,
}

impl Unanswered {
    /// `len` bytes, and the descriptor that keeps their faults waiting until it is closed.
    pub(crate) fn new(len: usize) -> io::Result<(Self, OwnedFd)> {
        let faults = open()?;
        // SAFETY: a new private mapping at an address of the kernel's choice.
        let addr = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if addr == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = Self {
            addr: addr as u64,
            len,
        };
        let mut api = Api {
            api: UFFD_API,
            features: 0,
            ioctls: 0,
        };
        let mut register = Register {
            start: memory.addr,
            len: len as u64,
            mode: REGISTER_MODE_MISSING,
            ioctls: 0,
        };
        let fd = faults.as_raw_fd();
        // SAFETY: both structures are as the kernel declares them and outlive the calls, and the range is ours.
        let registered = unsafe {
            libc::ioctl(fd, ioctl_number(3, 0x3f, 24), &raw mut api) == 0
                && libc::ioctl(fd, ioctl_number(3, 0, 32), &raw mut register) == 0
        };
        match registered {
            true => Ok((memory, faults)),
            false => Err(io::Error::last_os_error()),
        }
    }

    pub(crate) fn addr(&self) -> u64 {
        self.addr
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and nothing refers to it any more.
        unsafe { libc::munmap(self.addr as *mut libc::c_void, self.len) };
    }
}

/// For faults of the kernel too, which an ordinary user gets from /dev/userfaultfd at most.
fn open() -> io::Result<OwnedFd> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: the call takes flags only.
    let mut fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    if fd < 0 {
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/userfaultfd")?;
        // SAFETY: USERFAULTFD_IOC_NEW takes flags and returns a new descriptor.
        fd = unsafe { libc::ioctl(device.as_raw_fd(), ioctl_number(0, 0, 0), flags) }.into();
    }
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = i32::try_from(fd).expect("a descriptor");
    // SAFETY: it is new, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
