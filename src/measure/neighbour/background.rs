//! The background: threads that clear dirty memory piece by piece, as fast as they can or at a rate.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use prezero_clear::{Clearing, Method, Span};

/// Cleared at once, and fenced: a hugepage of the usual size, whatever the memory's own are.
pub(crate) const PIECE: usize = 2 << 20;
/// A thread that waits for its turn looks so often whether it is to end.
const NAP: Duration = Duration::from_millis(20);

/// What is left to clear, and how far it is.
#[derive(Debug)]
pub(super) struct Dirty<'r> {
    /// The next piece is the last.
    pieces: Mutex<Vec<Span<'r>>>,
    total: u64,
    done: AtomicU64,
    running: AtomicUsize,
    stop: AtomicBool,
}

impl<'r> Dirty<'r> {
    /// For so many threads.
    pub(super) fn new(spans: Vec<Span<'r>>, threads: usize) -> Self {
        let mut pieces = Vec::new();
        for span in spans {
            let mut rest = span;
            loop {
                match rest.split_at(PIECE) {
                    Ok((piece, after)) => {
                        pieces.push(piece);
                        rest = after;
                    }
                    Err(last) => {
                        pieces.push(last);
                        break;
                    }
                }
            }
        }
        pieces.reverse();
        Self {
            total: pieces.iter().map(|piece| piece.len() as u64).sum(),
            pieces: Mutex::new(pieces),
            done: AtomicU64::new(0),
            running: AtomicUsize::new(threads),
            stop: AtomicBool::new(false),
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Bytes cleared and fenced.
    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Whether every thread still has something to do.
    pub(super) fn all_running(&self, threads: usize) -> bool {
        self.running.load(Ordering::Relaxed) == threads
    }

    /// Has the threads end after the piece at hand.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// One thread's share, at `rate` bytes a second or as fast as it can.
    pub(super) fn clear(&self, method: Method, rate: Option<u64>) {
        let _ended = Ended(&self.running);
        let how = Clearing::new(method);
        let start = Instant::now();
        let mut bytes = 0;
        while !self.stop.load(Ordering::Relaxed) {
            let Some(piece) = self.next() else { return };
            let receipt = piece.clear(&how).fence();
            bytes += receipt.len() as u64;
            self.done.fetch_add(receipt.len() as u64, Ordering::Relaxed);
            if let Some(rate) = rate {
                self.wait(start + due(bytes, rate));
            }
        }
    }

    fn next(&self) -> Option<Span<'r>> {
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        pieces.pop()
    }

    fn wait(&self, until: Instant) {
        while !self.stop.load(Ordering::Relaxed) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(NAP));
        }
    }
}

/// When so many bytes may have been cleared.
#[allow(clippy::cast_precision_loss)] // a moment's worth of bytes
fn due(bytes: u64, rate: u64) -> Duration {
    Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64)
}

/// Counts a thread out, however it ends.
struct Ended<'a>(&'a AtomicUsize);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
