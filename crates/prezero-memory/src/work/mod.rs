//! Work on mapped memory: what populating and clearing have in common.
//!
//! Each worker claims chunks of its node's targets from one atomic cursor until none is left, the
//! caller cancels, the deadline passes, or a worker fails. The calling thread watches meanwhile.

mod progress;
mod queue;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use prezero_host::PageSize;

pub(crate) use self::progress::{Far, pace};
pub(crate) use self::queue::{Chunk, Queue};
use crate::control::{Cancel, Control, NodeProgress, StoppedBy};
use crate::plan::Origin;
use crate::size::PageBytes;
use crate::sys;
use crate::workers::{WorkerState, Workers};

/// A mapped range to work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Host address of the first byte, a multiple of the page size for hugetlb memory.
    pub addr: u64,
    /// Length in whole pages.
    pub len: PageBytes,
    /// The node whose workers work on it.
    pub node: u32,
    /// What is known about its contents.
    pub origin: Origin,
}

/// What one worker did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerReport {
    /// The node whose memory it worked on.
    pub node: u32,
    /// The CPU it was seen on at the end.
    pub cpu: Option<u32>,
    /// Whether it was pinned, as read back from the kernel.
    pub pinned: bool,
    /// Whether its CPU is another node's.
    pub remote: bool,
    /// Bytes it populated.
    pub populated_bytes: u64,
    /// Bytes it cleared.
    pub cleared_bytes: u64,
    /// CPU time it spent.
    pub cpu_time: Duration,
}

/// Why work ended before all of it was done, apart from what only one kind of work can fail with.
#[derive(Debug)]
pub(crate) enum Unfinished<E> {
    /// A target on a node that no worker works for.
    NoWorkers(u32),
    /// A target that does not start on a page.
    Unaligned { addr: u64, page: PageSize },
    /// Cancelled or too late.
    Stopped {
        by: StoppedBy,
        nodes: Vec<NodeProgress>,
        elapsed: Duration,
    },
    /// A worker ended without a result.
    WorkerLost { done: u64, total: u64 },
    /// The first failure of a worker; all stopped.
    Failed(E),
}

/// What the workers brought back: each one's report and result, and how long they took together.
#[derive(Debug)]
pub(crate) struct Finished<T> {
    pub(crate) bytes: u64,
    /// From the barrier to the last worker's end.
    pub(crate) time: Duration,
    pub(crate) workers: Vec<(WorkerReport, T)>,
}

/// Targets on gigantic pages first: the last chunks should be small ones.
pub(crate) fn large_first(targets: &[Target]) -> Vec<Target> {
    let mut targets = targets.to_vec();
    targets.sort_by_key(|target| std::cmp::Reverse(target.len.page_size()));
    targets
}

/// The work of one call.
pub(crate) struct Job<'a, E> {
    queues: Vec<Queue>,
    cancel: Option<&'a Cancel>,
    stop: AtomicBool,
    failed: Mutex<Option<E>>,
}

impl<'a, E: Send> Job<'a, E> {
    /// Cuts the targets, in their order, into chunks of at most 32 MiB, or `least` bytes or one page where
    /// that is more.
    pub(crate) fn new(
        workers: &Workers,
        targets: &[Target],
        least: u64,
        control: &Control<'a>,
    ) -> Result<Self, Unfinished<E>> {
        for target in targets {
            let page = target.len.page_size();
            if !page.is_aligned(target.addr) {
                let addr = target.addr;
                return Err(Unfinished::Unaligned { addr, page });
            }
            if !workers.nodes().any(|node| node == target.node) {
                return Err(Unfinished::NoWorkers(target.node));
            }
        }
        let queues = workers
            .nodes()
            .map(|node| Queue::new(node, targets, workers.count_on(node), least));
        let job = Self {
            queues: queues.collect(),
            cancel: control.cancel,
            stop: AtomicBool::new(false),
            failed: Mutex::new(None),
        };
        match control.stopped_by() {
            None => Ok(job),
            Some(by) => Err(Unfinished::Stopped {
                by,
                nodes: job.far(),
                elapsed: Duration::ZERO,
            }),
        }
    }

    /// The work of each node.
    pub(crate) fn queues(&self) -> &[Queue] {
        &self.queues
    }

