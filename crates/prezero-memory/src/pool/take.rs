//! Taking segments: which are locked, in which order.

use std::cmp::Reverse;
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::Pool;
use super::directory::node_of;
use super::error::PoolError;
use super::holders::{Search, locked_files};
use super::lease::Lease;
use super::lock::{Locked, NotLocked};
use super::name::{SegmentName, State};
use super::problem::{Problem, ProblemKind};
use super::scan::{Listed, Scan};

/// After this, segments that were in use are tried once more.
const AGAIN: Duration = Duration::from_millis(2);

/// Which segments are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakeRequest {
    /// The node they are to be on; any node if `None`.
    pub node: Option<u32>,
    /// How many bytes at most, in whole segments.
    pub max_bytes: u64,
    /// The length each has to have, in bytes; any length if `None`.
    pub exact: Option<u64>,
}

impl TakeRequest {
    /// Whether a segment of a node is of the kind that is asked for.
    pub(super) fn wants(&self, node: u32, name: SegmentName) -> bool {
        name.state.origin().is_some()
            && self.node.is_none_or(|wanted| node == wanted)
            && self.exact.is_none_or(|bytes| name.bytes == bytes)
    }
}

/// What could be locked.
#[derive(Debug, Default)]
pub struct Found {
    /// Clean segments first, then dirty ones, the largest first of each.
    pub locked: Vec<Locked>,
    /// Segments that would have been taken but are in use.
    pub busy: u64,
    /// Dirty segments that were not looked at, because the pool is exchange-only.
    pub unexchanged: u64,
    /// What is in the directories and was left alone.
    pub problems: Vec<Problem>,
}

impl Found {
    /// Bytes of all that is locked.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.locked.iter().map(|locked| locked.len().bytes()).sum()
    }
}

impl Pool {
    /// Locks free segments: clean ones first, then dirty ones, the largest first, each only if it fits into
    /// what is left of the bytes wanted; of a pool that is exchange-only clean ones alone. What is short is
    /// simply not there: the caller fills up with fresh pages. Nobody is waited for, and nothing is changed
    /// until [`Locked::lease`].
    ///
    /// # Errors
    ///
    /// If the directories cannot be read.
    pub fn lock(&self, request: &TakeRequest) -> Result<Found, PoolError> {
        self.lock_also_dirty(request, !self.is_exchange_only()?)
    }

    /// [`Pool::lock`], of clean segments alone or of dirty ones, too.
    pub(super) fn lock_also_dirty(
        &self,
        request: &TakeRequest,
        dirty: bool,
    ) -> Result<Found, PoolError> {
        let mut scan = self.scan()?;
        let mut unexchanged = 0;
        if !dirty {
            scan.segments.retain(|listed| {
                let left_aside = listed.name.state == State::Dirty;
                let fits = listed.name.bytes <= request.max_bytes;
                unexchanged +=
                    u64::from(left_aside && fits && request.wants(listed.dir.node, listed.name));
                !left_aside
            });
        }
        let mut found = Found {
            problems: scan.problems,
            unexchanged,
            ..Found::default()
        };
        let mut busy = self.try_each(wanted(scan.segments, request), request, &mut found);
        if !busy.is_empty() {
            // Not all of them are leased: a process that forks keeps what it has just released until its
            // child calls execve(2), and others try what we are trying.
            thread::sleep(AGAIN);
            busy = self.try_each(busy, request, &mut found);
            found.locked.sort_by_key(|locked| order(locked.name()));
        }
        found.busy = busy.len() as u64;
        Ok(found)
    }

    /// Locks what fits into what is left of the bytes wanted, and returns what would have but is in use.
    fn try_each(
        &self,
        wanted: Vec<Listed>,
        request: &TakeRequest,
        found: &mut Found,
    ) -> Vec<Listed> {
        let mut left = request.max_bytes.saturating_sub(found.bytes());
        let mut busy = Vec::new();
        for listed in wanted {
            if listed.name.bytes > left {
                continue;
            }
            match self.lock_segment(&listed) {
                Ok(locked) => {
                    left -= locked.len().bytes();
                    found.locked.push(locked);
                }
                Err(NotLocked::Busy) => busy.push(listed),
                // Taken and renamed by somebody else.
                Err(NotLocked::Gone) => {}
                Err(NotLocked::Problem(problem)) => found.problems.push(problem),
            }
        }
        // Those that no longer fit would not have been taken.
        busy.retain(|listed| listed.name.bytes <= left);
        busy
    }

    /// [`Pool::lock`], all of it leased.
    ///
    /// # Errors
    ///
    /// If the directories cannot be read, or a segment cannot be renamed; those leased by then are
    /// released, and dirty.
    pub fn take(&self, request: &TakeRequest) -> Result<Vec<Lease>, PoolError> {
        let found = self.lock(request)?;
        found.locked.into_iter().map(Locked::lease).collect()
    }

