//! System calls that the standard library does not wrap at this crate's minimum Rust version.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;

/// `flock(LOCK_EX | LOCK_NB)`, see flock(2): false when another open file description holds the lock.
pub(crate) fn try_lock_exclusive(file: &File) -> io::Result<bool> {
    // SAFETY: flock takes no pointer, and the descriptor is open for as long as `file` is borrowed.
    let result = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
    if result == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        error => Err(error),
    }
}

/// `prctl(PR_SET_SECCOMP)`, see seccomp(2): puts a filter on the calling thread. Allocates nothing.
pub(crate) fn filter_system_calls(filter: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).unwrap_or(0),
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: PR_SET_NO_NEW_PRIVS takes numbers only.
    let no_new_privileges = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the program and its `len` instructions are live; the kernel copies and does not write them.
    let set = || unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) };
    match no_new_privileges == 0 && set() == 0 {
        true => Ok(()),
        false => Err(io::Error::last_os_error()),
    }
}

/// Puts a filter on `command` between fork and exec.
pub(crate) fn filter_before_exec(command: &mut Command, filter: Vec<libc::sock_filter>) {
    // SAFETY: the closure makes system calls only, and allocates nothing.
    unsafe { command.pre_exec(move || filter_system_calls(&filter)) };
}

/// Makes a hugetlbfs mount with pages of `page_size` bytes that only the calling thread sees, and the threads and
/// processes it starts later: see mount_namespaces(7). It is gone with the last of them.
pub(crate) fn mount_hugetlbfs(dir: &CStr, page_size: u64) -> io::Result<()> {
    let check = |result| match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    let private = libc::MS_REC | libc::MS_PRIVATE;
    let (none, root, kind) = (c"none".as_ptr(), c"/".as_ptr(), c"hugetlbfs".as_ptr());
    let options = CString::new(format!("pagesize={page_size},mode=0755"))?;
    // SAFETY: every pointer is null or a NUL-terminated string that outlives the call.
    unsafe {
        check(libc::unshare(libc::CLONE_NEWNS))?;
        check(libc::mount(none, root, ptr::null(), private, ptr::null()))?;
        check(libc::mount(
            none,
            dir.as_ptr(),
            kind,
            0,
            options.as_ptr().cast(),
        ))
    }
}

/// `umount2(MNT_DETACH)`.
pub(crate) fn unmount(dir: &CStr) {
    // SAFETY: the pointer is a NUL-terminated string. What is detached stays for those who use it.
    unsafe { libc::umount2(dir.as_ptr(), libc::MNT_DETACH) };
}

/// fallocate(2) with `FALLOC_FL_PUNCH_HOLE`; the file keeps its length.
pub(crate) fn punch(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    let out_of_range = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let offset = libc::off_t::try_from(offset).map_err(out_of_range)?;
    let len = libc::off_t::try_from(len).map_err(out_of_range)?;
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: numbers and a descriptor only.
    match unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `madvise(MADV_HWPOISON)` of `len` bytes of a file, which are mapped for it.
pub(crate) fn poison(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let out_of_range = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let offset = libc::off_t::try_from(offset).map_err(out_of_range)?;
    let len = usize::try_from(len).map_err(out_of_range)?;
    let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping at an address of the kernel's choice changes no existing one.
    let addr = unsafe {
        libc::mmap(
            ptr::null_mut(),
            len,
            access,
            shared,
            file.as_raw_fd(),
            offset,
        )
    };
    if addr == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the range is the mapping's, and nobody reads or writes it.
    let poisoned = match unsafe { libc::madvise(addr, len, libc::MADV_HWPOISON) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: nothing refers to the mapping.
    unsafe { libc::munmap(addr, len) };
    poisoned
}

/// An anonymous file that holds `pages` allocated hugepages of the default size of 2 MiB until it is closed.
#[cfg(test)]
pub(crate) fn memfd_of_2m_pages(pages: u64) -> io::Result<File> {
    use std::os::fd::FromRawFd;

    let flags = libc::MFD_CLOEXEC | libc::MFD_HUGETLB | libc::MFD_HUGE_2MB;
    // SAFETY: the name is a NUL-terminated literal.
    let fd = unsafe { libc::memfd_create(c"prezero-testkit".as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: memfd_create has just returned this descriptor and nothing else owns it.
    let file = unsafe { File::from_raw_fd(fd) };
    let len = i64::try_from(pages << 21).expect("a test wants a few pages");
    // SAFETY: fallocate takes no pointer, and the descriptor is open.
    if unsafe { libc::fallocate(fd, 0, 0, len) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}
