//! Which method clears a node's memory: asked for, known, or measured on the first of it.
//!
//! Measuring costs nothing but the difference between methods, because what a candidate clears need
//! not be cleared again. Every worker tries every candidate on one piece of its own memory, uncached
//! ones first, and those that come near the best on more. It stops when that took 3.5 % of what the
//! best so far would need for the worker's share, so that one more piece makes it 5 % only if a
//! candidate is more than ten times slower. All workers try at the same time, because a method that is
//! best alone may not be when all share the memory.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prezero_clear::{GRANULE, Method, Stores};

/// Rounds of trying: all candidates in the first, those near the best in the others.
const ROUNDS: usize = 3;
/// How near, as a fraction of the best's time. Preemption and cold caches hit single pieces harder.
const NEAR: f64 = 1.25;
/// If no candidate were slower than the best, trying them would take about this part of a share.
const PART: u64 = 80;
/// Trying ends after this part of the time that the best so far needs for the share.
const PART_OF_TIME: u32 = 28;
/// Shorter pieces than asked for, at the ends of small extents, before a worker gives up trying.
const MAX_SHORT: usize = 16;
/// Smaller pieces say more about the clock and the fence than about the stores.
const MIN_PIECE: u64 = 16 << 10;
/// Larger pieces say nothing new.
const MAX_PIECE: u64 = 2 << 20;

/// Who chooses the method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MethodChoice {
    /// The first of the memory that is to be cleared, cleared with each candidate in turn. Extents
    /// smaller than the pieces that are tried get cached stores, and so does all of it where there is
    /// too little to measure on.
    #[default]
    Measured,
    /// The caller.
    Fixed(Method),
    /// An earlier measurement.
    Known(Calibration),
}

/// What a measurement found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calibration {
    /// The fastest method for large extents.
    pub best: Method,
    /// The size in bytes from which it is faster than cached stores; smaller extents get those.
    pub crossing: u64,
}

/// Why a method was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The caller wanted it.
    Requested,
    /// It was the fastest of those tried.
    Measured,
    /// An earlier measurement found it.
    Known,
    /// There is too little to measure on: cached stores.
    Small,
}

impl Reason {
    /// The word used in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Measured => "measured",
            Self::Known => "known",
            Self::Small => "small",
        }
    }
}

/// What was chosen for the memory of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChosenMethod {
    /// The node.
    pub node: u32,
    /// The method that cleared it, apart from what was cleared by trying and from extents below the
    /// crossing.
    pub method: Method,
    /// Why.
    pub reason: Reason,
    /// What was tried, in the order of trying.
    pub trials: Vec<Trial>,
}

impl ChosenMethod {
    /// What can be [known](MethodChoice::Known) from here on, if it was measured.
    #[must_use]
    pub fn calibration(&self) -> Option<Calibration> {
        let measured = self.reason == Reason::Measured;
        let trial = self.trials.first().filter(|_| measured)?;
        Some(Calibration {
            best: self.method,
            // Nothing is known of extents smaller than the pieces that were tried.
            crossing: trial.bytes,
        })
    }
}

/// How fast a candidate was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The candidate.
    pub method: Method,
    /// Bytes of one piece.
    pub bytes: u64,
    /// The mean over the workers of each one's shortest time for a piece, its fence included.
    pub time: Duration,
}

impl Trial {
    /// GB/s (10^9 bytes) of one worker, while all were at work.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // for display, three digits
    pub fn gbps(&self) -> f64 {
        self.bytes as f64 / (self.time.as_nanos() as f64).max(1.0)
    }
}

/// The choice for one node, while its workers make it.
pub(super) struct Choosing {
    node: u32,
    candidates: Vec<Method>,
    reason: Reason,
    /// What each worker clears, in bytes.
    share: u64,
    /// Bytes of a piece to try candidates on; none where the choice is made.
    piece: Option<u64>,
    /// Smaller extents are cleared with cached stores, in bytes.
    crossing: u64,
    /// Index of the best so far; past the end while nobody has tried.
    best: AtomicUsize,
    tallies: Mutex<Vec<Tally>>,
}

/// The workers that have tried a candidate, and the sum of their times.
#[derive(Clone, Copy, Default)]
struct Tally {
    workers: u32,
    time: Duration,
}

impl Tally {
    fn mean(self) -> Option<Duration> {
        self.time.checked_div(self.workers)
    }
}

impl Choosing {
    /// `share` is what each worker of the node clears, `largest` the largest extent there, in bytes.
    pub(super) fn new(node: u32, share: u64, largest: u64, choice: &MethodChoice) -> Self {
        let all = candidates();
        let piece = piece_len(share, largest, all.len());
        let (candidates, reason, piece, crossing) = match (*choice, piece) {
            (MethodChoice::Fixed(method), _) => (vec![method], Reason::Requested, None, 0),
            (MethodChoice::Known(known), _) => {
                (vec![known.best], Reason::Known, None, known.crossing)
            }
            (MethodChoice::Measured, Some(piece)) => (all, Reason::Measured, Some(piece), piece),
            (MethodChoice::Measured, None) => (vec![Method::cached()], Reason::Small, None, 0),
        };
        let best = if piece.is_some() { usize::MAX } else { 0 };
        Self {
            node,
            candidates,
            reason,
            share,
            piece,
            crossing,
            best: AtomicUsize::new(best),
            tallies: Mutex::default(),
        }
    }

