//! Locking a segment: the steps that everything done to a segment begins with.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use prezero_host::PageSize;
use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, RenameFlags, flock, fstat, openat, renameat_with,
    unlinkat,
};
use rustix::io::Errno;

use super::Pool;
use super::directory::NodeDir;
use super::exclusive::Proof;
use super::name::{SegmentName, State};
use super::problem::{Owned, Problem, ProblemKind};
use super::scan::Listed;
use crate::size::PageBytes;

/// A segment that nobody else has, whole and as its name says. Dropped, it is as it was.
///
/// It gives out neither its memory nor a descriptor: [`Locked::lease`] does.
#[derive(Debug)]
pub struct Locked {
    dir: Arc<NodeDir>,
    name: SegmentName,
    len: PageBytes,
    file: OwnedFd,
    inode: u64,
    proof: Proof,
}

/// Why a segment was not locked.
#[derive(Debug)]
pub(super) enum NotLocked {
    /// Somebody has it locked, open or mapped.
    Busy,
    /// It has another name by now, or none.
    Gone,
    /// It is not what it should be.
    Problem(Problem),
}

impl Pool {
    /// Takes the steps of the module's protocol, without waiting for anybody.
    pub(super) fn lock_segment(&self, listed: &Listed) -> Result<Locked, NotLocked> {
        let problem = |kind| NotLocked::Problem(listed.problem(kind));
        let refused = |errno: Errno| {
            problem(ProblemKind::Unreadable {
                errno: errno.raw_os_error(),
            })
        };
        // Not waiting: for a FIFO's other end, or for the lease of a process that was stopped there.
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let name = listed.name.to_string();
        let file = openat(
            &listed.dir.fd,
            &*name,
            flags | OFlags::NOCTTY,
            Mode::empty(),
        );
        let file = file.map_err(|errno| match errno {
            Errno::NOENT => NotLocked::Gone,
            Errno::WOULDBLOCK => NotLocked::Busy,
            Errno::LOOP | Errno::ISDIR | Errno::NXIO => problem(ProblemKind::NotAFile),
            _ => refused(errno),
        })?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|errno| match errno {
            Errno::WOULDBLOCK => NotLocked::Busy,
            _ => refused(errno),
        })?;
        let facts = fstat(&file).map_err(refused)?;
        let locked = Locked {
            dir: Arc::clone(&listed.dir),
            name: listed.name,
            len: PageBytes::new(listed.name.bytes, self.owned.page).ok_or(NotLocked::Gone)?,
            file,
            inode: facts.st_ino,
            proof: self.proof,
        };
        if facts.st_dev != self.owned.device || !locked.is_named().map_err(refused)? {
            return Err(NotLocked::Gone);
        }
        if !locked.is_exclusive() {
            return Err(NotLocked::Busy);
        }
        match locked.check_whole(self.owned) {
            // Only a scrub asks for such a one, to fill it up.
            Err(kind) if listed.torn && kind.is_torn(locked.name.state) => Ok(locked),
            checked => checked.map(|()| locked).map_err(problem),
        }
    }
}

impl Locked {
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

    /// The node its pages are on.
    #[must_use]
    pub fn node(&self) -> u32 {
        self.dir.node
    }

    /// The size of its pages.
    #[must_use]
    pub fn page_size(&self) -> PageSize {
        self.len.page_size()
    }

    /// Its name, and with it its state.
    #[must_use]
    pub fn name(&self) -> SegmentName {
        self.name
    }

    /// Where it is now.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir.path.join(self.name.to_string())
    }

    pub(super) fn dir(&self) -> &Arc<NodeDir> {
        &self.dir
    }

    /// For the pool's own work on it: everybody else has it from a lease.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(super) fn into_file(self) -> OwnedFd {
        self.file
    }

    /// Whether nobody else has it open or mapped; what cannot be found out counts as no.
    pub(super) fn is_exclusive(&self) -> bool {
        self.proof.is_exclusive(self.file.as_fd()).unwrap_or(false)
    }

    fn is_named(&self) -> Result<bool, Errno> {
        let facts = self.dir.facts(&self.name.to_string())?;
        Ok(facts.is_some_and(|facts| facts.st_ino == self.inode))
    }

    pub(super) fn check_whole(&self, owned: Owned) -> Result<(), ProblemKind> {
        let facts = fstat(&self.file).map_err(|errno| ProblemKind::Unreadable {
            errno: errno.raw_os_error(),
        })?;
        owned.check_segment(self.name, &facts)
    }

    /// renameat2(2), `RENAME_NOREPLACE`: rename(2) would destroy a segment that has the name.
    pub(super) fn set_state(&mut self, state: State) -> io::Result<()> {
        let new = self.name.with_state(state);
        if new == self.name {
            return Ok(());
        }
        if !self.is_named()? {
            return Err(io::Error::from_raw_os_error(libc::ESTALE));
        }
        let (from, to) = (self.name.to_string(), new.to_string());
        renameat_with(&self.dir.fd, from, &self.dir.fd, to, RenameFlags::NOREPLACE)?;
        self.name = new;
        Ok(())
    }

    /// unlinkat(2); the pages go back to the kernel with the descriptor.
    pub(super) fn remove(self) -> io::Result<()> {
        if !self.is_named()? {
            return Err(io::Error::from_raw_os_error(libc::ESTALE));
        }
        Ok(unlinkat(
            &self.dir.fd,
            self.name.to_string(),
            AtFlags::empty(),
        )?)
    }
}
