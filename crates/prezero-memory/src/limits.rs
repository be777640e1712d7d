//! Limits that stand between a request and the pages that are free: which one binds, in numbers.
//!
//! The kernel says `ENOMEM` or `EFAULT` for all of them alike.

use std::fmt;
use std::path::PathBuf;

use prezero_host::{Host, LimitKind as HostLimitKind, PageSize};

use crate::size::ByteSize;

/// What kind of limit it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitKind {
    /// Hugepages that a cgroup may have faulted in (`hugetlb.*.max`).
    HugetlbUsage,
    /// Hugepages that a cgroup may have reserved (`hugetlb.*.rsvd.max`).
    HugetlbReservation,
    /// Memory of a cgroup (`memory.max`).
    Memory,
    /// The `size=` of a hugetlbfs mount.
    Mount,
    /// The process's file size limit (`RLIMIT_FSIZE`), which holds for memfds too.
    FileSize,
    /// The process's address space limit (`RLIMIT_AS`).
    AddressSpace,
}

/// A limit that is too low.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitHit {
    /// What kind of limit it is.
    pub what: LimitKind,
    /// The file that holds it, or the mount.
    pub file: PathBuf,
    /// The limit in bytes.
    pub limit: u64,
    /// Bytes in use under it.
    pub usage: u64,
    /// Bytes needed next to those.
    pub needed: u64,
}

impl LimitHit {
    /// Bytes missing.
    #[must_use]
    pub fn short(&self) -> u64 {
        let wanted = self.usage.saturating_add(self.needed);
        wanted.saturating_sub(self.limit)
    }

    /// What to type.
    #[must_use]
    pub fn fix(&self) -> String {
        let wanted = self.usage.saturating_add(self.needed);
        let file = self.file.display();
        match self.what {
            // hugetlbfs has no remount of its own: the kernel takes a new size and ignores it.
            LimitKind::Mount => format!(
                "leave path out: a memfd needs no mount; or umount {file} and mount it with size={wanted}"
            ),
            LimitKind::FileSize => "ulimit -f unlimited".to_owned(),
            LimitKind::AddressSpace => "a smaller size=, or ulimit -v unlimited".to_owned(),
            _ => format!("echo {wanted} | sudo tee {file}"),
        }
    }
}

impl fmt::Display for LimitHit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.what {
            LimitKind::HugetlbUsage => "The cgroup limit on hugepages in use",
            LimitKind::HugetlbReservation => "The cgroup limit on reserved hugepages",
            LimitKind::Memory => "The cgroup limit on memory",
            LimitKind::Mount => "The size limit of the mount",
            LimitKind::FileSize => "The file size limit (RLIMIT_FSIZE)",
            LimitKind::AddressSpace => "The address space limit (RLIMIT_AS)",
        };
        write!(
            f,
            "{what} {} is {}, {} in use, {} needed, short by {}",
            self.file.display(),
            ByteSize(self.limit),
            ByteSize(self.usage),
            ByteSize(self.needed),
            ByteSize(self.short()),
        )
    }
}

fn hit(limit: &prezero_host::HugetlbLimit, needed: u64) -> LimitHit {
    LimitHit {
        what: match limit.kind {
            HostLimitKind::Usage => LimitKind::HugetlbUsage,
            HostLimitKind::Reservation => LimitKind::HugetlbReservation,
        },
        file: limit.file.clone(),
        limit: limit.limit,
        usage: limit.usage,
        needed,
    }
}

/// The tightest cgroup limit of these kinds that `needed` more bytes of `page` pages would exceed.
pub(crate) fn of_hugepages(
    host: &Host,
    page: PageSize,
    needed: u64,
    kinds: &[HostLimitKind],
) -> Option<LimitHit> {
    let limits = host.hugetlb_limits.iter();
    let limits = limits.filter(|limit| limit.page_size == page && kinds.contains(&limit.kind));
    let tightest = limits.min_by_key(|limit| limit.remaining())?;
    (tightest.remaining() < needed).then(|| hit(tightest, needed))
}

/// The tightest memory limit under which hugepages count too and that `needed` more bytes of them
/// would exceed.
pub(crate) fn of_accounted(host: &Host, needed: u64) -> Option<LimitHit> {
    memory(
        host.memory_limits
            .iter()
            .filter(|limit| limit.counts_hugetlb),
        needed,
    )
}

/// The tightest memory limit that `needed` more bytes of ordinary memory would exceed.
pub(crate) fn of_memory(host: &Host, needed: u64) -> Option<LimitHit> {
    memory(host.memory_limits.iter(), needed)
}

fn memory<'a>(
    limits: impl Iterator<Item = &'a prezero_host::MemoryLimit>,
    needed: u64,
) -> Option<LimitHit> {
    let tightest = limits.min_by_key(|limit| limit.remaining())?;
    (tightest.remaining() < needed).then(|| LimitHit {
        what: LimitKind::Memory,
        file: tightest.file.clone(),
        limit: tightest.limit,
        usage: tightest.usage.saturating_sub(tightest.page_cache),
        needed,
    })
}
