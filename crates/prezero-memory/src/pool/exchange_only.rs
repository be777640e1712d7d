//! Pools of which no released segment is ever cleared: its pages are exchanged, or it stays dirty.
//!
//! hugetlbfs keeps no attributes and no text, so that a pool says this by an empty file beside the directories of
//! its nodes. Whatever has the name counts, and what cannot be looked at is an error: who asks is about to trust
//! pages.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Mode, OFlags, fchmod, openat, statat, unlinkat};
use rustix::io::Errno;

use super::Pool;
use super::directory::names;
use super::error::PoolError;
use super::name::State;
use super::scan::Listed;

/// The file's name, which is no node's.
pub(super) const MARKER: &str = "exchange-only";

impl Pool {
    /// Whether dirty segments of this pool may only be exchanged ([`Pool::scrub`] does it without being told):
    /// nobody leases or clears them. Made so by [`super::PoolRequest::exchange_only`].
    ///
    /// # Errors
    ///
    /// If the directory cannot be looked at.
    pub fn is_exchange_only(&self) -> Result<bool, PoolError> {
        match statat(&self.dir, MARKER, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(PoolError::io("look at", &self.path.join(MARKER))(
                errno.into(),
            )),
        }
    }

    /// Makes the pool exchange-only, for good.
    ///
    /// # Errors
    ///
    /// [`PoolError::Cleared`] if there are segments already: nobody knows whether they were exchanged.
    pub(super) fn make_exchange_only(&self) -> Result<(), PoolError> {
        if self.is_exchange_only()? {
            return Ok(());
        }
        let scan = self.scan()?;
        let usable = |listed: &Listed| listed.name.state != State::Retired;
        if scan.segments.iter().any(usable) || !scan.incomplete.is_empty() {
            return Err(PoolError::Cleared(self.path.clone()));
        }
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        openat(&self.dir, MARKER, flags, mode)
            .and_then(|marker| fchmod(marker, mode))
            .map_err(|errno| PoolError::io("create", &self.path.join(MARKER))(errno.into()))
    }

    /// Removes the marker of a pool that has nothing else any more.
    pub(super) fn forget_exchange_only(&self) -> io::Result<()> {
        if names(self.dir.as_fd())? == [MARKER] {
            unlinkat(&self.dir, MARKER, AtFlags::empty())?;
        }
        Ok(())
    }
}
