//! System calls of this crate: one thin wrapper each, named after its man page.
//!
//! Unsafe code elsewhere is in the owner of mappings, the door to KVM and the vm-memory adapter.

use std::ffi::CStr;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use prezero_host::{IdSet, PageSize};

const BITS: usize = u64::BITS as usize;

pub(crate) fn check(result: i64) -> io::Result<i64> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        value => Ok(value),
    }
}

/// A length as the kernel takes it; `usize` and `u64` are the same on every supported machine.
pub(crate) fn bytes(len: u64) -> io::Result<usize> {
    usize::try_from(len).map_err(|_| io::Error::from_raw_os_error(libc::ENOMEM))
}

/// mmap(2): `len` bytes of address space that nothing may touch yet.
pub(crate) fn reserve_addresses(len: u64) -> io::Result<u64> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice changes no existing one.
    let addr = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes(len)?,
            libc::PROT_NONE,
            flags,
            -1,
            0,
        )
    };
    if addr == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(addr as u64)
}

/// What a fixed mapping shows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a> {
    /// Private zero pages, readable and writable. Counted against overcommit: a guest many times the
    /// size of the host would take its memory for KVM's own tables (8 bytes a base page and more).
    Anonymous,
    /// Nothing: address space that faults.
    Inaccessible,
    /// A file from an offset on, shared, readable and writable.
    Shared(BorrowedFd<'a>, u64),
}

/// mmap(2) with `MAP_FIXED`: replaces whatever is mapped at `addr..addr + len`.
///
/// # Safety
///
/// The range belongs to the caller and nothing uses what is mapped there now.
pub(crate) unsafe fn map_fixed(addr: u64, len: u64, source: Source<'_>) -> io::Result<()> {
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let (prot, flags, fd, offset) = match source {
        Source::Anonymous => (rw, private, -1, 0),
        Source::Inaccessible => (libc::PROT_NONE, private | libc::MAP_NORESERVE, -1, 0),
        Source::Shared(fd, offset) => (rw, libc::MAP_SHARED, fd.as_raw_fd(), offset),
    };
    let offset =
        i64::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    // SAFETY: the caller owns the range.
    let mapped = unsafe {
        libc::mmap(
            addr as *mut _,
            bytes(len)?,
            prot,
            flags | libc::MAP_FIXED,
            fd,
            offset,
        )
    };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// munmap(2).
///
/// # Safety
///
/// The range belongs to the caller and nothing uses it any more.
pub(crate) unsafe fn unmap(addr: u64, len: u64) -> io::Result<()> {
    // SAFETY: the caller owns the range.
    check(unsafe { libc::munmap(addr as *mut _, bytes(len)?) }.into()).map(drop)
}

/// Advice that changes no contents.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Advice {
    DontFork,
    DontDump,
    Hugepage,
}

/// madvise(2) with advice that changes no contents.
pub(crate) fn advise(addr: u64, len: u64, advice: Advice) -> io::Result<()> {
    let advice = match advice {
        Advice::DontFork => libc::MADV_DONTFORK,
        Advice::DontDump => libc::MADV_DONTDUMP,
        Advice::Hugepage => libc::MADV_HUGEPAGE,
    };
    // SAFETY: none of the advice above changes what a load from this process returns.
    check(unsafe { libc::madvise(addr as *mut _, bytes(len)?, advice) }.into()).map(drop)
}

/// madvise(2) with `MADV_POPULATE_WRITE` (Linux 5.14): faults every page in as for a store, without
/// storing. An error where a store would be a SIGBUS.
pub(crate) fn populate_write(addr: u64, len: u64) -> io::Result<()> {
    // SAFETY: prefaulting changes no contents, and addresses that are not mapped are an error.
    check(unsafe { libc::madvise(addr as *mut _, bytes(len)?, libc::MADV_POPULATE_WRITE) }.into())
        .map(drop)
}

/// memfd_create(2) on hugepages of `page`, close-on-exec, of `len` bytes.
pub(crate) fn hugetlb_memfd(name: &CStr, page: PageSize, len: u64) -> io::Result<OwnedFd> {
    let size_flag = page.shift() << libc::MFD_HUGE_SHIFT;
    let flags = libc::MFD_CLOEXEC | libc::MFD_HUGETLB | size_flag;
    // SAFETY: the name is a C string; the call has no other memory operand.
    let fd = check(unsafe { libc::memfd_create(name.as_ptr(), flags) }.into())?;
    let fd = i32::try_from(fd).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: the kernel just returned it and nobody else has it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let len = i64::try_from(len).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
    // SAFETY: no memory operand.
    check(unsafe { libc::ftruncate(fd.as_raw_fd(), len) }.into())?;
    Ok(fd)
}

