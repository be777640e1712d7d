//! What the kernel can do, found by trying it: a version number says little about a distribution's
//! kernel, and nothing about a seccomp filter.

mod sys;

use std::fmt;
use std::io;
use std::os::fd::AsFd;

use prezero_host::{Host, PageSize};

use crate::sys::{hugetlb_memfd, hugetlbfs_file};

/// Whether the kernel does something for this process.
#[derive(Debug)]
#[non_exhaustive]
pub enum Feature {
    /// It was tried and it works.
    Works,
    /// The kernel does not have it.
    Missing,
    /// The kernel has it, and this process may not use it.
    Forbidden(io::Error),
    /// It could not be tried.
    Unknown(io::Error),
}

impl Feature {
    /// Whether it was tried and works.
    #[must_use]
    pub fn works(&self) -> bool {
        matches!(self, Self::Works)
    }

    fn of(result: io::Result<()>) -> Self {
        match result {
            Ok(()) => Self::Works,
            Err(error) => match error.raw_os_error() {
                Some(libc::EINVAL | libc::ENOSYS | libc::ENOTTY | libc::EOPNOTSUPP) => {
                    Self::Missing
                }
                Some(libc::EPERM | libc::EACCES) => Self::Forbidden(error),
                _ => Self::Unknown(error),
            },
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Works => f.write_str("works"),
            Self::Missing => f.write_str("is not in this kernel"),
            Self::Forbidden(error) => write!(f, "is forbidden to this process: {error}"),
            Self::Unknown(error) => write!(f, "could not be tried: {error}"),
        }
    }
}

/// The kernel's features that guest memory depends on.
#[derive(Debug)]
#[non_exhaustive]
pub struct Features {
    /// madvise(2) with `MADV_POPULATE_WRITE`, Linux 5.14: populating depends on it.
    pub populate_write: Feature,
    /// userfaultfd(2) minor faults of hugetlb pages (`UFFD_FEATURE_MINOR_HUGETLBFS`, Linux 5.13), for
    /// accesses by KVM too: `Forbidden` where only those from user space would be reported.
    pub minor_hugetlbfs: Feature,
    /// The same for shared memory (`UFFD_FEATURE_MINOR_SHMEM`, Linux 5.14).
    pub minor_shmem: Feature,
    /// File leases on hugetlbfs (`F_SETLEASE`, fcntl(2)), which prove that nobody else has a file open.
    pub leases: Feature,
}

impl Features {
    /// Tries each of them, in less than a millisecond, without taking a hugepage. `host` tells the
    /// hugetlbfs mounts and page sizes.
    #[must_use]
    pub fn probe(host: &Host) -> Self {
        let (minor_hugetlbfs, minor_shmem) = minor_faults();
        Self {
            populate_write: Feature::of(sys::populate_one_page()),
            minor_hugetlbfs,
            minor_shmem,
            leases: leases(host),
        }
    }
}

/// Which faults a userfaultfd may report. Without privilege only those from user space, unless
/// `vm.unprivileged_userfaultfd` says otherwise; KVM's accesses come from the kernel.
fn minor_faults() -> (Feature, Feature) {
    let (features, all_faults) = match sys::userfaultfd_features(0) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            (sys::userfaultfd_features(sys::UFFD_USER_MODE_ONLY), false)
        }
        features => (features, true),
    };
    let of = |bit| {
        // An io::Error cannot be cloned.
        let copy = |error: &io::Error| match error.raw_os_error() {
            Some(number) => io::Error::from_raw_os_error(number),
            None => error.kind().into(),
        };
        match &features {
            // Linux before 5.11 does not know the flag: all that was said is that it is forbidden.
            Err(_) if !all_faults => Feature::Forbidden(io::Error::from_raw_os_error(libc::EPERM)),
            Err(error) => Feature::of(Err(copy(error))),
            Ok(bits) if bits & bit == 0 => Feature::Missing,
            Ok(_) if all_faults => Feature::Works,
            Ok(_) => Feature::Forbidden(io::Error::from_raw_os_error(libc::EPERM)),
        }
    };
    (
        of(sys::UFFD_FEATURE_MINOR_HUGETLBFS),
        of(sys::UFFD_FEATURE_MINOR_SHMEM),
    )
}

/// On a mount where one can be written to, because Linux 7.0 may decide by mount; otherwise on a memfd.
/// An empty file takes no page.
fn leases(host: &Host) -> Feature {
    let on_mount = host
        .mounts
        .iter()
        .filter(|mount| !mount.read_only)
        .find_map(|mount| hugetlbfs_file(&mount.path, mount.page_size?, 0).ok());
    if let Some(file) = on_mount {
        return Feature::of(sys::lease_and_release(file.as_fd(), libc::F_WRLCK));
    }
    let page = host
        .default_hugepage_size
        .or(host.pools.first().map(|pool| pool.page_size))
        .unwrap_or(PageSize::HUGE_2M);
    match hugetlb_memfd(c"prezero-lease", page, 0) {
        // The kernel does not count a memfd's creation as an open for writing, and so refuses a write
        // lease (EAGAIN, `check_conflicting_open` in fs/locks.c); a read lease shows as much.
        Ok(file) => Feature::of(sys::lease_and_release(file.as_fd(), libc::F_RDLCK)),
        Err(error) => Feature::Unknown(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_apart() {
        let of = |number| Feature::of(Err(io::Error::from_raw_os_error(number)));
        assert!(Feature::of(Ok(())).works());
        assert!(matches!(of(libc::EINVAL), Feature::Missing));
        assert!(matches!(of(libc::ENOSYS), Feature::Missing));
        assert!(matches!(of(libc::EPERM), Feature::Forbidden(_)));
        assert!(matches!(of(libc::ENOMEM), Feature::Unknown(_)));
    }

    #[test]
    fn a_kernel_of_5_14_or_later_populates() {
        let host = Host::probe();
        let features = Features::probe(&host);
        let new = host
            .kernel
            .version()
            .is_some_and(|version| version >= (5, 14));
        assert_eq!(features.populate_write.works(), new, "{features:?}");
    }

    #[test]
    fn probing_leaves_no_descriptor_and_takes_no_page() {
        let host = Host::probe();
        // The first call may open what stays open, such as a library.
        drop(Features::probe(&host));
        let fds = prezero_testkit::open_fds();
        for _ in 0..100 {
            drop(Features::probe(&host));
        }
        // Other tests of this binary open some, too.
        assert!(prezero_testkit::open_fds() < fds + 50);
        assert_eq!(prezero_testkit::maps_containing("prezero-lease"), [""; 0]);
    }
}
