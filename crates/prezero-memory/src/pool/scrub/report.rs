//! What a scrub did, and what it left.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::super::error::PoolError;
use super::super::lock::Locked;
use super::super::mapped::Elsewhere;
use super::super::name::{SegmentName, State};
use super::super::problem::Problem;
use crate::clear::ChosenMethod;
use crate::clear::ClearError;
use crate::control::StoppedBy;
use crate::populate::PopulateError;
use crate::size::ByteSize;

/// Why a segment is not clean afterwards.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Left {
    /// Retired: the page at this offset has a hardware error.
    Poisoned {
        /// In bytes.
        offset: u64,
    },
    /// Retired: the page at this offset is on another node.
    Elsewhere {
        /// In bytes.
        offset: u64,
        /// The node it is on.
        found: u32,
    },
    /// Dirty: the page at this offset cannot be written to.
    Untouchable {
        /// In bytes.
        offset: u64,
        /// The errno of madvise(2).
        errno: i32,
    },
    /// Dirty: somebody opened it while it was cleared.
    Opened,
    /// Dirty: the kernel refused what had to be done.
    Refused {
        /// The errno.
        errno: i32,
    },
    /// Dirty, and a part of its pages is missing: they were given back, and fresh ones could not be had. It is
    /// used for nothing until a later pass has filled it up.
    Incomplete {
        /// Bytes that are there.
        present: u64,
        /// Why there are not more.
        why: String,
        /// What to type.
        fix: Option<String>,
    },
}

/// A segment that is not clean.
#[derive(Debug, PartialEq, Eq)]
pub struct NotScrubbed {
    /// Where it is, or was.
    pub path: PathBuf,
    /// The node of its directory.
    pub node: u32,
    /// Its length in bytes.
    pub bytes: u64,
    /// Why.
    pub left: Left,
}

impl fmt::Display for NotScrubbed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, node, .. } = self;
        write!(f, "{} ", path.display())?;
        let errno = |errno: &i32| io::Error::from_raw_os_error(*errno);
        match &self.left {
            Left::Poisoned { offset } => write!(
                f,
                "is retired: the page at offset {offset:#x} on node {node} has a hardware error (poisoned page)"
            ),
            Left::Elsewhere { offset, found } => write!(
                f,
                "is retired: the page at offset {offset:#x} is on node {found}, not {node}"
            ),
            Left::Untouchable { offset, errno: no } => write!(
                f,
                "stays dirty: the page at offset {offset:#x} cannot be written to: {}",
                errno(no)
            ),
            Left::Opened => f.write_str("stays dirty: it was opened while it was cleared"),
            Left::Refused { errno: no } => write!(f, "stays dirty: {}", errno(no)),
            Left::Incomplete { present, why, .. } => write!(
                f,
                "has {} of its {} until the next scrub: {why}",
                ByteSize(*present),
                ByteSize(self.bytes)
            ),
        }
    }
}

/// What a scrub did.
#[derive(Debug, Default)]
pub struct ScrubReport {
    /// Whether pages were exchanged, because that was asked for or because the pool is exchange-only.
    pub exchange: bool,
    /// Segments that are clean now.
    pub segments: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Wall time of the whole pass.
    pub time: Duration,
    /// The part of it in which threads cleared or populated.
    pub work_time: Duration,
    /// The methods used, of the last piece on each node; none with `exchange`.
    pub choices: Vec<ChosenMethod>,
    /// Dirty segments in use.
    pub busy: Vec<SegmentName>,
    /// Free dirty segments that are not clean.
    pub left: Vec<NotScrubbed>,
    /// What is in the directories and was left alone.
    pub problems: Vec<Problem>,
    /// Whether it was stopped. The segments at hand stay dirty.
    pub stopped: Option<StoppedBy>,
}

impl ScrubReport {
    /// Notes a segment that is not clean, and retires it where that is why.
    pub(in crate::pool) fn leave(&mut self, mut locked: Locked, left: Left) {
        if matches!(left, Left::Poisoned { .. } | Left::Elsewhere { .. }) {
            // Refused, it is still dirty, and found again by the next pass.
            let _ = locked.set_state(State::Retired);
        }
        self.left.push(NotScrubbed {
            path: locked.path(),
            node: locked.node(),
            bytes: locked.len().bytes(),
            left,
        });
    }
}

impl From<Elsewhere> for Left {
    fn from(elsewhere: Elsewhere) -> Self {
        let Elsewhere { offset, found } = elsewhere;
        Self::Elsewhere { offset, found }
    }
}

pub(in crate::pool) fn refused(source: &io::Error) -> Left {
    Left::Refused {
        errno: source.raw_os_error().unwrap_or(0),
    }
}

/// By whom the whole pass was stopped, if that is what an error says.
pub(super) fn stopped_by(error: &PoolError) -> Option<StoppedBy> {
    match error {
        PoolError::Clear(ClearError::Stopped { by, .. }) => Some(*by),
        PoolError::Populate(PopulateError::Stopped { by, .. }) => Some(*by),
        _ => None,
    }
}
