//! From which size on uncached stores win: a small extent is cleared faster with cached stores, which
//! leave it in the cache, and a large one with uncached stores, which do not read it first.
//!
//! Each extent is stained and swept out of the cache by staining other memory before it is cleared,
//! and its time includes the fence, which a small extent feels.

use std::time::{Duration, Instant};

use prezero_clear::{Clearing, Method, Span};

use super::gbps;
use super::memory::{Memory, STAIN};
use crate::failure::Failure;
use crate::measure::stats::median;

/// Extents of 4 KiB, 16 KiB, 64 KiB … 16 MiB.
const SIZES: [usize; 7] = [
    4 << 10,
    16 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
    16 << 20,
];
/// An odd number, for the median.
const ROUNDS: usize = 11;
/// Reading the clock must not count: so much is cleared in one sample, extent by extent.
const SAMPLE: usize = 256 << 10;
/// The first half of it is cleared, the second half sweeps that out of the caches.
const LARGEST_WINDOW: usize = 1 << 30;

/// The rates for one size of extent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Point {
    /// The extent, in bytes.
    pub(crate) bytes: u64,
    /// Medians, in GB/s.
    pub(crate) cached: f64,
    pub(crate) uncached: f64,
    /// What they are the medians of, in the order of the rounds.
    pub(crate) cached_samples: Vec<f64>,
    pub(crate) uncached_samples: Vec<f64>,
}

/// The measured curve.
#[derive(Clone, Debug)]
pub(crate) struct Crossing {
    pub(crate) cached: Method,
    pub(crate) uncached: Method,
    pub(crate) points: Vec<Point>,
}

impl Crossing {
    /// The smallest extent from which on uncached stores stay ahead.
    pub(crate) fn from(&self) -> Option<u64> {
        let ahead = self.points.iter().rev();
        let ahead = ahead.take_while(|point| point.uncached > point.cached);
        ahead.last().map(|point| point.bytes)
    }
}

/// Compares a method of either kind on this thread, which should be kept on a CPU of the memory's node. Sizes that do not fit in half of the
/// memory with all that is cleared beside them are left out.
pub(crate) fn measure(
    memory: &mut Memory<'_>,
    cached: Method,
    uncached: Method,
) -> Result<Crossing, Failure> {
    let methods = [cached, uncached];
    let mut samples = vec![[const { Vec::new() }; 2]; SIZES.len()];
    for round in 0..ROUNDS {
        let Some(mut rest) = first_half(memory.piece()?) else {
            break;
        };
        for (size, samples) in SIZES.iter().zip(&mut samples) {
            let Some((first, after)) = cut(rest, *size) else {
                break;
            };
            let Some((second, after)) = cut(after, *size) else {
                break;
            };
            rest = after;
            // Neither method is always the first.
            let order = [round % 2, 1 - round % 2];
            for (n, extents) in order.into_iter().zip([first, second]) {
                samples[n].push(time(extents, methods[n]));
            }
        }
    }
    let points = SIZES.iter().zip(samples).filter_map(|(&size, samples)| {
        let [cached_samples, uncached_samples] = samples;
        Some(Point {
            bytes: size as u64,
            cached: median(&cached_samples)?,
            uncached: median(&uncached_samples)?,
            cached_samples,
            uncached_samples,
        })
    });
    Ok(Crossing {
        cached,
        uncached,
        points: points.collect(),
    })
}

/// Stains the memory from its beginning to its end, and keeps what has been swept out by then.
fn first_half(piece: Span<'_>) -> Option<Span<'_>> {
    let piece = match piece.split_at(LARGEST_WINDOW) {
        Ok((window, _)) => window,
        Err(all) => all,
    };
    let half = piece.len() / 2 / 4096 * 4096;
    let (first, _) = piece.stain(STAIN).split_at(half).ok()?;
    Some(first)
}

/// The extents of one sample and what is left. Small ones have gaps between them, so that no prefetch
/// runs from one into the next.
fn cut(mut rest: Span<'_>, size: usize) -> Option<(Vec<Span<'_>>, Span<'_>)> {
    let mut extents = Vec::with_capacity(SAMPLE.div_ceil(size));
    while extents.len() < SAMPLE.div_ceil(size) {
        let (extent, after) = rest.split_at(size).ok()?;
        extents.push(extent);
        rest = match size < SAMPLE {
            true => after.split_at(size).ok()?.1,
            false => after,
        };
    }
    Some((extents, rest))
}

/// GB/s of clearing and fencing each of them.
fn time(extents: Vec<Span<'_>>, method: Method) -> f64 {
    let how = Clearing::new(method);
    let bytes: usize = extents.iter().map(Span::len).sum();
    let start = Instant::now();
    for extent in extents {
        drop(extent.clear(&how).fence());
    }
    rate(bytes, start.elapsed())
}

fn rate(bytes: usize, time: Duration) -> f64 {
    gbps(bytes as u64, time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crossing(rates: &[(f64, f64)]) -> Crossing {
        let points = SIZES
            .iter()
            .zip(rates)
            .map(|(&size, &(cached, uncached))| Point {
                bytes: size as u64,
                cached,
                uncached,
                cached_samples: vec![cached],
                uncached_samples: vec![uncached],
            });
        Crossing {
            cached: Method::cached(),
            uncached: Method::cached(),
            points: points.collect(),
        }
    }

    #[test]
    fn the_crossing_is_where_uncached_stores_begin_to_stay_ahead() {
        let behind = (2.0, 1.0);
        let ahead = (1.0, 2.0);
        assert_eq!(
            crossing(&[behind, ahead, behind, ahead, ahead]).from(),
            Some(256 << 10)
        );
        assert_eq!(crossing(&[ahead, ahead]).from(), Some(4 << 10));
        assert_eq!(crossing(&[ahead, behind]).from(), None);
        assert_eq!(
            crossing(&[ahead, (1.0, 1.0)]).from(),
            None,
            "not slower is not ahead"
        );
        assert_eq!(crossing(&[]).from(), None);
    }

    /// Memory for spans, aligned.
    fn with_span<R>(len: usize, test: impl FnOnce(Span<'_>) -> R) -> R {
        super::super::sys::tests::with_span(len, test)
    }

    #[test]
    fn small_extents_of_a_sample_have_gaps_and_large_ones_need_none() {
        with_span(2 << 20, |span| {
            let start = span.addr();
            let (extents, rest) = cut(span, 4096).expect("it fits");
            assert_eq!(extents.len(), 64);
            let apart: Vec<usize> = extents.iter().map(|extent| extent.addr() - start).collect();
            assert!(
                apart.windows(2).all(|pair| pair[1] - pair[0] == 8192),
                "{apart:?}"
            );
            assert_eq!(rest.addr() - start, 512 << 10);
            let (extents, rest) = cut(rest, 1 << 20).expect("it fits");
            assert_eq!((extents.len(), extents[0].len()), (1, 1 << 20));
            assert!(cut(rest, 1 << 20).is_none());
        });
    }
}
