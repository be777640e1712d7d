//! Making segments: reserved, populated in parallel, checked, and only then named.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prezero_host::Host;

use super::Pool;
use super::directory::{self, NodeDir};
use super::error::PoolError;
use super::name::State;
use super::publish::{Fresh, Published, check_file_size};
use super::share::level;
use super::stages::Stages;
use crate::control::Control;
use crate::plan::{Available, NodeWork, plan_workers};
use crate::policy::Policy;
use crate::populate::populate;
use crate::size::PageBytes;
use crate::sys;
use crate::work::Target;
use crate::workers::Workers;

/// Segments are made this many at a time, each of which is a descriptor and a mapping.
const AT_ONCE: usize = 32;

/// What a pool is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRequest {
    /// Bytes of all segments of this length on these nodes together, those there are included; retired
    /// ones are not counted.
    pub bytes: u64,
    /// The length of one.
    pub segment: PageBytes,
    /// The nodes to share them out to; all that have memory and may be used, if none is named.
    pub nodes: Vec<u32>,
    /// Whether the pool is never to use a released segment again before its pages were exchanged
    /// ([`Pool::is_exchange_only`]). A pool that is so stays so, whatever is asked later.
    pub exchange_only: bool,
}

/// What was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Created {
    /// Segments published.
    pub segments: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Segments not published because pages were on another node, by the node they were for.
    pub misplaced: Vec<(u32, u64)>,
    /// Threads that populated.
    pub workers: usize,
    /// From the first file made to the last one named.
    pub time: Duration,
}

impl Pool {
    /// Makes the pool's directories where they are missing, and as many segments as are missing from what
    /// is wanted, shared out so that the nodes end as even as they can. Killed, it leaves no segment that
    /// is not whole. Another create or destroy of the same pool is waited for.
    ///
    /// # Errors
    ///
    /// A directory that is not on a hugetlbfs mount of the page size, or that others may change; a request
    /// for less than there is ([`PoolError::Fewer`]), or for a pool with segments that were cleared to be
    /// exchange-only ([`PoolError::Cleared`]); too few pages, found before the first is populated
    /// ([`PoolError::Short`], [`PoolError::Limit`]); or what populating fails with. What was published by
    /// then stays, and the next call makes the rest.
    pub fn create(
        path: &Path,
        request: &PoolRequest,
        host: &Host,
        threads: Option<usize>,
        control: &Control<'_>,
    ) -> Result<(Self, Created), PoolError> {
        let (segment, page) = (request.segment, request.segment.page_size());
        let whole = segment.bytes() > 0 && request.bytes.is_multiple_of(segment.bytes());
        if !whole || request.bytes == 0 {
            return Err(PoolError::NotWholeSegments {
                bytes: request.bytes,
                segment,
            });
        }
        let nodes = usable_nodes(host, &request.nodes)?;
        let (pool, _claim) = loop {
            directory::make(path, page, host)?;
            let pool = Self::open(path)?;
            if pool.page_size() != page {
                return Err(PoolError::PageSize {
                    path: path.to_owned(),
                    page: pool.page_size(),
                    asked: page,
                });
            }
            let claim = pool.claim(control)?;
            // Or else somebody has destroyed it meanwhile.
            if !pool.is_removed()? {
                break (pool, claim);
            }
        };
        if request.exchange_only {
            pool.make_exchange_only()?;
        }
        let more = pool.missing(&nodes, request)?;
        let bytes = more.iter().map(|(_, more)| more * segment.bytes());
        let wanted: Vec<(u32, u64)> = more.iter().map(|m| m.0).zip(bytes).collect();
        pool.check_room(host, &wanted, segment)?;
        let created = pool.add(&more, segment, host, threads, control)?;
        Ok((pool, created))
    }

    /// How many segments each node lacks.
    fn missing(&self, nodes: &[u32], request: &PoolRequest) -> Result<Vec<(u32, u64)>, PoolError> {
        let bytes = request.segment.bytes();
        let scan = self.scan()?;
        let counted = |node: u32| {
            // Those of which pages are missing will be whole again.
            let all = scan.segments.iter().chain(&scan.torn);
            let on_node = all.filter(|listed| listed.dir.node == node);
            let alike = on_node.filter(|l| l.name.bytes == bytes && l.name.state != State::Retired);
            alike.count() as u64
        };
        let have: Vec<u64> = nodes.iter().map(|node| counted(*node)).collect();
        let (there, wanted) = (have.iter().sum::<u64>(), request.bytes / bytes);
        let Some(more) = wanted.checked_sub(there) else {
            return Err(PoolError::Fewer {
                pool: self.path.clone(),
                segment: request.segment,
                there: there * bytes,
                asked: request.bytes,
            });
        };
        Ok(nodes.iter().copied().zip(level(&have, more)).collect())
    }

