//! Which method clears a node's memory: asked for, known, or measured on the first of it.
//!
//! Measuring costs nothing but the difference between methods, because what a candidate clears need
//! not be cleared again. Every worker tries every candidate on one piece of its own memory, and those
//! that come near the best on more; pieces are so small that all of it stays below 5 % of the node's
//! clear even where the candidates are on average four times slower than the best. All workers try
//! at the same time, because a method that is best alone may not be when all share the memory.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prezero_clear::{GRANULE, Method};

/// Rounds of trying: all candidates in the first, those near the best in the others.
const ROUNDS: usize = 3;
/// How near, as a fraction of the best's time. Preemption and cold caches hit single pieces harder.
const NEAR: f64 = 1.25;
/// A worker tries candidates on at most this part of its share.
pub(super) const PART: u64 = 80;
/// Smaller pieces say more about the clock and the fence than about the stores.
const MIN_PIECE: u64 = 16 << 10;
/// Larger pieces say nothing new.
const MAX_PIECE: u64 = 8 << 20;

/// Who chooses the method.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MethodChoice {
    /// The first of the memory that is to be cleared, cleared with each candidate in turn. Where that
    /// is too little to measure, cached stores.
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
    /// The size in bytes from which it is faster than cached stores.
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
    /// Each worker's share is too small to measure on, or below the crossing: cached stores.
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
pub struct ChosenMethod {
    /// The node.
    pub node: u32,
    /// The method that cleared it, apart from what was cleared by trying.
    pub method: Method,
    /// Why.
    pub reason: Reason,
    /// What was tried, in the order of trying.
    pub trials: Vec<Trial>,
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
    /// Bytes of a piece to try candidates on; none where the choice is made.
    piece: Option<u64>,
    /// Index of the best so far.
    best: AtomicUsize,
    tallies: Mutex<Tallies>,
}

/// The sum of the times of all workers that have tried, for each candidate.
#[derive(Default)]
struct Tallies {
    workers: u32,
    times: Vec<Duration>,
}

impl Choosing {
    /// `share` is what each worker of the node clears, in bytes.
    pub(super) fn new(node: u32, share: u64, choice: &MethodChoice) -> Self {
        let decided = |method, reason| (vec![method], reason, None);
        let (candidates, reason, piece) = match *choice {
            MethodChoice::Fixed(method) => decided(method, Reason::Requested),
            MethodChoice::Known(known) if share < known.crossing => {
                decided(Method::cached(), Reason::Small)
            }
            MethodChoice::Known(known) => decided(known.best, Reason::Known),
            MethodChoice::Measured => {
                let candidates = candidates();
                match piece_len(share, candidates.len()) {
                    Some(piece) => (candidates, Reason::Measured, Some(piece)),
                    None => decided(Method::cached(), Reason::Small),
                }
            }
        };
        Self {
            node,
            candidates,
            reason,
            piece,
            best: AtomicUsize::new(0),
            tallies: Mutex::default(),
        }
    }

    pub(super) fn piece(&self) -> Option<u64> {
        self.piece
    }

    /// The best method as far as is known now.
    pub(super) fn method(&self) -> Method {
        let best = self.candidates.get(self.best.load(Ordering::Relaxed));
        best.copied().unwrap_or_else(Method::cached)
    }

    /// Adds what a worker found. A worker that ran out of memory before it had tried every candidate
    /// is not heard.
    pub(super) fn settle(&self, tried: &Tried<'_>) {
        let Some(times) = tried.shortest.iter().copied().collect::<Option<Vec<_>>>() else {
            return;
        };
        let mut tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        tallies.workers += 1;
        tallies.times.resize(times.len(), Duration::ZERO);
        for (sum, time) in tallies.times.iter_mut().zip(times) {
            *sum += time;
        }
        let all = tallies.times.iter().enumerate();
        if let Some((best, _)) = all.min_by_key(|(_, time)| **time) {
            self.best.store(best, Ordering::Relaxed);
        }
    }

    pub(super) fn chosen(self) -> ChosenMethod {
        let method = self.method();
        let tallies = self.tallies.into_inner();
        let Tallies { workers, times } = tallies.unwrap_or_else(PoisonError::into_inner);
        let trials = self
            .candidates
            .iter()
            .zip(times)
            .map(|(method, time)| Trial {
                method: *method,
                bytes: self.piece.unwrap_or(0),
                time: time / workers.max(1),
            });
        ChosenMethod {
            node: self.node,
            method,
            reason: self.reason,
            trials: trials.collect(),
        }
    }
}

/// The methods worth trying: all of this CPU but the portable loop, which is `cached` at best.
fn candidates() -> Vec<Method> {
    let all = Method::available();
    all.filter(|method| method.name() != "portable").collect()
}

/// How much to try each candidate on, if a worker's share is large enough to measure on.
pub(super) fn piece_len(share: u64, candidates: usize) -> Option<u64> {
    // As if two candidates stayed in for all rounds.
    let pieces = candidates as u64 + 2 * (ROUNDS as u64 - 1);
    let piece = (share / PART / pieces).min(MAX_PIECE);
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
}

impl<'a> Tried<'a> {
    pub(super) fn new(choosing: &'a Choosing) -> Self {
        Self {
            choosing,
            shortest: vec![None; choosing.candidates.len()],
            round: 0,
            turn: 0,
        }
    }

    /// The candidate to try now, until it is [recorded](Self::record); none when enough was tried.
    pub(super) fn candidate(&mut self) -> Option<Method> {
        while self.round < ROUNDS {
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

    fn is_near(&self, candidate: usize) -> bool {
        let best = self.shortest.iter().flatten().min();
        match (self.shortest[candidate], best) {
            (Some(time), Some(best)) => time <= best.mul_f64(NEAR),
            _ => true,
        }
    }

    /// How long the candidate whose turn it is took for a piece.
    pub(super) fn record(&mut self, time: Duration) {
        if let Some(shortest) = self.shortest.get_mut(self.turn) {
            *shortest = Some(shortest.map_or(time, |before| before.min(time)));
        }
        self.turn += 1;
    }
}
