//! A lease: the second step of taking, from which on a segment's memory can be used.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use prezero_host::PageSize;

use super::error::PoolError;
use super::lock::Locked;
use super::name::{SegmentName, State};
use crate::plan::Origin;
use crate::size::PageBytes;

/// A segment that nobody else has, with its memory. Dirty by name from the start; free again when the
/// last descriptor and mapping of its open file are gone, in this process and in those that inherited it.
#[derive(Debug)]
pub struct Lease {
    node: u32,
    len: PageBytes,
    origin: Origin,
    name: SegmentName,
    path: PathBuf,
    file: OwnedFd,
}

impl Locked {
    /// Renames the segment to dirty, and only then gives out its descriptor.
    ///
    /// # Errors
    ///
    /// If it cannot be renamed; it is released unchanged.
    pub fn lease(mut self) -> Result<Lease, PoolError> {
        let path = self.path();
        let origin = self.name().state.origin();
        self.set_state(State::Dirty)
            .map_err(PoolError::io("rename", &path))?;
        Ok(Lease {
            node: self.node(),
            len: self.len(),
            // Retired segments are not locked for this.
            origin: origin.unwrap_or(Origin::Dirty),
            name: self.name(),
            path: self.path(),
            file: self.into_file(),
        })
    }
}

impl Lease {
    /// The node its pages are on.
    #[must_use]
    pub fn node(&self) -> u32 {
        self.node
    }

    /// Length in whole pages.
    #[must_use]
    pub fn len(&self) -> PageBytes {
        self.len
    }

    /// Never true: the name of a segment has a length above zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len.bytes() == 0
    }

    /// The size of its pages.
    #[must_use]
    pub fn page_size(&self) -> PageSize {
        self.len.page_size()
    }

    /// What is in it, until the lease's holder writes to it: [`Origin::Clean`] or [`Origin::Dirty`].
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Its name as long as it is leased.
    #[must_use]
    pub fn name(&self) -> SegmentName {
        self.name
    }

    /// Where a VMM that wants a path finds it as long as it is leased.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file: to be mapped shared from offset 0, and populated (`MADV_POPULATE_WRITE`) before any
    /// store, so that a page that is gone or poisoned is an error and no SIGBUS.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The lease as its descriptor alone.
    #[must_use]
    pub fn into_file(self) -> OwnedFd {
        self.file
    }

    /// A second descriptor of the same open file that stays open across execve(2): a child that has it
    /// keeps the lease when this process dies. Programs that may start others meanwhile make it in the
    /// child, between fork and exec.
    ///
    /// # Errors
    ///
    /// Of dup(2).
    pub fn inheritable(&self) -> io::Result<OwnedFd> {
        Ok(rustix::io::dup(&self.file)?)
    }
}
