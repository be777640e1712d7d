//! System calls that only ask whether the kernel has a feature.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::sys::{Source, map_fixed, populate_write, reserve_addresses, unmap};

/// `linux/userfaultfd.h`, which libc does not have.
pub(super) const UFFD_USER_MODE_ONLY: i32 = 1;
pub(super) const UFFD_FEATURE_MINOR_HUGETLBFS: u64 = 1 << 9;
pub(super) const UFFD_FEATURE_MINOR_SHMEM: u64 = 1 << 10;
const UFFD_API: u64 = 0xaa;
/// `_IOWR(UFFDIO, _UFFDIO_API, struct uffdio_api)`.
const UFFDIO_API: libc::Ioctl = 0xc018_aa3f_u32 as libc::Ioctl;

#[repr(C)]
struct UffdioApi {
    api: u64,
    features: u64,
    ioctls: u64,
}

fn check(result: i64) -> io::Result<i64> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        value => Ok(value),
    }
}

/// madvise(2) with `MADV_POPULATE_WRITE` on one new page, which is gone afterwards.
pub(super) fn populate_one_page() -> io::Result<()> {
    const PAGE: u64 = 4096;
    let addr = reserve_addresses(PAGE)?;
    // SAFETY: the page was just reserved and nothing uses it.
    unsafe {
        let writable = map_fixed(addr, PAGE, Source::Anonymous);
        let populated = writable.and_then(|()| populate_write(addr, PAGE));
        unmap(addr, PAGE).and(populated)
    }
}

/// userfaultfd(2) with `flags`, and what `UFFDIO_API` says its features are (ioctl_userfaultfd(2)).
pub(super) fn userfaultfd_features(flags: i32) -> io::Result<u64> {
    // SAFETY: no memory operand.
    let fd = check(unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | flags) })?;
    let fd = i32::try_from(fd).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: the kernel just returned it and nobody else has it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // No feature is asked for: the answer holds all that there are.
    let mut api = UffdioApi {
        api: UFFD_API,
        features: 0,
        ioctls: 0,
    };
    // SAFETY: the kernel reads and writes the live struct of the size that the number encodes.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), UFFDIO_API, &raw mut api) }.into())?;
    Ok(api.features)
}

/// fcntl(2), `F_SETLEASE`: a lease of this kind that is given up at once.
pub(super) fn lease_and_release(file: BorrowedFd<'_>, kind: i32) -> io::Result<()> {
    for lease in [kind, libc::F_UNLCK] {
        // SAFETY: no memory operand.
        check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, lease) }.into())?;
    }
    Ok(())
}
