//! Why memory was not populated.

use std::fmt;
use std::io;

use prezero_host::PageSize;

use crate::class::Class;
use crate::control::{NodeProgress, StoppedBy};
use crate::size::ByteSize;

/// Why memory was not populated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PopulateError {
    /// The kernel refused a chunk. All workers stopped; the first refusal is kept.
    #[error("Populating {page} pages on node {node} failed after {} of {}{}", ByteSize(*.done), ByteSize(*.total), explain(.source))]
    Refused {
        /// Host address of the chunk.
        addr: u64,
        /// Its page size.
        page: PageSize,
        /// Its node.
        node: u32,
        /// Bytes populated by all workers by then.
        done: u64,
        /// Bytes to populate in all.
        total: u64,
        /// madvise(2)'s error.
        #[source]
        source: io::Error,
    },
    /// Cancelled or too late.
    #[error("{} with {}", match .by { StoppedBy::Cancel => "Cancelled", StoppedBy::Deadline => "Deadline passed" }, Far(.nodes))]
    Stopped {
        /// Which.
        by: StoppedBy,
        /// How far each node was.
        nodes: Vec<NodeProgress>,
    },
    /// A target on a node that no worker works for.
    #[error("No worker was planned for node {0}")]
    NoWorkers(u32),
    /// A target that does not start on a page.
    #[error("Target at {addr:#x} is not on a {page} boundary")]
    Unaligned {
        /// Its address.
        addr: u64,
        /// Its page size.
        page: PageSize,
    },
    /// A worker ended without a result.
    #[error("A worker ended early, after {} of {}", ByteSize(*.done), ByteSize(*.total))]
    WorkerLost {
        /// Bytes populated by then.
        done: u64,
        /// Bytes to populate in all.
        total: u64,
    },
}

fn explain(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EFAULT) => ": no page left, or a hugetlb cgroup limit reached",
        Some(libc::EHWPOISON) => ": the memory has a hardware error (poisoned page)",
        Some(libc::EINVAL) => ": this kernel has no MADV_POPULATE_WRITE (Linux 5.14)",
        Some(libc::ENOMEM) => ": out of memory",
        _ => "",
    }
}

/// "3 GiB of 16 GiB populated on node 0, …".
struct Far<'a>(&'a [NodeProgress]);

impl fmt::Display for Far<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, node) in self.0.iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            let (done, total) = (ByteSize(node.done), ByteSize(node.total));
            write!(
                f,
                "{comma}{done} of {total} populated on node {}",
                node.node
            )?;
        }
        Ok(())
    }
}

impl PopulateError {
    /// What kind of error it is.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Refused { source, .. } => match source.raw_os_error() {
                Some(libc::EFAULT | libc::ENOMEM) => Class::Shortage,
                Some(libc::EINVAL | libc::EPERM | libc::EACCES | libc::ENOSYS) => Class::Host,
                _ => Class::Internal,
            },
            Self::Stopped { .. } => Class::Stopped,
            Self::NoWorkers(_) | Self::Unaligned { .. } => Class::Usage,
            Self::WorkerLost { .. } => Class::Internal,
        }
    }

    /// What to type.
    #[must_use]
    pub fn fix(&self) -> Option<String> {
        let Self::Refused { source, page, .. } = self else {
            return None;
        };
        match source.raw_os_error()? {
            libc::EFAULT | libc::ENOMEM => {
                let kib = page.bytes() / 1024;
                Some(match *page > PageSize::BASE {
                    true => format!(
                        "grep . /sys/kernel/mm/hugepages/hugepages-{kib}kB/* /sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)/hugetlb.*.max"
                    ),
                    false => "a smaller size= or free memory (grep MemAvailable /proc/meminfo)"
                        .to_owned(),
                })
            }
            libc::EINVAL => Some("leave --prealloc out, or boot Linux 5.14+".to_owned()),
            _ => None,
        }
    }
}