/// open(2), `O_TMPFILE`: a file of `len` bytes without a name in `dir`, which has to be on hugetlbfs
/// with pages of `page`; only its owner may read or write it. It is gone with its last descriptor and
/// mapping, whatever ends the process.
pub(crate) fn hugetlbfs_file(dir: &Path, page: PageSize, len: u64) -> io::Result<OwnedFd> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        // Exclusive: nobody can give it a name later.
        .custom_flags(libc::O_TMPFILE | libc::O_EXCL)
        .mode(0o600)
        .open(dir)?;
    let mount = statfs(file.as_fd())?;
    if mount.f_type != libc::HUGETLBFS_MAGIC || u64::try_from(mount.f_bsize) != Ok(page.bytes()) {
        // The plan saw a hugetlbfs mount here: it has been replaced since.
        return Err(io::Error::from_raw_os_error(libc::EMEDIUMTYPE));
    }
    file.set_len(len)?;
    Ok(file.into())
}

/// fstatfs(2).
pub(crate) fn statfs(fd: BorrowedFd<'_>) -> io::Result<libc::statfs> {
    let mut found = std::mem::MaybeUninit::uninit();
    // SAFETY: the kernel fills in the live statfs when it succeeds.
    unsafe {
        check(libc::fstatfs(fd.as_raw_fd(), found.as_mut_ptr()).into())?;
        Ok(found.assume_init())
    }
}

/// Bytes that a hugetlbfs mount has left under its `size=`, or `None` without such a limit.
pub(crate) fn hugetlbfs_room(dir: &Path) -> Option<(u64, u64)> {
    let found = statfs(std::fs::File::open(dir).ok()?.as_fd()).ok()?;
    let block = u64::try_from(found.f_bsize).ok()?;
    // hugetlbfs reports no blocks at all without a limit (fs/hugetlbfs/inode.c).
    (found.f_blocks > 0).then_some((found.f_blocks * block, found.f_bavail * block))
}

/// getrlimit(2), `RLIMIT_FSIZE`: a file past this length is a SIGXFSZ, even a memfd.
pub(crate) fn file_size_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is to a live rlimit.
    match unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } {
        0 => limit.rlim_cur,
        _ => u64::MAX,
    }
}

/// geteuid(2).
pub(crate) fn user() -> u32 {
    // SAFETY: no operands.
    unsafe { libc::geteuid() }
}

/// move_pages(2) without target nodes: the node of the page at each address, or a negative errno.
pub(crate) fn page_nodes(addresses: &[u64], nodes: &mut [i32]) -> io::Result<()> {
    let count = addresses.len().min(nodes.len());
    // SAFETY: both arrays are live and hold `count` entries; without target nodes nothing moves.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            count,
            addresses.as_ptr(),
            std::ptr::null::<i32>(),
            nodes.as_mut_ptr(),
            0,
        )
    };
    check(result).map(drop)
}

const CPU_SET_WORDS: usize = 64;

/// sched_setaffinity(2): the calling thread runs on `cpu` only.
pub(crate) fn pin_this_thread(cpu: u32) -> io::Result<()> {
    let cpu = cpu as usize;
    let mut mask = [0_u64; CPU_SET_WORDS];
    let word = mask.get_mut(cpu / BITS);
    *word.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))? |= 1 << (cpu % BITS);
    let size = size_of_val(&mask);
    // SAFETY: the mask is live and of `size` bytes.
    check(unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size, mask.as_ptr()) }).map(drop)
}

/// sched_getaffinity(2): the CPUs the calling thread may run on.
pub(crate) fn affinity() -> io::Result<IdSet> {
    let mut mask = [0_u64; CPU_SET_WORDS];
    let size = size_of_val(&mask);
    // SAFETY: the mask is live and of `size` bytes.
    check(unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, size, mask.as_mut_ptr()) })?;
    let bits = (0..u32::try_from(CPU_SET_WORDS * BITS).unwrap_or(0)).filter(|cpu| {
        let cpu = *cpu as usize;
        mask[cpu / BITS] & (1 << (cpu % BITS)) != 0
    });
    Ok(bits.collect())
}

/// sched_getcpu(3): the CPU the calling thread is on.
pub(crate) fn current_cpu() -> Option<u32> {
    // SAFETY: no operands.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// clock_gettime(2), `CLOCK_THREAD_CPUTIME_ID`: CPU time of the calling thread.
pub(crate) fn thread_cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a live timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_and_reads_back() {
        std::thread::spawn(|| {
            let cpu = affinity().unwrap().first().unwrap();
            pin_this_thread(cpu).unwrap();
            assert_eq!(affinity().unwrap().to_string(), cpu.to_string());
            assert_eq!(current_cpu(), Some(cpu));
            assert!(pin_this_thread(4095).is_err());
            assert!(pin_this_thread(1 << 20).is_err());
        })
        .join()
        .unwrap();
    }
}
