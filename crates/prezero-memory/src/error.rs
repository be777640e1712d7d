//! Errors of mapping and registering memory, and the shape of an error that hands memory back.

use std::error::Error;
use std::fmt;
use std::io;

use prezero_host::{Host, PageSize};

use crate::class::Class;
use crate::mapping::{MapFailure, MapStep};
use crate::plan::{Backing, SlotPlan};
use crate::register::SlotRange;
use crate::size::ByteSize;

/// An error together with the memory it happened to.
#[derive(Debug)]
pub struct Failed<M, E> {
    /// The memory, in the last state it was known to be in.
    pub ram: M,
    /// What happened.
    pub error: E,
}

impl<M, E: fmt::Display> fmt::Display for Failed<M, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<M: fmt::Debug, E: Error> Error for Failed<M, E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

/// Memory could not be mapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReserveError {
    /// RLIMIT_FSIZE, which also holds for memfds.
    #[error("A memfd of {} is above the file size limit of {} (RLIMIT_FSIZE)", ByteSize(*.largest), ByteSize(*.limit))]
    FileSizeLimit {
        /// Bytes of the largest file needed.
        largest: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// Fewer hugepages than the plan counted on: somebody else took them, or a limit holds.
    #[error("Mapping {} of {page} pages: {needed} needed, {available} of the host's {total} pages are free and not reserved", ByteSize(*.bytes))]
    Hugepages {
        /// Bytes of the extent.
        bytes: u64,
        /// Its page size.
        page: PageSize,
        /// Its node, if it is bound to one.
        node: Option<u32>,
        /// Pages needed.
        needed: u64,
        /// Pages available on the whole host when it failed.
        available: u64,
        /// Pages of the pool.
        total: u64,
        /// mmap(2)'s error.
        #[source]
        source: io::Error,
    },
    /// Binding was refused.
    #[error("Binding {} at guest address {gpa:#x} to node {node}", ByteSize(*.bytes))]
    Bind {
        /// Bytes of the extent.
        bytes: u64,
        /// Its guest address.
        gpa: u64,
        /// The node.
        node: u32,
        /// The refusal.
        #[source]
        source: io::Error,
    },
    /// Anything else the kernel refuses.
    #[error("{step} for slot {slot}: {} at guest address {gpa:#x}", ByteSize(*.bytes))]
    Map {
        /// What was refused.
        step: MapStep,
        /// The slot.
        slot: u32,
        /// Bytes of the slot.
        bytes: u64,
        /// Its guest address.
        gpa: u64,
        /// The refusal.
        #[source]
        source: io::Error,
    },
}

impl ReserveError {
    pub(crate) fn new(slot: &SlotPlan, failure: MapFailure) -> Self {
        let MapFailure {
            step,
            extent,
            source,
        } = failure;
        match extent {
            Some(extent) if step == MapStep::Bind => Self::Bind {
                bytes: extent.len().bytes(),
                gpa: extent.gpa(),
                node: extent.node(),
                source,
            },
            Some(extent)
                if extent.backing() == Backing::Memfd
                    && step == MapStep::Map
                    && source.raw_os_error() == Some(libc::ENOMEM) =>
            {
                let page = extent.page_size();
                let pools = Host::probe().pools;
                let pool = pools.iter().find(|pool| pool.page_size == page);
                Self::Hugepages {
                    bytes: extent.len().bytes(),
                    page,
                    node: extent.bound().then_some(extent.node()),
                    needed: extent.len().pages(),
                    available: pool.map_or(0, |pool| pool.available()),
                    total: pool.map_or(0, |pool| pool.total),
                    source,
                }
            }
            _ => Self::Map {
                step,
                slot: slot.slot(),
                bytes: slot.len(),
                gpa: slot.gpa(),
                source,
            },
        }
    }

    /// What kind of error it is.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::FileSizeLimit { .. } | Self::Hugepages { .. } => Class::Shortage,
            Self::Bind { .. } => Class::Host,
            Self::Map { source, .. } => match source.raw_os_error() {
                Some(libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::ENOSPC) => Class::Shortage,
                Some(libc::EPERM | libc::EACCES | libc::ENOSYS | libc::EINVAL) => Class::Host,
                _ => Class::Internal,
            },
        }
    }

    /// What to type.
    #[must_use]
    pub fn fix(&self) -> Option<String> {
        Some(match self {
            Self::FileSizeLimit { .. } => "ulimit -f unlimited".to_owned(),
            Self::Hugepages { page, needed, available, total, node, .. } => {
                let kib = page.bytes() / 1024;
                if available >= needed {
                    // The pool is not what is short.
                    return Some(match node {
                        Some(node) => format!("grep . /sys/devices/system/node/node{node}/hugepages/hugepages-{kib}kB/*"),
                        None => "cat /proc/self/cgroup, then hugetlb.*.rsvd.max of that group and its parents".to_owned(),
                    });
                }
                let grown = total + (needed - available);
                format!("echo {grown} | sudo tee /sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages")
            }
            Self::Bind { source, .. } => match source.raw_os_error() {
                Some(libc::EPERM | libc::ENOSYS) => "leave host_numa_node out, or allow mbind and set_mempolicy (CAP_SYS_NICE and the seccomp profile of the container)".to_owned(),
                _ => "grep Mems_allowed_list /proc/self/status, and cpuset.mems of this process's cgroup".to_owned(),
            },
            Self::Map { source, step, .. } => match (source.raw_os_error(), step) {
                (Some(libc::EMFILE), _) => "ulimit -n 1024".to_owned(),
                (Some(libc::ENOMEM), _) => {
                    "a smaller size=, or ulimit -v unlimited".to_owned()
                }
                _ => return None,
            },
        })
    }
}

/// A slot that was refused.
#[derive(Debug, thiserror::Error)]
#[error("Guest memory was not registered: {range}")]
pub struct RegisterError<E: std::error::Error + 'static> {
    /// The slot.
    pub range: SlotRange,
    /// The registrar's reason.
    #[source]
    pub source: E,
}
