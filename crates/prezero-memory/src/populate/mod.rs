//! Populating: the kernel's clear of fresh pages, on every CPU of the right node at once.
//!
//! Works on plain targets, so that a monitor with mappings of its own can use it as it is;
//! [`crate::GuestRam`] is its first user. Each worker claims chunks of its node's targets from one
//! atomic cursor and prefaults them with `MADV_POPULATE_WRITE`, which reports as an error what a
//! store would report as SIGBUS. No store of ours reaches the memory.

mod error;
mod queue;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use self::error::PopulateError;
use self::queue::Queue;
use crate::control::{Cancel, Control, NodeProgress, Stall, StoppedBy};
use crate::size::PageBytes;
use crate::sys;
use crate::workers::{WorkerState, Workers};

/// A chunk takes milliseconds, a page of 1 GiB 130 ms, and ten times that on memory the host below a
/// virtual machine has to find first.
const STALL_SECONDS: u64 = 2;
const PROGRESS_INTERVAL: Duration = Duration::from_millis(50);

/// A mapped range to populate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Host address of the first byte, a multiple of the page size for hugetlb memory.
    pub addr: u64,
    /// Length in whole pages.
    pub len: PageBytes,
    /// The node whose workers populate it.
    pub node: u32,
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
    /// CPU time it spent.
    pub cpu_time: Duration,
}

/// What populating did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PopulateReport {
    /// Bytes populated.
    pub bytes: u64,
    /// From the barrier to the last worker's last page.
    pub time: Duration,
    /// Every worker.
    pub workers: Vec<WorkerReport>,
}

/// Populates all targets on the workers of their nodes, and returns when every page is there.
///
/// ```no_run
/// use prezero_memory::{
///     Control, Host, NodeWork, PageBytes, PageSize, Target, Workers, plan_workers, populate,
/// };
///
/// # fn populate_my_mapping(addr: u64, bytes: u64) -> Result<(), Box<dyn std::error::Error>> {
/// let len = PageBytes::new(bytes, PageSize::HUGE_2M).ok_or("not whole pages")?;
/// let work = NodeWork { node: 0, bytes, pages: len.pages() };
/// let workers = Workers::start(&plan_workers(&Host::probe(), &[work], None, None))?;
/// let report = populate(&workers, &[Target { addr, len, node: 0 }], &Control::default())?;
/// println!("{} bytes in {:?}", report.bytes, report.time);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// The first refusal of the kernel, or [`PopulateError::Stopped`] within one chunk of a cancel or
/// deadline. Pages populated by then stay in the mappings; contents are unchanged in every case.
pub fn populate(
    workers: &Workers,
    targets: &[Target],
    control: &Control<'_>,
) -> Result<PopulateReport, PopulateError> {
    let job = Job::new(workers, targets, control.cancel)?;
    if let Some(by) = control.stopped_by() {
        let nodes = job.far();
        return Err(PopulateError::Stopped {
            by,
            nodes,
            elapsed: Duration::ZERO,
        });
    }
    let results = workers.run(
        |worker| job.work(worker),
        |running| job.watch(control, |timeout| running.wait(timeout)),
    );
    job.finish(results)
}

/// Notices that no chunk is finished any more.
struct Pulse {
    done: u64,
    since: Instant,
    told: u64,
}

impl Pulse {
    fn new() -> Self {
        Self {
            done: 0,
            since: Instant::now(),
            told: STALL_SECONDS - 1,
        }
    }

    /// Whole seconds without progress, once for each from [`STALL_SECONDS`] on.
    fn missed(&mut self, nodes: &[NodeProgress]) -> Option<u64> {
        let done: u64 = nodes.iter().map(|node| node.done).sum();
        if done != self.done {
            *self = Self {
                done,
                ..Self::new()
            };
        }
        let seconds = self.since.elapsed().as_secs();
        (seconds > self.told).then(|| {
            self.told = seconds;
            seconds
        })
    }
}

/// What a worker brings back: its report, and when it began and ended.
type Worked = (WorkerReport, Instant, Instant);

struct Job<'a> {
    queues: Vec<Queue>,
    cancel: Option<&'a Cancel>,
    stop: AtomicBool,
    refused: Mutex<Option<PopulateError>>,
}

impl<'a> Job<'a> {
    fn new(
        workers: &Workers,
        targets: &[Target],
        cancel: Option<&'a Cancel>,
    ) -> Result<Self, PopulateError> {
        for target in targets {
            let page = target.len.page_size();
            if !page.is_aligned(target.addr) {
                return Err(PopulateError::Unaligned {
                    addr: target.addr,
                    page,
                });
            }
            if !workers.nodes().any(|node| node == target.node) {
                return Err(PopulateError::NoWorkers(target.node));
            }
        }
        let queues = workers
            .nodes()
            .map(|node| Queue::new(node, targets, workers.count_on(node)));
        Ok(Self {
            queues: queues.collect(),
            cancel,
            stop: AtomicBool::new(false),
            refused: Mutex::new(None),
        })
    }

    fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.cancel.is_some_and(Cancel::is_cancelled)
    }

    /// One worker's share. Nothing here allocates or maps.
    fn work(&self, worker: &WorkerState) -> Worked {
        let start = Instant::now();
        let cpu_before = sys::thread_cpu_time();
        let mut populated_bytes = 0;
        let queue = self
            .queues
            .iter()
            .find(|queue| queue.node == worker.plan.node());
        while let Some((target, addr, len)) = queue.and_then(Queue::claim) {
            if self.stopping() {
                break;
            }
            if let Err(source) = self.populate_chunk(addr, len) {
                self.refuse(target, addr, source);
                break;
            }
            populated_bytes += len;
            if let Some(queue) = queue {
                queue.done.fetch_add(len, Ordering::Relaxed);
            }
        }
        let report = WorkerReport {
            node: worker.plan.node(),
            cpu: sys::current_cpu(),
            pinned: worker.pinned(),
            remote: worker.plan.remote(),
            populated_bytes,
            cpu_time: sys::thread_cpu_time().saturating_sub(cpu_before),
        };
        (report, start, Instant::now())
    }

    fn populate_chunk(&self, addr: u64, len: u64) -> io::Result<()> {
        loop {
            match sys::populate_write(addr, len) {
                // A signal's handler ran on this thread; what is populated is populated.
                Err(error) if error.kind() == io::ErrorKind::Interrupted && !self.stopping() => {}
                result => return result,
            }
        }
    }

    fn refuse(&self, target: &Target, addr: u64, source: io::Error) {
        let mut first = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if first.is_none() && !(self.stopping() && source.kind() == io::ErrorKind::Interrupted) {
            let far = self.far();
            *first = Some(PopulateError::Refused {
                addr,
                page: target.len.page_size(),
                node: target.node,
                done: far.iter().map(|node| node.done).sum(),
                total: far.iter().map(|node| node.total).sum(),
                cause: None,
                source,
            });
        }
        self.stop.store(true, Ordering::Relaxed);
    }

    /// The calling thread's part: progress, the deadline, and noticing that nothing moves.
    fn watch(&self, control: &Control<'_>, wait: impl Fn(Duration) -> bool) {
        // Allocated before the work gets far, and not again: a heap that grows wants the mmap lock.
        let mut nodes = self.far();
        let mut pulse = Pulse::new();
        let mut stopping: Option<Duration> = None;
        loop {
            // Counted in turns, so that a process that was stopped itself (SIGSTOP) is not late.
            match control.stopped_by() {
                Some(_) => stopping = Some(stopping.unwrap_or_default() + PROGRESS_INTERVAL),
                None => stopping = None,
            }
            let left = control
                .deadline
                .map(|at| at.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                self.stop.store(true, Ordering::Relaxed);
            }
            let pause = match left {
                Some(left) if !left.is_zero() => left.min(PROGRESS_INTERVAL),
                _ => PROGRESS_INTERVAL,
            };
            let done = wait(pause);
            for (node, queue) in nodes.iter_mut().zip(&self.queues) {
                *node = queue.progress();
            }
            if let Some(progress) = control.progress {
                progress(&nodes);
            }
            if done {
                return;
            }
            if let (Some(seconds), Some(stalled)) = (pulse.missed(&nodes), control.stalled) {
                stalled(&Stall {
                    seconds,
                    nodes: nodes.clone(),
                    stopping,
                });
            }
        }
    }

    fn far(&self) -> Vec<NodeProgress> {
        self.queues.iter().map(Queue::progress).collect()
    }

    fn finish(self, results: Vec<Option<Worked>>) -> Result<PopulateReport, PopulateError> {
        let nodes = self.far();
        let done: u64 = nodes.iter().map(|node| node.done).sum();
        let total: u64 = nodes.iter().map(|node| node.total).sum();
        let refused = self
            .refused
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = refused {
            return Err(error.diagnosed());
        }
        let Some(worked): Option<Vec<Worked>> = results.into_iter().collect() else {
            return Err(PopulateError::WorkerLost { done, total });
        };
        let start = worked.iter().map(|(_, start, _)| *start).min();
        let end = worked.iter().map(|(_, _, end)| *end).max();
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
            return Err(PopulateError::Stopped {
                by,
                nodes,
                elapsed: time,
            });
        }
        Ok(PopulateReport {
            bytes: done,
            time,
            workers: worked.into_iter().map(|(report, _, _)| report).collect(),
        })
    }
}
