//! Why the kernel's hugepage pools could not be grown, or not be given back.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use prezero_host::PageSize;

use super::Grown;
use crate::class::Class;
use crate::control::StoppedBy;
use crate::size::ByteSize;

/// Why the pools were not grown (then what was added by then is given back), or not given back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GrowError {
    /// The kernel found fewer pages, compaction and a dropped page cache included.
    #[error("Asked the kernel for {} more pages of {}{}, got {}, short by {}", .grown.asked, .grown.page, on(.grown.node), .grown.got, .grown.asked.saturating_sub(.grown.got))]
    Short {
        /// What came of it.
        grown: Grown,
        /// Pages of that pool before.
        total: u64,
    },
    /// Adding the pages would leave the host without memory.
    #[error("Adding {} to the hugepage pools, but {} is available (MemAvailable), of which {} stay free", ByteSize(*.needed), ByteSize(*.available), ByteSize(*.kept))]
    Memory {
        /// Bytes to add.
        needed: u64,
        /// Bytes the kernel says can be had without swapping.
        available: u64,
        /// Bytes of them that the rest of the host keeps.
        kept: u64,
    },
    /// A host without such a pool, or one whose counters cannot be read.
    #[error("This host has no pool of {page} hugepages{}", on(*.node))]
    NoPool {
        /// The page size.
        page: PageSize,
        /// The node, if one was asked for.
        node: Option<u32>,
    },
    /// Another process grows the pools, or has not yet mapped what it added.
    #[error("{} is still locked after {} s{}", .lock.display(), .waited.as_secs(), by(*.holder))]
    Busy {
        /// The lock file.
        lock: PathBuf,
        /// How long the lock was waited for.
        waited: Duration,
        /// The process that locked it, from /proc/locks.
        holder: Option<u32>,
    },
    /// Cancelled or too late.
    #[error("{} while {doing}", match .by { StoppedBy::Cancel => "Cancelled", StoppedBy::Deadline => "Deadline passed" })]
    Stopped {
        /// Which.
        by: StoppedBy,
        /// What was being done.
        doing: String,
    },
    /// The caller is not root, or the file system is read-only.
    #[error("Growing the hugepage pools is refused: cannot {what} {}", .path.display())]
    Refused {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        source: io::Error,
        /// Shell commands that add what is missing, for an operator who may.
        commands: String,
    },
    /// A file of the kernel or of the state directory.
    #[error("Cannot {what} {}", .path.display())]
    File {
        /// What was tried: read, write, create, lock, remove.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
}

fn on(node: Option<u32>) -> String {
    node.map_or(String::new(), |node| format!(" on node {node}"))
}

fn by(holder: Option<u32>) -> String {
    holder.map_or(String::new(), |pid| format!(", by process {pid}"))
}

impl GrowError {
    /// For `map_err` on the file of which something was wanted.
    pub(super) fn file(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { what, path, source }
    }

    /// Whether root on a writable file system would have got further.
    pub(super) fn is_denied(&self) -> bool {
        matches!(self, Self::File { source, .. } if matches!(
            source.kind(),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
        ))
    }

    /// A denied access together with what an operator can type instead.
    pub(super) fn with_commands(self, commands: String) -> Self {
        match self {
            Self::File { what, path, source } => Self::Refused {
                what,
                path,
                source,
                commands,
            },
            other => other,
        }
    }

    /// What kind of error it is.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Short { .. } | Self::Memory { .. } | Self::Busy { .. } => Class::Shortage,
            Self::NoPool { .. } | Self::Refused { .. } => Class::Host,
            Self::Stopped { .. } => Class::Stopped,
            Self::File { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied
                | io::ErrorKind::ReadOnlyFilesystem
                // A kernel that cannot add pages of this size after boot.
                | io::ErrorKind::InvalidInput
                | io::ErrorKind::NotFound => Class::Host,
                io::ErrorKind::StorageFull => Class::Shortage,
                _ => Class::Internal,
            },
        }
    }

    /// What to type.
    #[must_use]
    pub fn fix(&self) -> Option<String> {
        Some(match self {
            Self::Short { grown, total } => {
                let pages = total.saturating_add(grown.asked);
                let node = grown.node.map_or(String::new(), |node| format!("{node}:"));
                format!(
                    "echo 1 | sudo tee /proc/sys/vm/compact_memory and run it again, or boot with hugepagesz={} hugepages={node}{pages}",
                    ByteSize(grown.page.bytes()).to_spec(),
                )
            }
            Self::Memory {
                needed,
                available,
                kept,
            } => {
                let over = needed.saturating_sub(available.saturating_sub(*kept));
                format!(
                    "a --memory smaller by {}M, or free as much (grep MemAvailable /proc/meminfo)",
                    over.div_ceil(1 << 20)
                )
            }
            Self::NoPool { node, .. } => match node {
                Some(node) => format!("ls /sys/devices/system/node/node{node}/hugepages"),
                None => "ls /sys/kernel/mm/hugepages".to_owned(),
            },
            Self::Busy { lock, holder, .. } => match holder {
                Some(pid) => {
                    format!("ps -fp {pid}, and run it again once that machine has started")
                }
                None => format!("lslocks | grep {}", lock.display()),
            },
            Self::Refused { commands, .. } if !commands.is_empty() => commands.clone(),
            Self::Refused { .. } => "run it as root".to_owned(),
            Self::Stopped { .. } | Self::File { .. } => return None,
        })
    }
}
