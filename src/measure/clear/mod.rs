//! How fast memory is cleared: by which method, in which chunks, with how many threads.

pub(crate) mod calibration;
pub(crate) mod crossing;
pub(crate) mod fence;
mod memory;
mod sys;

use std::time::Duration;

use prezero_clear::{Method, Stores};
use prezero_memory::{ByteSize, Class};

pub(crate) use self::memory::{Memory, STAIN};
use super::counters::Counts;
use super::rounds::interleave;
use super::stats::Summary;
use crate::failure::Failure;

/// Who says with which method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Name(Method),
    /// As a run chooses it: measured on the first of the memory, within the time that counts.
    Measuring,
}

impl By {
    /// The name that chooses by measuring.
    pub(crate) const MEASURING: &str = "auto";

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Name(method) => method.name(),
            Self::Measuring => Self::MEASURING,
        }
    }

    pub(crate) fn method(self) -> Option<Method> {
        match self {
            Self::Name(method) => Some(method),
            Self::Measuring => None,
        }
    }

    pub(crate) fn stores(self) -> Option<Stores> {
        self.method().map(Method::stores)
    }
}

/// One way of clearing all of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) method: By,
    /// How much one string instruction or loop covers, in bytes; `None` for as much as there is.
    pub(crate) chunk: Option<u64>,
    pub(crate) threads: usize,
}

impl Row {
    /// `clzero 4K, 2 threads`.
    pub(crate) fn name(&self) -> String {
        let method = self.method.name();
        let chunk = self.chunk.map_or(String::new(), |chunk| {
            format!(" {}", ByteSize(chunk).to_spec())
        });
        format!("{method}{chunk}, {}", thread_count(self.threads))
    }
}

/// `1 thread`, `2 threads`.
pub(crate) fn thread_count(threads: usize) -> String {
    counted(threads, "thread")
}

/// `1 run`, `2 runs`.
pub(crate) fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// Every method with every chunk with every number of threads.
pub(crate) fn rows(methods: &[By], chunks: &[Option<u64>], threads: &[usize]) -> Vec<Row> {
    let mut rows = Vec::new();
    for &threads in threads {
        for &method in methods {
            rows.extend(chunks.iter().map(|&chunk| Row {
                method,
                chunk,
                threads,
            }));
        }
    }
    rows
}

/// What came of clearing the memory once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass {
    pub(crate) time: Duration,
    /// What all threads did meanwhile, where that is counted.
    pub(crate) counts: Option<Counts>,
}

/// A row and what came of it.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) row: Row,
    /// One for each counted pass, in their order.
    pub(crate) samples: Vec<Duration>,
    /// The same in GB/s.
    pub(crate) gbps: Vec<f64>,
    pub(crate) summary: Summary,
    /// What a counted pass came to on average.
    pub(crate) counts: Option<Counts>,
}

impl Measured {
    pub(crate) fn new(row: Row, bytes: u64, samples: Vec<Duration>) -> Option<Self> {
        let gbps: Vec<f64> = samples.iter().map(|time| gbps(bytes, *time)).collect();
        let summary = Summary::of(&gbps)?;
        Some(Self {
            row,
            samples,
            gbps,
            summary,
            counts: None,
        })
    }

    /// The fastest by its mean.
    pub(crate) fn best<'a>(rows: impl Iterator<Item = &'a Self>) -> Option<&'a Self> {
        rows.max_by(|a, b| a.summary.mean.total_cmp(&b.summary.mean))
    }

    pub(crate) fn is_uncached(&self) -> bool {
        self.row.method.stores() == Some(Stores::Uncached)
    }
}

/// The fastest method that stores to the cache and the fastest that does not, of these rows. `None` where
/// there is none of the latter; where there is none of the former, it is [`Method::cached`].
pub(crate) fn best_of_each<'a>(
    rows: impl Iterator<Item = &'a Measured> + Clone,
) -> Option<(Method, Method)> {
    let best = |stores| {
        let rows = rows.clone();
        let rows = rows.filter(move |row| row.row.method.stores() == Some(stores));
        Measured::best(rows).and_then(|best| best.row.method.method())
    };
    let uncached = best(Stores::Uncached)?;
    Some((
        best(Stores::Cached).unwrap_or_else(Method::cached),
        uncached,
    ))
}

