//! Why memory was not populated.

use std::io;
use std::time::Duration;

use prezero_host::{Host, PageSize};

use crate::class::Class;
use crate::control::{NodeProgress, StoppedBy};
use crate::diagnosis;
use crate::limits::LimitHit;
use crate::size::ByteSize;
use crate::work::{Far, Unfinished, pace};

/// Why memory was not populated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PopulateError {
    /// The kernel refused a chunk. All workers stopped; the first refusal is kept.
    #[error("Populating {page} pages on node {node} failed after {} of {}: {}", ByteSize(*.done), ByteSize(*.total), explain(.cause.as_deref(), .source))]
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
        /// The limit that was reached, if one is found afterwards.
        cause: Option<Box<LimitHit>>,
        /// madvise(2)'s error.
        #[source]
        source: io::Error,
    },
    /// Cancelled or too late.
    #[error("{} with {}{}", match .by { StoppedBy::Cancel => "Cancelled", StoppedBy::Deadline => "Deadline passed" }, Far(.nodes, "populated"), pace(.nodes, *.elapsed))]
    Stopped {
        /// Which.
        by: StoppedBy,
        /// How far each node was.
        nodes: Vec<NodeProgress>,
        /// How long the workers worked.
        elapsed: Duration,
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

fn explain(cause: Option<&LimitHit>, source: &io::Error) -> String {
    if let Some(cause) = cause {
        return cause.to_string();
    }
    let why = match source.raw_os_error() {
        Some(libc::EFAULT) => "no page was left",
        Some(libc::EHWPOISON) => "the memory has a hardware error (poisoned page)",
        Some(libc::EINVAL) => "this kernel has no MADV_POPULATE_WRITE (Linux 5.14)",
        Some(libc::ENOMEM) => "out of memory",
        _ => "the kernel refused",
    };
    why.to_owned()
}

impl From<Unfinished<Self>> for PopulateError {
    fn from(unfinished: Unfinished<Self>) -> Self {
        match unfinished {
            Unfinished::NoWorkers(node) => Self::NoWorkers(node),
            Unfinished::Unaligned { addr, page } => Self::Unaligned { addr, page },
            Unfinished::Stopped { by, nodes, elapsed } => Self::Stopped { by, nodes, elapsed },
            Unfinished::WorkerLost { done, total } => Self::WorkerLost { done, total },
            Unfinished::Failed(error) => error.diagnosed(),
        }
    }
}

impl PopulateError {
    /// The error with the limit that was reached, as far as the host shows it now.
    fn diagnosed(mut self) -> Self {
        if let Self::Refused {
            page,
            cause,
            source,
            ..
        } = &mut self
        {
            let short = matches!(source.raw_os_error(), Some(libc::EFAULT | libc::ENOMEM));
            if short && *page > PageSize::BASE {
                *cause = diagnosis::of_fault(&Host::probe(), *page).map(Box::new);
            }
        }
        self
    }

    /// Whether a page has a hardware error: the same memory cannot be populated, other memory may.
    #[must_use]
    pub fn is_poison(&self) -> bool {
        let errno = match self {
            Self::Refused { source, .. } => source.raw_os_error(),
            _ => None,
        };
        errno == Some(libc::EHWPOISON)
    }

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
        let Self::Refused {
            source,
            page,
            cause,
            ..
        } = self
        else {
            return None;
        };
        if let Some(cause) = cause {
            return Some(cause.fix());
        }
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