    /// One segment of exactly `bytes`.
    ///
    /// # Errors
    ///
    /// [`PoolError::NoSegment`] with the lengths there are, or [`PoolError::Busy`] with those who have them.
    pub fn take_one(&self, bytes: u64, node: Option<u32>) -> Result<Lease, PoolError> {
        let request = TakeRequest {
            node,
            max_bytes: bytes,
            exact: Some(bytes),
        };
        let mut found = self.lock(&request)?;
        match found.locked.pop() {
            Some(locked) => locked.lease(),
            None => Err(self.none_free(&request, found)?),
        }
    }

    /// Why nothing of the kind was found free.
    pub(super) fn none_free(
        &self,
        request: &TakeRequest,
        found: Found,
    ) -> Result<PoolError, PoolError> {
        // On a read-only mount, for instance: nobody uses it, and it is there.
        let refused = found.problems.into_iter().find(|p| request.is_refused(p));
        if let Some(refused) = refused.filter(|_| found.busy == 0) {
            return Ok(PoolError::Untrusted(refused));
        }
        let Scan { segments, torn, .. } = self.scan()?;
        let bytes = request.exact.unwrap_or(request.max_bytes);
        let on_node = |listed: &&Listed| request.node.is_none_or(|node| listed.dir.node == node);
        let usable = |listed: &&Listed| listed.name.state != State::Retired && on_node(listed);
        let mut sizes: Vec<u64> = segments
            .iter()
            .filter(usable)
            .map(|l| l.name.bytes)
            .collect();
        sizes.sort_unstable();
        sizes.dedup();
        let alike = segments.iter().filter(usable);
        let alike: Vec<&Listed> = alike.filter(|listed| listed.name.bytes == bytes).collect();
        let file = |listed: &Listed| (self.owned.device, listed.inode);
        let files: Vec<_> = alike.iter().map(|listed| file(listed)).collect();
        if files.is_empty() {
            return Ok(PoolError::NoSegment {
                pool: self.path.clone(),
                bytes,
                node: request.node,
                sizes,
                incomplete: torn
                    .iter()
                    .filter(usable)
                    .filter(|listed| listed.name.bytes == bytes)
                    .count() as u64,
            });
        }
        let mut search = Search::new(files.iter().copied(), None);
        search.run();
        let free = alike
            .iter()
            .filter(|listed| search.holders(file(listed)).is_empty());
        let dirty = free
            .filter(|listed| listed.name.state == State::Dirty)
            .count() as u64;
        if dirty > 0 && self.is_exchange_only()? {
            return Ok(PoolError::NotExchanged {
                pool: self.path.clone(),
                bytes,
                node: request.node,
                dirty,
            });
        }
        let mut holders: Vec<_> = files
            .iter()
            .flat_map(|file| search.holders(*file))
            .cloned()
            .collect();
        holders.sort();
        holders.dedup();
        Ok(PoolError::Busy {
            pool: self.path.clone(),
            bytes,
            node: request.node,
            segments: files.len() as u64,
            holders,
        })
    }

    /// The files of the pool that are locked, as far as /proc/locks shows it: not worth opening.
    pub(super) fn locked_inodes(&self) -> Vec<u64> {
        let here = locked_files().into_iter();
        here.filter(|(device, _)| *device == self.owned.device)
            .map(|(_, inode)| inode)
            .collect()
    }
}

impl TakeRequest {
    /// Whether a segment of the kind that is asked for is whole, as far as can be seen, and this user may not use it.
    fn is_refused(&self, problem: &Problem) -> bool {
        let kind = &problem.kind;
        let refused = matches!(
            kind,
            ProblemKind::Unreadable { .. } | ProblemKind::Owner { .. } | ProblemKind::Mode { .. }
        );
        let name = |path: &Path| path.file_name()?.to_str().map(str::to_owned);
        let segment = name(&problem.path).and_then(|name| name.parse().ok());
        let dir = problem.path.parent().and_then(name);
        let node = dir.and_then(|dir| node_of(&dir));
        refused
            && segment
                .zip(node)
                .is_some_and(|(name, node)| self.wants(node, name))
    }
}

/// The order of taking: clean ones first, then dirty ones, the largest first of each.
pub(super) fn order(name: SegmentName) -> (State, Reverse<u64>) {
    (name.state, Reverse(name.bytes))
}

/// The segments that a request would take, in the order of taking.
fn wanted(segments: Vec<Listed>, request: &TakeRequest) -> Vec<Listed> {
    let mut wanted = segments;
    wanted.retain(|listed| request.wants(listed.dir.node, listed.name));
    wanted.sort_by_key(|listed| order(listed.name));
    wanted
}
