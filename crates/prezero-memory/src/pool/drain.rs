//! Giving pages back to the kernel.

use std::fs;
use std::path::PathBuf;

use rustix::fs::{AtFlags, unlinkat};

use super::Pool;
use super::directory::node_name;
use super::error::PoolError;
use super::holders::{Holder, Search};
use super::lock::{Locked, NotLocked};
use super::name::State;
use super::problem::Problem;
use super::scan::Listed;
use crate::control::Control;

/// What was given back.
#[derive(Debug, Default)]
pub struct Drained {
    /// Segments removed.
    pub segments: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Segments that stay because they are in use, with those who have them as far as /proc shows it.
    pub busy: Vec<(PathBuf, Vec<Holder>)>,
    /// What is left alone.
    pub problems: Vec<Problem>,
}

/// What became of a pool that was to be destroyed.
#[derive(Debug)]
pub struct Destroyed {
    /// What was given back, and what was not.
    pub drained: Drained,
    /// Directories that are still there.
    pub left: Vec<PathBuf>,
}

impl Pool {
    /// Removes free segments, dirty ones first, then clean ones, until at least `bytes` are given back;
    /// all that are free if `None`. With `segment`, only those of that length in bytes. Retired segments
    /// stay: [`Pool::destroy`] removes them.
    ///
    /// # Errors
    ///
    /// If the directories cannot be read, or the kernel refuses to remove a free segment.
    pub fn drain(&self, segment: Option<u64>, bytes: Option<u64>) -> Result<Drained, PoolError> {
        let scan = self.scan()?;
        let mut wanted = scan.segments;
        wanted.retain(|listed| {
            listed.name.state != State::Retired
                && segment.is_none_or(|bytes| listed.name.bytes == bytes)
        });
        wanted.sort_by_key(|listed| std::cmp::Reverse(listed.name.state));
        self.remove(wanted, bytes, scan.problems)
    }

    /// Removes every free segment, retired ones too, and the directories that are empty then. Segments in
    /// use, and what is not the pool's, stay. A create that is under way is waited for.
    ///
    /// # Errors
    ///
    /// As [`Pool::drain`].
    pub fn destroy(self) -> Result<Destroyed, PoolError> {
        let _claim = self.claim(&Control::default())?;
        let scan = self.scan()?;
        let drained = self.remove(scan.segments, None, scan.problems)?;
        let mut left = Vec::new();
        for dir in self.node_dirs()?.0 {
            if unlinkat(&self.dir, node_name(dir.node), AtFlags::REMOVEDIR).is_err() {
                left.push(dir.path);
            }
        }
        if left.is_empty() {
            // If it stays, so does the directory.
            let _ = self.forget_exchange_only();
        }
        // By its path: a directory has no other handle to be removed by. It goes only if it is empty.
        if !left.is_empty() || fs::remove_dir(&self.path).is_err() {
            left.push(self.path);
        }
        Ok(Destroyed { drained, left })
    }

    fn remove(
        &self,
        wanted: Vec<Listed>,
        bytes: Option<u64>,
        problems: Vec<Problem>,
    ) -> Result<Drained, PoolError> {
        let mut drained = Drained {
            problems,
            ..Drained::default()
        };
        let mut busy = Vec::new();
        for listed in wanted {
            if bytes.is_some_and(|bytes| drained.bytes >= bytes) {
                break;
            }
            match self.lock_segment(&listed) {
                Ok(locked) => drained.remove(locked)?,
                Err(NotLocked::Busy) => busy.push(listed),
                Err(NotLocked::Gone) => {}
                Err(NotLocked::Problem(problem)) => drained.problems.push(problem),
            }
        }
        if !busy.is_empty() {
            let file = |listed: &Listed| (self.owned.device, listed.inode);
            let mut search = Search::new(busy.iter().map(file), None);
            search.run();
            let with_holders = busy
                .iter()
                .map(|listed| (listed.path(), search.holders(file(listed)).to_vec()));
            drained.busy = with_holders.collect();
        }
        Ok(drained)
    }
}

impl Drained {
    fn remove(&mut self, locked: Locked) -> Result<(), PoolError> {
        let (path, bytes) = (locked.path(), locked.len().bytes());
        locked.remove().map_err(PoolError::io("remove", &path))?;
        self.segments += 1;
        self.bytes += bytes;
        Ok(())
    }
}