    pub(super) fn piece(&self) -> Option<u64> {
        self.piece
    }

    /// How to clear part of an extent of `len` bytes, as far as is known now.
    pub(super) fn method(&self, len: u64) -> Method {
        let best = self.best().filter(|_| len >= self.crossing);
        best.unwrap_or_else(Method::cached)
    }

    fn best(&self) -> Option<Method> {
        let best = self.candidates.get(self.best.load(Ordering::Relaxed));
        best.copied()
    }

    /// Adds what a worker found.
    pub(super) fn settle(&self, tried: &Tried<'_>) {
        let mut tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        tallies.resize(self.candidates.len(), Tally::default());
        for (tally, time) in tallies.iter_mut().zip(&tried.shortest) {
            if let Some(time) = time {
                tally.workers += 1;
                tally.time += *time;
            }
        }
        let means = tallies.iter().enumerate();
        let means = means.filter_map(|(n, tally)| Some((tally.mean()?, n)));
        if let Some((_, best)) = means.min() {
            self.best.store(best, Ordering::Relaxed);
        }
    }

    pub(super) fn chosen(self) -> ChosenMethod {
        let best = self.best();
        let tallies = self.tallies.into_inner();
        let tallies = tallies.unwrap_or_else(PoisonError::into_inner);
        let trials = self.candidates.iter().zip(tallies);
        let trials = trials.filter_map(|(method, tally)| {
            Some(Trial {
                method: *method,
                bytes: self.piece?,
                time: tally.mean()?,
            })
        });
        ChosenMethod {
            node: self.node,
            method: best.unwrap_or_else(Method::cached),
            // Where all extents are too small for a piece, nobody has tried.
            reason: best.map_or(Reason::Small, |_| self.reason),
            trials: trials.collect(),
        }
    }
}

/// The methods worth trying, those that are likely to be fast first: all of this CPU but the portable
/// loop, which is `cached` at best.
fn candidates() -> Vec<Method> {
    let all = Method::available().filter(|method| method.name() != "portable");
    let mut all: Vec<Method> = all.collect();
    all.reverse();
    all.sort_by_key(|method| method.stores() == Stores::Cached);
    all
}

/// How much to try each candidate on, if a worker's share is large enough to measure on.
fn piece_len(share: u64, largest: u64, candidates: usize) -> Option<u64> {
    // As if two candidates stayed in for all rounds.
    let pieces = candidates as u64 + 2 * (ROUNDS as u64 - 1);
    let piece = (share / PART / pieces).min(largest).min(MAX_PIECE);
    let granule = GRANULE as u64;
    (piece >= MIN_PIECE).then_some(piece / granule * granule)
}

/// One worker's trying.
pub(super) struct Tried<'a> {
    choosing: &'a Choosing,
    /// The shortest time of each candidate so far.
    shortest: Vec<Option<Duration>>,
    round: usize,
    /// Index of the candidate whose turn it is.
    turn: usize,
    /// What all of it took.
    spent: Duration,
    /// Pieces that were shorter than asked for.
    short: usize,
    /// Whether the first piece is done, which is slower than any other: nothing is in the TLB yet.
    warm: bool,
}

impl<'a> Tried<'a> {
    pub(super) fn new(choosing: &'a Choosing) -> Self {
        Self {
            choosing,
            shortest: vec![None; choosing.candidates.len()],
            round: 0,
            turn: 0,
            spent: Duration::ZERO,
            short: 0,
            warm: false,
        }
    }

    /// The candidate to try now, until it is [recorded](Self::record); none when enough was tried.
    pub(super) fn candidate(&mut self) -> Option<Method> {
        while self.round < ROUNDS && self.short < MAX_SHORT && !self.is_too_long() {
            while let Some(candidate) = self.choosing.candidates.get(self.turn) {
                if self.is_near(self.turn) {
                    return Some(*candidate);
                }
                self.turn += 1;
            }
            self.round += 1;
            self.turn = 0;
        }
        None
    }

    /// Whether trying took as much of the clear as it may.
    fn is_too_long(&self) -> bool {
        let best = self.shortest.iter().flatten().min();
        let pieces = self.choosing.share / self.choosing.piece.unwrap_or(u64::MAX);
        let pieces = u32::try_from(pieces).unwrap_or(u32::MAX);
        best.is_some_and(|best| self.spent > best.saturating_mul(pieces) / PART_OF_TIME)
    }

    fn is_near(&self, candidate: usize) -> bool {
        let best = self.shortest.iter().flatten().min();
        match (self.shortest[candidate], best) {
            (Some(time), Some(best)) => time <= best.mul_f64(NEAR),
            _ => true,
        }
    }

    /// What all of it took.
    pub(super) fn spent(&self) -> Duration {
        self.spent
    }

    /// How long the candidate whose turn it is took for `bytes`. The first piece is no measure, and
    /// neither is less than a piece, as at the end of an extent.
    pub(super) fn record(&mut self, bytes: u64, time: Duration) {
        self.spent += time;
        if self.choosing.piece != Some(bytes) {
            self.short += 1;
            return;
        }
        if !self.warm {
            self.warm = true;
            return;
        }
        if let Some(shortest) = self.shortest.get_mut(self.turn) {
            *shortest = Some(shortest.map_or(time, |before| before.min(time)));
        }
        self.turn += 1;
    }
}