    /// Has every worker do its share, and watches.
    pub(crate) fn run<T: Send>(
        self,
        workers: &Workers,
        control: &Control<'_>,
        work: impl Fn(&Share<'_, E>) -> T + Sync,
    ) -> Result<Finished<T>, Unfinished<E>> {
        let results = workers.run(
            |worker| self.share(worker, &work),
            |running| self.watch(control, |timeout| running.wait(timeout)),
        );
        self.finish(results)
    }

    fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.cancel.is_some_and(Cancel::is_cancelled)
    }

    /// One worker's share, with its report and when it began and ended.
    fn share<T>(
        &self,
        worker: &WorkerState,
        work: &impl Fn(&Share<'_, E>) -> T,
    ) -> (WorkerReport, T, Instant, Instant) {
        let start = Instant::now();
        let cpu_before = sys::thread_cpu_time();
        let node = worker.plan.node();
        let queue = self.queues.iter().position(|queue| queue.node == node);
        let result = work(&Share { job: self, queue });
        let report = WorkerReport {
            node,
            cpu: sys::current_cpu(),
            pinned: worker.pinned(),
            remote: worker.plan.remote(),
            populated_bytes: 0,
            cleared_bytes: 0,
            cpu_time: sys::thread_cpu_time().saturating_sub(cpu_before),
        };
        (report, result, start, Instant::now())
    }

    fn far(&self) -> Vec<NodeProgress> {
        self.queues.iter().map(Queue::progress).collect()
    }

    fn finish<T>(
        self,
        results: Vec<Option<(WorkerReport, T, Instant, Instant)>>,
    ) -> Result<Finished<T>, Unfinished<E>> {
        let nodes = self.far();
        let done: u64 = nodes.iter().map(|node| node.done).sum();
        let total: u64 = nodes.iter().map(|node| node.total).sum();
        let failed = self
            .failed
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = failed {
            return Err(Unfinished::Failed(error));
        }
        let Some(results): Option<Vec<_>> = results.into_iter().collect() else {
            return Err(Unfinished::WorkerLost { done, total });
        };
        let start = results.iter().map(|(_, _, start, _)| *start).min();
        let end = results.iter().map(|(_, _, _, end)| *end).max();
        let time = start
            .zip(end)
            .map_or(Duration::ZERO, |(start, end)| end - start);
        if done < total {
            let cancelled = self.cancel.is_some_and(Cancel::is_cancelled);
            let by = if cancelled {
                StoppedBy::Cancel
            } else {
                StoppedBy::Deadline
            };
            return Err(Unfinished::Stopped {
                by,
                nodes,
                elapsed: time,
            });
        }
        Ok(Finished {
            bytes: done,
            time,
            workers: results
                .into_iter()
                .map(|(report, result, _, _)| (report, result))
                .collect(),
        })
    }
}

/// What one worker sees of the work: its node's chunks, and whether to go on.
pub(crate) struct Share<'a, E> {
    job: &'a Job<'a, E>,
    /// Index of the node's queue.
    queue: Option<usize>,
}

impl<'a, E: Send> Share<'a, E> {
    /// The node's place among [`Job::queues`].
    pub(crate) fn node_index(&self) -> Option<usize> {
        self.queue
    }

    fn queue(&self) -> Option<&'a Queue> {
        self.job.queues.get(self.queue?)
    }

    /// The next chunk nobody has; none when the work is to stop.
    pub(crate) fn claim(&self) -> Option<Chunk<'a>> {
        let chunk = self.queue()?.claim()?;
        (!self.stopping()).then_some(chunk)
    }

    /// Counts bytes as done.
    pub(crate) fn done(&self, bytes: u64) {
        if let Some(queue) = self.queue() {
            queue.done.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Whether the work is to stop.
    pub(crate) fn stopping(&self) -> bool {
        self.job.stopping()
    }

    /// Stops all workers. `error` sees how far they are; the first one is kept.
    pub(crate) fn fail(&self, error: impl FnOnce(u64, u64) -> E) {
        let mut first = self
            .job
            .failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if first.is_none() {
            let queues = self.job.queues.iter();
            let far = queues.map(Queue::progress);
            let (done, total) = far.fold((0, 0), |(done, total), node| {
                (done + node.done, total + node.total)
            });
            *first = Some(error(done, total));
        }
        self.stop();
    }

    /// Stops all workers without an error.
    pub(crate) fn stop(&self) {
        self.job.stop.store(true, Ordering::Relaxed);
    }
}