    /// Refuses what the host has no pages for, with the numbers of every node that is short.
    fn check_room(
        &self,
        host: &Host,
        wanted: &[(u32, u64)],
        segment: PageBytes,
    ) -> Result<(), PoolError> {
        check_file_size(segment.bytes())?;
        let page = segment.page_size();
        let mut available = Available::new(host);
        let mut short = Vec::new();
        for (node, bytes) in wanted {
            let (needed, free) = (bytes >> page.shift(), available.pages_on(page, *node));
            if needed > free {
                // The command that adds pages is the node's own only where there are several.
                let on = (host.nodes.len() > 1).then_some(*node);
                short.push(available.short(page, on, needed, free));
            } else {
                available.take(page, &[(*node, needed)], Some(Policy::Bind));
            }
        }
        if !short.is_empty() {
            return Err(PoolError::Short(short));
        }
        let all: u64 = wanted.iter().map(|(_, bytes)| bytes).sum();
        // What was taken above is counted by `limit` already.
        if let Some(hit) = available.limit(page, 0) {
            return Err(PoolError::Limit(hit));
        }
        let room = sys::hugetlbfs_room(&self.path);
        match room.filter(|(_, left)| all > *left) {
            Some((limit, left)) => Err(PoolError::of_mount(&self.path, limit, left, all)),
            None => Ok(()),
        }
    }

    fn add(
        &self,
        more: &[(u32, u64)],
        segment: PageBytes,
        host: &Host,
        threads: Option<usize>,
        control: &Control<'_>,
    ) -> Result<Created, PoolError> {
        let mut created = Created::default();
        let more: Vec<(u32, u64)> = more.iter().copied().filter(|(_, n)| *n > 0).collect();
        if more.is_empty() {
            return Ok(created);
        }
        let start = Instant::now();
        let work = more.iter().map(|(node, n)| NodeWork {
            node: *node,
            bytes: n * segment.bytes(),
            pages: n * segment.pages(),
        });
        let work: Vec<NodeWork> = work.collect();
        let workers = Workers::start(&plan_workers(host, &work, threads, None))?;
        let mut stages = Stages::new(work.iter().map(|work| (work.node, work.bytes)));
        let dirs = more
            .iter()
            .map(|(node, n)| Ok((Arc::new(self.make_node_dir(*node)?), *n)));
        let mut left: Vec<(Arc<NodeDir>, u64)> = dirs.collect::<Result<_, PoolError>>()?;
        created.workers = workers.count();
        loop {
            let batch = next_batch(&mut left, segment, host)?;
            if batch.is_empty() {
                break;
            }
            let targets: Vec<Target> = batch.iter().map(Fresh::target).collect();
            stages.during(control, |control| populate(&workers, &targets, control))?;
            for fresh in batch {
                let node = fresh.node();
                match fresh.publish(self)? {
                    Published::Clean(_) => created.segments += 1,
                    Published::Elsewhere(_) => created.note_misplaced(node),
                }
                stages.finish(node, segment.bytes());
            }
        }
        created.bytes = created.segments * segment.bytes();
        created.time = start.elapsed();
        Ok(created)
    }
}

impl Created {
    fn note_misplaced(&mut self, node: u32) {
        match self.misplaced.iter_mut().find(|(known, _)| *known == node) {
            Some((_, n)) => *n += 1,
            None => self.misplaced.push((node, 1)),
        }
    }
}

/// Reserves segments of all nodes in turn, so that every node's workers have some.
fn next_batch(
    left: &mut [(Arc<NodeDir>, u64)],
    segment: PageBytes,
    host: &Host,
) -> Result<Vec<Fresh>, PoolError> {
    let mut batch = Vec::new();
    loop {
        let before = batch.len();
        for (dir, n) in left.iter_mut().filter(|(_, n)| *n > 0) {
            if batch.len() < AT_ONCE {
                batch.push(Fresh::reserve(dir, segment, host)?);
                *n -= 1;
            }
        }
        if batch.len() == before {
            return Ok(batch);
        }
    }
}

/// The nodes asked for, each once, or all that may be used.
fn usable_nodes(host: &Host, asked: &[u32]) -> Result<Vec<u32>, PoolError> {
    let available = Available::new(host);
    if asked.is_empty() {
        return Ok(available.nodes());
    }
    let mut nodes: Vec<u32> = Vec::new();
    for node in asked {
        available.check_node(*node)?;
        if !nodes.contains(node) {
            nodes.push(*node);
        }
    }
    Ok(nodes)
}
