//! Why something could not be done with a pool.

mod fix;

use std::io;
use std::path::{Path, PathBuf};

use prezero_host::{Host, PageSize};

use super::holders::Holder;
use super::problem::Problem;
use super::scrub::NotScrubbed;
use crate::clear::ClearError;
use crate::limits::{self, LimitHit, LimitKind};
use crate::mapping::MapStep;
use crate::plan::{Available, PlanError, Shortage};
use crate::populate::PopulateError;
use crate::size::{ByteSize, PageBytes};
use crate::workers::StartError;

/// Why something could not be done with a pool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// No directory.
    #[error("There is no pool {}", .0.display())]
    Missing(PathBuf),
    /// The name of a node's directory, which is a part of a pool.
    #[error("{} is the directory of a node, not a pool", .0.display())]
    NodeDirectory(PathBuf),
    /// Not on hugetlbfs. Nothing is created there.
    #[error("{} is not on a hugetlbfs mount; {}", .path.display(), list(.mounts))]
    NotHugetlbfs {
        /// The directory.
        path: PathBuf,
        /// The hugetlbfs mounts there are.
        mounts: Vec<PathBuf>,
    },
    /// Another page size than the mount's.
    #[error("{} is on a hugetlbfs mount with pages of {page}, {asked} were asked for", .path.display())]
    PageSize {
        /// The directory.
        path: PathBuf,
        /// The mount's.
        page: PageSize,
        /// The one asked for.
        asked: PageSize,
    },
    /// A directory that others could change, or a file that is not what was made.
    #[error("{0}")]
    Untrusted(Problem),
    /// A size that is not a number of segments.
    #[error("{} is not a whole number of segments of {segment}", ByteSize(*.bytes))]
    NotWholeSegments {
        /// The size asked for, in bytes.
        bytes: u64,
        /// The length of a segment.
        segment: PageBytes,
    },
    /// Less than there is.
    #[error("{} has {} in segments of {segment}, {} were asked for", .pool.display(), ByteSize(*.there), ByteSize(*.asked))]
    Fewer {
        /// The pool.
        pool: PathBuf,
        /// The length of a segment.
        segment: PageBytes,
        /// Bytes there are.
        there: u64,
        /// Bytes asked for.
        asked: u64,
    },
    /// Segments that may have been cleared, where only exchanged ones are wanted.
    #[error("{} has segments already, which may have been cleared: only an empty pool can be made exchange-only", .0.display())]
    Cleared(PathBuf),
    /// A node that cannot be used.
    #[error(transparent)]
    Node(#[from] PlanError),
    /// Too few hugepages: every node that is short.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Short(Vec<Shortage>),
    /// A limit below what the kernel could give.
    #[error("{0}")]
    Limit(LimitHit),
    /// No segment of this length.
    #[error("{} has no segment of {}{}; it has {}{}", .pool.display(), ByteSize(*.bytes), on(*.node), lengths(.sizes), torn(*.incomplete))]
    NoSegment {
        /// The pool.
        pool: PathBuf,
        /// The length asked for, in bytes.
        bytes: u64,
        /// The node asked for.
        node: Option<u32>,
        /// The lengths there are (on that node), in bytes.
        sizes: Vec<u64>,
        /// Segments of that length of which pages are missing, and which a scrub may fill up.
        incomplete: u64,
    },
    /// All segments of this length are in use.
    #[error("All {segments} segments of {}{} in {} are in use, by {}", ByteSize(*.bytes), on(*.node), .pool.display(), names(.holders))]
    Busy {
        /// The pool.
        pool: PathBuf,
        /// The length, in bytes.
        bytes: u64,
        /// The node asked for.
        node: Option<u32>,
        /// How many there are.
        segments: u64,
        /// Who has them, as far as /proc shows it.
        holders: Vec<Holder>,
    },
    /// Segments of this length are free, but dirty, and the pool is exchange-only.
    #[error("{} has no clean segment of {}{}; {dirty} are dirty, and the pool is exchange-only", .pool.display(), ByteSize(*.bytes), on(*.node))]
    NotExchanged {
        /// The pool.
        pool: PathBuf,
        /// The length asked for, in bytes.
        bytes: u64,
        /// The node asked for.
        node: Option<u32>,
        /// How many are free and dirty.
        dirty: u64,
    },
    /// A segment that was to be cleared for a lease, and is not clean.
    #[error("{0}")]
    NotCleaned(NotScrubbed),
    /// Threads could not be made.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Pages could not be populated.
    #[error(transparent)]
    Populate(#[from] PopulateError),
    /// Pages could not be cleared.
    #[error(transparent)]
    Clear(#[from] ClearError),
    /// The kernel refuses to map a segment.
    #[error("{step} for a segment of {len} in {}", .path.display())]
    Map {
        /// What was refused.
        step: MapStep,
        /// The segment's length.
        len: PageBytes,
        /// The directory.
        path: PathBuf,
        /// The refusal.
        #[source]
        source: io::Error,
    },
    /// A file or directory of the pool.
    #[error("Cannot {what} {}", .path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
}

fn list(mounts: &[PathBuf]) -> String {
    let mounts: Vec<String> = mounts.iter().map(|m| m.display().to_string()).collect();
    match mounts.is_empty() {
        true => "this host has none".to_owned(),
        false => format!("this host has {}", mounts.join(", ")),
    }
}

fn on(node: Option<u32>) -> String {
    node.map_or(String::new(), |node| format!(" on node {node}"))
}

fn torn(segments: u64) -> String {
    match segments {
        0 => String::new(),
        n => format!(", and {n} of that length with pages missing"),
    }
}

fn lengths(sizes: &[u64]) -> String {
    let sizes: Vec<String> = sizes
        .iter()
        .map(|bytes| ByteSize(*bytes).to_string())
        .collect();
    match sizes.is_empty() {
        true => "none".to_owned(),
        false => sizes.join(", "),
    }
}

fn names(holders: &[Holder]) -> String {
    let names: Vec<String> = holders.iter().map(ToString::to_string).collect();
    match names.is_empty() {
        true => "processes that cannot be seen".to_owned(),
        false => format!("process {}", names.join(", ")),
    }
}

impl PoolError {
    /// For `map_err` on a file or directory of which something was wanted.
    pub(super) fn io(what: &'static str, path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io {
            what,
            path: path.clone(),
            source,
        }
    }

    pub(super) fn not_hugetlbfs(path: &Path, host: &Host) -> Self {
        Self::NotHugetlbfs {
            path: path.to_owned(),
            mounts: host.mounts.iter().map(|mount| mount.path.clone()).collect(),
        }
    }

    pub(super) fn of_mount(pool: &Path, limit: u64, left: u64, needed: u64) -> Self {
        Self::Limit(LimitHit {
            what: LimitKind::Mount,
            file: pool.to_owned(),
            limit,
            usage: limit.saturating_sub(left),
            needed,
        })
    }

    /// Why a segment was not mapped, on a host read after it was refused.
    pub(super) fn of_mapping(
        path: &Path,
        node: u32,
        len: PageBytes,
        step: MapStep,
        source: io::Error,
    ) -> Self {
        if step == MapStep::Map && source.raw_os_error() == Some(libc::ENOMEM) {
            let host = Host::probe();
            let (page, available) = (len.page_size(), Available::new(&host));
            let free = available.pages_on(page, node);
            if len.pages() > free {
                let on = (host.nodes.len() > 1).then_some(node);
                return Self::Short(vec![available.short(page, on, len.pages(), free)]);
            }
            let kinds = [prezero_host::LimitKind::Reservation];
            if let Some(hit) = limits::of_hugepages(&host, page, len.bytes(), &kinds) {
                return Self::Limit(hit);
            }
            let room = crate::sys::hugetlbfs_room(path);
            if let Some((limit, left)) = room.filter(|(_, left)| len.bytes() > *left) {
                return Self::of_mount(path, limit, left, len.bytes());
            }
        }
        Self::Map {
            step,
            len,
            path: path.to_owned(),
            source,
        }
    }
}
