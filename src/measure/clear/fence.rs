//! What a fence costs: one behind every 2 MiB, against one behind everything.

use std::time::{Duration, Instant};

use prezero_clear::{Clearing, Incoherent, Method, Span};

use super::memory::{Memory, STAIN};
use crate::failure::Failure;
use crate::measure::rounds::interleave;
use crate::measure::stats::{Ratio, Summary};

/// A hugepage, whatever the memory's own are.
pub(crate) const EVERY: usize = 2 << 20;
/// Enough for its own time to be steady.
const LARGEST_WINDOW: usize = 1 << 30;
/// So many that σ says something about a difference of a percent.
const RUNS: usize = 9;

/// Times of clearing the same memory on one thread.
#[derive(Clone, Debug)]
pub(crate) struct Fence {
    pub(crate) method: Method,
    /// How much was cleared, in bytes.
    pub(crate) bytes: u64,
    /// Seconds with a fence behind every [`EVERY`] bytes.
    pub(crate) each: Summary,
    /// Seconds with one behind everything.
    pub(crate) once: Summary,
    /// What these are of, in the order of the rounds.
    pub(crate) each_samples: Vec<Duration>,
    pub(crate) once_samples: Vec<Duration>,
}

impl Fence {
    /// Time with many fences to the time with one.
    pub(crate) fn ratio(&self) -> Ratio {
        Ratio::of(&self.each, &self.once)
    }
}

/// Measures both ways in turn on this thread, which should be kept on a CPU of the memory's node. `None` where the memory is too small for two fences.
pub(crate) fn measure(memory: &mut Memory<'_>, method: Method) -> Result<Option<Fence>, Failure> {
    let how = Clearing::new(method);
    let mut bytes = 0;
    let samples = interleave(2, RUNS, |row| {
        let spans = cut(memory.piece()?);
        bytes = spans.iter().map(Span::len).sum::<usize>() as u64;
        Ok::<_, Failure>(match row {
            0 => each(spans, &how),
            _ => once(spans, &how),
        })
    })?;
    let [each_samples, once_samples] = &samples[..] else {
        return Ok(None);
    };
    let summary = |samples: &[Duration]| {
        let seconds: Vec<f64> = samples.iter().map(Duration::as_secs_f64).collect();
        Summary::of(&seconds)
    };
    let (Some(each), Some(once)) = (summary(each_samples), summary(once_samples)) else {
        return Ok(None);
    };
    let fences = bytes / EVERY as u64;
    Ok((fences > 1).then(|| Fence {
        method,
        bytes,
        each,
        once,
        each_samples: each_samples.clone(),
        once_samples: once_samples.clone(),
    }))
}

/// Stained pieces of [`EVERY`] bytes.
fn cut(piece: Span<'_>) -> Vec<Span<'_>> {
    let window = match piece.split_at(LARGEST_WINDOW) {
        Ok((window, _)) => window,
        Err(all) => all,
    };
    let mut pieces = Vec::with_capacity(window.len() / EVERY);
    let mut rest = window.stain(STAIN);
    loop {
        match rest.split_at(EVERY) {
            Ok((piece, after)) => {
                pieces.push(piece);
                rest = after;
            }
            Err(last) => {
                pieces.push(last);
                return pieces;
            }
        }
    }
}

fn each(spans: Vec<Span<'_>>, how: &Clearing) -> Duration {
    let start = Instant::now();
    for span in spans {
        drop(span.clear(how).fence());
    }
    start.elapsed()
}

fn once(spans: Vec<Span<'_>>, how: &Clearing) -> Duration {
    let start = Instant::now();
    let cleared = spans.into_iter().map(|span| span.clear(how)).collect();
    drop(Incoherent::fence_all(cleared));
    start.elapsed()
}
