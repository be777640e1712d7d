//! Why memory was not cleared.

use std::time::Duration;

use prezero_clear::Unaccounted;
use prezero_host::PageSize;

use crate::class::Class;
use crate::control::{NodeProgress, StoppedBy};
use crate::size::ByteSize;
use crate::work::{Far, Unfinished, pace};

/// Why memory was not cleared. None of it counts as zero.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClearError {
    /// Cancelled or too late.
    #[error("{} with {}{}", match .by { StoppedBy::Cancel => "Cancelled", StoppedBy::Deadline => "Deadline passed" }, Far(.nodes, "cleared"), pace(.nodes, *.elapsed))]
    Stopped {
        /// Which.
        by: StoppedBy,
        /// How far each node was.
        nodes: Vec<NodeProgress>,
        /// How long the workers worked.
        elapsed: Duration,
    },
    /// A chunk that is not a multiple of 4096 bytes, or more than 1 GiB.
    #[error("A chunk of {} is not a multiple of 4 KiB up to 1 GiB", ByteSize(*.bytes))]
    Chunk {
        /// Its size.
        bytes: u64,
    },
    /// Two targets that share memory, or one that ends beyond the address space.
    #[error("The target at {addr:#x} overlaps another, or ends beyond the address space")]
    Overlap {
        /// Its address.
        addr: u64,
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
    /// A worker ended without its receipts.
    #[error("A worker ended early, after {} of {}", ByteSize(*.done), ByteSize(*.total))]
    WorkerLost {
        /// Bytes cleared by then.
        done: u64,
        /// Bytes to clear in all.
        total: u64,
    },
    /// The receipts do not show that every byte was cleared once.
    #[error("Memory was not cleared exactly once")]
    Unaccounted(#[from] Unaccounted),
}

impl From<Unfinished<Self>> for ClearError {
    fn from(unfinished: Unfinished<Self>) -> Self {
        match unfinished {
            Unfinished::NoWorkers(node) => Self::NoWorkers(node),
            Unfinished::Unaligned { addr, page } => Self::Unaligned { addr, page },
            Unfinished::Stopped { by, nodes, elapsed } => Self::Stopped { by, nodes, elapsed },
            Unfinished::WorkerLost { done, total } => Self::WorkerLost { done, total },
            Unfinished::Failed(error) => error,
        }
    }
}

impl ClearError {
    /// What kind of error it is.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Stopped { .. } => Class::Stopped,
            Self::NoWorkers(_)
            | Self::Unaligned { .. }
            | Self::Chunk { .. }
            | Self::Overlap { .. } => Class::Usage,
            Self::WorkerLost { .. } | Self::Unaccounted(_) => Class::Internal,
        }
    }

    /// What to type.
    #[must_use]
    pub fn fix(&self) -> Option<String> {
        None
    }
}
