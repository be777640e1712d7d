//! What a pool has, without disturbing anybody.

use std::path::PathBuf;

use prezero_host::PageSize;

use super::Pool;
use super::error::PoolError;
use super::holders::{Holder, Search};
use super::name::{SegmentName, State};
use super::problem::Problem;

/// Whether a segment can be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Use {
    /// Nobody was seen to have it.
    Free,
    /// Locked, open or mapped.
    Leased {
        /// By whom, as far as /proc shows it.
        holders: Vec<Holder>,
    },
}

/// A segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The node of its directory.
    pub node: u32,
    /// Its name, and with it its length and state.
    pub name: SegmentName,
    /// Where it is.
    pub path: PathBuf,
    /// Whether it can be had.
    pub usage: Use,
}

/// The segments of one length on one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// The node.
    pub node: u32,
    /// The length of one, in bytes.
    pub bytes: u64,
    /// Free and clean.
    pub clean: u64,
    /// Free and dirty.
    pub dirty: u64,
    /// In use.
    pub leased: u64,
    /// Retired.
    pub retired: u64,
    /// Shorter than their name says, or with pages missing.
    pub incomplete: u64,
}

/// What is in a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The directory.
    pub path: PathBuf,
    /// The page size of its mount.
    pub page_size: PageSize,
    /// Whether dirty segments may only be exchanged.
    pub exchange_only: bool,
    /// Whole segments, by node, length, id.
    pub segments: Vec<Segment>,
    /// All segments, counted by node and length.
    pub totals: Vec<Total>,
    /// What is left alone.
    pub problems: Vec<Problem>,
}

impl Pool {
    /// Looks at every segment, and at every process for those who have them.
    ///
    /// No segment is opened or locked for it: a descriptor of ours would make somebody else's try fail. So
    /// *leased* here is what /proc shows: a process that has it open or mapped, or a lock in /proc/locks. A
    /// holder that this user may not look at, or in another PID namespace, is not seen; taking the segment
    /// is refused all the same.
    ///
    /// # Errors
    ///
    /// If the directories cannot be read.
    pub fn status(&self) -> Result<Status, PoolError> {
        let scan = self.scan()?;
        let locked = self.locked_inodes();
        let device = self.owned.device;
        let files = scan.segments.iter().map(|listed| (device, listed.inode));
        let mut search = Search::new(files, None);
        search.run();
        let segments = scan.segments.iter().map(|listed| {
            let holders = search.holders((device, listed.inode)).to_vec();
            Segment {
                node: listed.dir.node,
                name: listed.name,
                path: listed.path(),
                usage: match holders.is_empty() && !locked.contains(&listed.inode) {
                    true => Use::Free,
                    false => Use::Leased { holders },
                },
            }
        });
        let mut status = Status {
            path: self.path.clone(),
            page_size: self.owned.page,
            exchange_only: self.is_exchange_only()?,
            segments: segments.collect(),
            totals: Vec::new(),
            problems: scan.problems,
        };
        status.count(&scan.incomplete);
        Ok(status)
    }
}

impl Status {
    fn count(&mut self, incomplete: &[(u32, SegmentName)]) {
        for segment in &self.segments {
            let total = entry(&mut self.totals, segment.node, segment.name.bytes);
            match (segment.name.state, &segment.usage) {
                (State::Retired, _) => total.retired += 1,
                (_, Use::Leased { .. }) => total.leased += 1,
                (State::Clean, Use::Free) => total.clean += 1,
                (State::Dirty, Use::Free) => total.dirty += 1,
            }
        }
        for (node, name) in incomplete {
            entry(&mut self.totals, *node, name.bytes).incomplete += 1;
        }
        self.totals.sort_by_key(|total| (total.node, total.bytes));
    }
}

fn entry(totals: &mut Vec<Total>, node: u32, bytes: u64) -> &mut Total {
    let known = totals
        .iter()
        .position(|total| total.node == node && total.bytes == bytes);
    let at = known.unwrap_or(totals.len());
    if known.is_none() {
        totals.push(Total {
            node,
            bytes,
            ..Total::default()
        });
    }
    &mut totals[at]
}
