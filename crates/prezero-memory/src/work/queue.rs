//! The work of one node, cut into chunks that workers claim.

use std::sync::atomic::{AtomicU64, Ordering};

use prezero_host::PageSize;

use super::Target;
use crate::control::NodeProgress;

/// The most that is claimed at once: cancelling waits for one of these, about 4 ms.
const MAX_CHUNK: u64 = 32 << 20;
/// Chunks per worker at least, so that workers finish within a fraction of their time.
const CHUNKS_PER_WORKER: u64 = 8;

/// Splits a target of `len` among workers so that equal workers' parts differ by at most one chunk,
/// and no chunk is larger than [`MAX_CHUNK`] or smaller than a page; unless `least` bytes are asked for
/// at once, which comes first.
pub(crate) fn chunk_len(node_bytes: u64, page: PageSize, workers: u64, least: u64) -> u64 {
    // Base pages are populated 2 MiB at a time at least, whole transparent hugepages.
    let unit = page.max(PageSize::HUGE_2M);
    let fair = node_bytes / (workers.max(1) * CHUNKS_PER_WORKER);
    let fair = unit.round_down(fair.min(MAX_CHUNK)).max(unit.bytes());
    // Whole pages; what has no next one is more than there is anyway.
    fair.max(unit.round_up(least).unwrap_or(least))
}

/// A piece of a target that one worker works on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk<'a> {
    pub(crate) target: &'a Target,
    pub(crate) addr: u64,
    pub(crate) len: u64,
}

/// One target, cut into chunks numbered from `first` on within its node.
struct Cut {
    target: Target,
    chunk: u64,
    first: u64,
}

/// The work of one node.
pub(crate) struct Queue {
    pub(crate) node: u32,
    cuts: Vec<Cut>,
    chunks: u64,
    total: u64,
    next: AtomicU64,
    pub(crate) done: AtomicU64,
}

impl Queue {
    /// The targets of `node` in the order in which they are given; workers claim at least `least` bytes
    /// at once.
    pub(crate) fn new(node: u32, targets: &[Target], workers: u64, least: u64) -> Self {
        let mine: Vec<&Target> = targets.iter().filter(|t| t.node == node).collect();
        let total = mine.iter().map(|target| target.len.bytes()).sum();
        let mut chunks = 0;
        let cuts = mine.into_iter().map(|target| {
            let chunk = chunk_len(total, target.len.page_size(), workers, least);
            let first = chunks;
            chunks += target.len.bytes().div_ceil(chunk);
            Cut {
                target: *target,
                chunk,
                first,
            }
        });
        Self {
            node,
            cuts: cuts.collect(),
            chunks,
            total,
            next: AtomicU64::new(0),
            done: AtomicU64::new(0),
        }
    }

    /// Bytes in all.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The next chunk nobody has.
    pub(crate) fn claim(&self) -> Option<Chunk<'_>> {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        if n >= self.chunks {
            return None;
        }
        let cut = self
            .cuts
            .partition_point(|cut| cut.first <= n)
            .checked_sub(1)?;
        let cut = self.cuts.get(cut)?;
        let offset = (n - cut.first) * cut.chunk;
        let len = cut.chunk.min(cut.target.len.bytes() - offset);
        Some(Chunk {
            target: &cut.target,
            addr: cut.target.addr + offset,
            len,
        })
    }

    pub(crate) fn progress(&self) -> NodeProgress {
        NodeProgress {
            node: self.node,
            done: self.done.load(Ordering::Relaxed),
            total: self.total,
        }
    }
}
