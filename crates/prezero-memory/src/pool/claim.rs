//! One `create` or `destroy` of a pool at a time: flock(2) of its directory, which ends with whoever has it.
//!
//! Two creates that count what is there at the same time would both add what is missing; and a pool would lose
//! its marker ([`Pool::is_exchange_only`]) to somebody who destroys it while segments are added. Everything else
//! that is done to a pool needs the locks of its segments only.

use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, flock, fstat, openat};
use rustix::io::Errno;

use super::Pool;
use super::directory::directory_flags;
use super::error::PoolError;
use crate::control::Control;
use crate::populate::PopulateError;

/// Between two tries: as long as a cancel is waited for.
const NAP: Duration = Duration::from_millis(20);

/// The lock, until it is dropped.
#[derive(Debug)]
pub(super) struct Claim {
    _dir: OwnedFd,
}

impl Pool {
    /// Waits until nobody else creates or destroys the pool, or the caller wants to stop.
    pub(super) fn claim(&self, control: &Control<'_>) -> Result<Claim, PoolError> {
        let start = Instant::now();
        let failed = |errno: Errno| PoolError::io("lock", &self.path)(errno.into());
        // An open file of its own: that of the pool outlives the claim.
        let dir = openat(&self.dir, c".", directory_flags(), Mode::empty()).map_err(failed)?;
        loop {
            match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Claim { _dir: dir }),
                Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                Err(errno) => return Err(failed(errno)),
            }
            if let Some(by) = control.stopped_by() {
                let (nodes, elapsed) = (Vec::new(), start.elapsed());
                return Err(PopulateError::Stopped { by, nodes, elapsed }.into());
            }
            thread::sleep(NAP);
        }
    }

    /// Whether the directory is gone, though it is still open here.
    pub(super) fn is_removed(&self) -> Result<bool, PoolError> {
        let facts = fstat(&self.dir);
        let facts = facts.map_err(|errno| PoolError::io("look at", &self.path)(errno.into()))?;
        Ok(facts.st_nlink == 0)
    }
}
