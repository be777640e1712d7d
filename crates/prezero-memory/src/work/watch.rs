//! The calling thread's part of the work: progress, the deadline, and noticing that nothing moves.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Job;
use crate::control::{Control, NodeProgress, Stall};

/// A chunk takes milliseconds, a page of 1 GiB 130 ms, and ten times that on memory the host below a
/// virtual machine has to find first.
const STALL_SECONDS: u64 = 2;
const PROGRESS_INTERVAL: Duration = Duration::from_millis(50);

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

impl<E: Send> Job<'_, E> {
    /// Returns when `wait` says that all workers are done.
    pub(super) fn watch(&self, control: &Control<'_>, wait: impl Fn(Duration) -> bool) {
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
}
