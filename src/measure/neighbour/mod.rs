//! What clearing memory does to a neighbour: random reads on one CPU, alone and next to the clearing of
//! dirty memory on another.
//!
//! Uncached stores leave the neighbour's lines in the cache that both share, and take more of the
//! memory's bandwidth while they last. So there are two figures: how much slower the reads are
//! meanwhile, and how much time they lose for each GiB that is cleared. The second one decides, because a
//! fleet has a number of bytes to clear and not a number of seconds to do it in.

mod background;
mod chase;
mod figures;
mod pass;
mod place;
mod sys;
#[cfg(test)]
mod tests;
pub(crate) mod verdict;

use std::time::Duration;

use prezero_clear::Method;
use prezero_memory::{ByteSize, Class};

pub(crate) use self::background::PIECE;
pub(crate) use self::chase::{Chase, LINE};
pub(crate) use self::figures::{Beside, Figures, ns_per_access};
use self::pass::Taken;
pub(crate) use self::pass::{BATCH, How, Sample, slowest};
pub(crate) use self::place::{Place, Sharing, named, place};
use super::clear::Memory;
use super::counters::{Counts, Unavailable};
use super::own_cost::OwnCost;
use super::rounds::interleave;
use crate::failure::Failure;

/// One working set, alone or next to one method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// The working set's place among all.
    pub(crate) set: usize,
    pub(crate) method: Option<Method>,
}

impl Row {
    /// `1M next to clzero`.
    pub(crate) fn name(&self, bytes: u64) -> String {
        let set = ByteSize(bytes).to_spec();
        match self.method {
            None => format!("{set} alone"),
            Some(method) => format!("{set} next to {}", method.name()),
        }
    }
}

/// A row and what came of it.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) row: Row,
    /// One for each counted pass, in the order of the rounds.
    pub(crate) samples: Vec<Sample>,
    /// How many passes came to nothing and were run again, the one that is not counted among them.
    pub(crate) repeated: usize,
    pub(crate) figures: Figures,
    /// What the foreground of a pass came to on average.
    pub(crate) counts: Option<Counts>,
}

/// Rows, and how the passes went.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) measured: Vec<Measured>,
    /// All that came to something.
    pub(crate) passes: usize,
    /// Threads that were not on their CPUs, in the pass that had most of them.
    pub(crate) loose: usize,
    pub(crate) uncounted: Option<Unavailable>,
    /// What there is to a batch of reads besides them, and the time of the shortest batch, reads included.
    pub(crate) own: Option<(OwnCost, Duration)>,
}

/// Every working set alone, and next to each method.
pub(crate) fn rows(sets: usize, methods: &[Method]) -> Vec<Row> {
    let ways = || [None].into_iter().chain(methods.iter().copied().map(Some));
    (0..sets)
        .flat_map(|set| ways().map(move |method| Row { set, method }))
        .collect()
}

/// Where clearing was over before the reads could be timed, there is another try, which is counted.
const TRIES: usize = 8;

/// A pass, and how often it had to be run again.
fn tried(mut take: impl FnMut() -> Result<Taken, Failure>) -> Result<(Taken, usize), Failure> {
    let mut again = 0;
    loop {
        match take()? {
            Taken::TooLittle if again + 1 < TRIES => again += 1,
            taken => return Ok((taken, again)),
        }
    }
}

fn stopped(passes: usize, of: usize) -> Failure {
    Failure {
        class: Class::Stopped,
        message: format!("Cancelled after {passes} of {of} passes; nothing of them is shown"),
        fix: None,
    }
}

/// Measures all rows, `runs` times each. `progress` is told how many passes are done.
pub(crate) fn measure(
    memory: &mut Memory<'_>,
    sets: &mut [Chase],
    rows: &[Row],
    runs: usize,
    how: How<'_>,
    progress: &dyn Fn(u64),
) -> Result<Outcome, Failure> {
    let (mut passes, mut loose, mut uncounted) = (0, 0, None);
    let mut repeated = vec![0; rows.len()];
    let all = rows.len() * (runs + 1);
    let samples = interleave(rows.len(), runs, |n| {
        let Row { set, method } = rows[n];
        let chase = &mut sets[set];
        let taken = tried(|| match method {
            None => pass::alone(chase, how),
            Some(method) => {
                let spans = memory.dirty_spans();
                spans.and_then(|spans| pass::beside(chase, spans, method, how))
            }
        });
        let (taken, again) = taken.map_err(|failure| match failure.class {
            Class::Stopped => stopped(passes, all),
            _ => failure,
        })?;
        repeated[n] += again;
        let pass = match taken {
            Taken::Pass(pass) => pass,
            Taken::TooLittle => return Err(pass::too_little(memory.bytes())),
            Taken::Cancelled => return Err(stopped(passes, all)),
        };
        passes += 1;
        loose = loose.max(pass.loose);
        uncounted = pass.uncounted;
        progress(passes as u64);
        Ok(pass.sample)
    })?;
    let alone = |set| {
        let of = |row: &Row| row.set == set && row.method.is_none();
        rows.iter().position(of).map(|n| &samples[n][..])
    };
    let measured = rows.iter().zip(&samples).zip(&repeated);
    let measured = measured.filter_map(|((row, own), repeated)| {
        Some(Measured {
            row: *row,
            figures: Figures::of(own, row.method.and_then(|_| alone(row.set)))?,
            repeated: *repeated,
            samples: own.clone(),
            counts: Counts::mean(&own.iter().map(|sample| sample.counts).collect::<Vec<_>>()),
        })
    });
    let shortest = samples.iter().flatten().map(Sample::batch).min();
    let own = sets.first_mut().zip(shortest).map(|(chase, shortest)| {
        let cost = OwnCost::measure(|| {
            let empty = pass::empty(chase, how)?;
            empty.ok_or_else(|| stopped(passes, all))
        });
        Ok::<_, Failure>((cost?, shortest))
    });
    Ok(Outcome {
        uncounted,
        own: own.transpose()?,
        measured: measured.collect(),
        passes,
        loose,
    })
}
