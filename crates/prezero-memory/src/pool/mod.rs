//! Hugepages that outlive a guest, and never show one guest's data to the next.
//!
//! The kernel clears every fresh hugepage, and does not clear a page that stays in a hugetlbfs file. A
//! pool is a directory of such files, *segments*, on a hugetlbfs mount; each is handed from guest to
//! guest, and cleared by us in between, off the critical path.
//!
//! ```text
//! DIR/                            0700, on hugetlbfs
//!     exchange-only               an empty file, if no released segment is ever cleared
//!     node0/                      one directory per node; its segments' pages are on that node
//!         1073741824-<id>.clean   length in bytes, an id of 16 hexadecimal digits, the state
//!         1073741824-<id>.dirty
//!
//!                      published once full
//!  creating (O_TMPFILE) ────────────────▶ clean ──────────┐
//!                                         ▲   │           │
//!                  scrub: cleared, fenced │   │ lease:    │ drain, destroy
//!                                         │   ▼ renamed   ▼
//!  retired ◀── poisoned, or on another ── dirty ────────▶ the kernel
//!              node                         ▲│  before the first use
//!                                           └┘ leased again
//! ```
//!
//! # The protocol
//!
//! There is no daemon, no lock file and no journal. What is known about a segment is its name, changed
//! by renameat2(2) with `RENAME_NOREPLACE`: atomic, and gone with the memory at reboot. A process killed
//! at any moment leaves a pool that opens again with nothing lost but cleanliness: a file without a name
//! is gone with its creator, a segment is dirty by name *before* anybody can write to it, and clean only
//! after every byte of it was cleared and fenced, or every page of it exchanged. A dirty segment of which pages
//! are missing, as an exchange that was killed leaves it, is filled up by the next scrub.
//!
//! Whoever wants to do anything with a segment goes through these steps, and gives up at the first that
//! fails:
//!
//! 1. open it, without following links, and flock(2) it without waiting. The lock belongs to the open
//!    file description: it lasts until the last descriptor *and* the last mapping of it are gone, in
//!    whatever process;
//! 2. see that its name still leads to this file;
//! 3. prove that nobody else has it open or mapped ([`Proof`]). The lock does not see those who open the
//!    path themselves, and a child may unlock a descriptor that it inherited;
//! 4. see that it is a regular file of this user, with one name, as long as its name says, with every
//!    page present.
//!
//! What has got that far is [`Locked`], which shows nothing of the memory; [`Locked::lease`] renames it
//! to dirty and gives out the descriptor. Releasing is closing, so that every way a process can end
//! releases. Names that are not the pool's, and files that fail step 4, are [`Problem`]s: reported,
//! never used, never removed.
//!
//! # What it cannot see
//!
//! Pages that are pinned without a descriptor or a mapping: by io_uring's registered buffers, vmsplice(2)
//! or VFIO. Whoever holds such a pin can read and write the next owner's memory. And who opens a path of
//! the pool without a lease, and closes it again between two proofs. Guests are not trusted; the processes
//! of the pool's user are trusted to do neither, or else the pool is made [`PoolRequest::exchange_only`], so
//! that every page of a released segment goes back to the kernel.
//!
//! A pool's pages stay charged to the hugetlb cgroup of the process that created them.

mod claim;
mod create;
mod directory;
mod drain;
mod error;
mod exchange_only;
mod exclusive;
mod forecast;
mod holders;
mod lease;
mod lock;
mod mapped;
mod name;
mod problem;
mod publish;
mod scan;
mod scrub;
mod share;
mod stages;
mod status;
mod sys;
mod take;
#[cfg(test)]
mod tests;
mod unfit;
mod watch;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use prezero_host::PageSize;

pub use self::create::{Created, PoolRequest};
pub use self::drain::{Destroyed, Drained};
pub use self::error::PoolError;
pub use self::exclusive::Proof;
pub use self::forecast::{Forecast, Foreseen};
pub use self::holders::Holder;
pub use self::lease::Lease;
pub use self::lock::Locked;
pub use self::name::{NotASegment, SegmentName, State};
use self::problem::Owned;
pub use self::problem::{Problem, ProblemKind};
pub use self::scrub::{Left, NotScrubbed, ScrubReport, ScrubRequest};
pub use self::status::{Segment, Status, Total, Use};
pub use self::take::{Found, TakeRequest};
pub use self::watch::Watch;

/// A directory of segments on a hugetlbfs mount.
#[derive(Debug)]
pub struct Pool {
    path: PathBuf,
    /// Everything else is opened relative to it.
    dir: OwnedFd,
    owned: Owned,
    proof: Proof,
    /// Whether the host has a node; replaced where another host is to be tested.
    has_node: fn(u32) -> bool,
    /// Faults pages in, and says which cannot be; replaced where poison is to be tested.
    touch: mapped::Touch,
}

impl Pool {
    /// Opens a pool. Nothing in it is looked at or changed.
    ///
    /// # Errors
    ///
    /// Unless the directory is on hugetlbfs, belongs to this user and is closed to all others; if its name is
    /// that of a node's directory ([`PoolError::NodeDirectory`]).
    pub fn open(path: &Path) -> Result<Self, PoolError> {
        Self::open_with(path, Proof::default())
    }

    /// [`Pool::open`], with a choice of how to prove that nobody else uses a segment.
    ///
    /// # Errors
    ///
    /// As [`Pool::open`].
    pub fn open_with(path: &Path, proof: Proof) -> Result<Self, PoolError> {
        let (dir, owned) = directory::open(path)?;
        Ok(Self {
            path: path.to_owned(),
            dir,
            owned,
            proof,
            has_node: directory::host_has_node,
            touch: crate::sys::populate_write,
        })
    }

    /// The directory, as it was given.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The page size of the mount.
    #[must_use]
    pub fn page_size(&self) -> PageSize {
        self.owned.page
    }
}