/// Measures all rows, `runs` times each. `progress` is told how many bytes have been cleared.
pub(crate) fn measure(
    memory: &mut Memory<'_>,
    rows: &[Row],
    runs: usize,
    progress: &dyn Fn(u64),
) -> Result<Vec<Measured>, Failure> {
    let bytes = memory.bytes();
    let mut done = 0;
    let mut passes = 0;
    let samples = interleave(rows.len(), runs, |n| {
        let pass = memory.pass(&rows[n]).map_err(|failure| {
            let all = rows.len() * (runs + 1);
            stopped(failure, passes, all)
        })?;
        passes += 1;
        done += bytes;
        progress(done);
        Ok::<_, Failure>(pass)
    })?;
    let rows = rows.iter().zip(samples);
    let measured = rows.filter_map(|(row, passes)| {
        let times = passes.iter().map(|pass| pass.time).collect();
        let counts: Vec<_> = passes.iter().map(|pass| pass.counts).collect();
        Some(Measured {
            counts: Counts::mean(&counts),
            ..Measured::new(*row, bytes, times)?
        })
    });
    Ok(measured.collect())
}

/// Where it was stopped, in terms of the measurement: part of one is none.
fn stopped(failure: Failure, passes: usize, all: usize) -> Failure {
    if failure.class != Class::Stopped {
        return failure;
    }
    Failure {
        message: format!("Cancelled after {passes} of {all} passes; nothing of them is shown"),
        ..failure
    }
}

/// All bytes that [`measure`] clears.
pub(crate) fn work(bytes: u64, rows: usize, runs: usize) -> u64 {
    bytes
        .saturating_mul(rows as u64)
        .saturating_mul(runs as u64 + 1)
}

/// GB/s, 10^9 bytes.
#[allow(clippy::cast_precision_loss)] // a measured figure
pub(crate) fn gbps(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64().max(1e-9) / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_every_combination() {
        let methods = [
            By::Name(Method::cached()),
            By::Name(Method::named("portable").expect("everywhere")),
        ];
        let all = rows(&methods, &[Some(4096), Some(2 << 20), None], &[1, 2]);
        assert_eq!(all.len(), 2 * 3 * 2);
        assert_eq!(all[0].name(), "cached 4K, 1 thread");
        assert_eq!(all[10].name(), "portable 2M, 2 threads");
        assert_eq!(all[11].name(), "portable, 2 threads");
    }

    #[test]
    fn the_best_of_each_kind_is_the_fastest_that_was_measured() {
        let Some(uncached) = Method::available().find(|m| m.stores() == Stores::Uncached) else {
            return;
        };
        let portable = Method::named("portable").expect("everywhere");
        let measured = |method, gbps: u64| {
            let row = rows(&[method], &[None], &[1])[0];
            let samples = vec![Duration::from_secs(1)];
            Measured::new(row, gbps * 1_000_000_000, samples).expect("a sample")
        };
        let all = [
            measured(By::Name(Method::cached()), 10),
            measured(By::Name(portable), 12),
            measured(By::Name(uncached), 11),
            measured(By::Measuring, 99),
        ];
        assert_eq!(best_of_each(all.iter()), Some((portable, uncached)));
        let alone = &all[2..];
        assert_eq!(
            best_of_each(alone.iter()),
            Some((Method::cached(), uncached))
        );
        assert_eq!(best_of_each(all[..2].iter()), None);
    }

    #[test]
    fn the_rate_is_that_of_each_pass() {
        let row = rows(&[By::Name(Method::cached())], &[None], &[1])[0];
        let samples = [1000, 500].map(Duration::from_millis).to_vec();
        let measured = Measured::new(row, 10_000_000_000, samples).expect("samples");
        assert_eq!(measured.gbps, [10.0, 20.0]);
        assert_eq!(measured.summary.mean, 15.0);
        assert!(Measured::new(row, 1, Vec::new()).is_none());
    }
}
