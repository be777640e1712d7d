//! What a measurement's own work adds to each of its passes: reading clocks, starting threads and handing
//! work out. It is measured in each run, on a pass that does all of that and none of what is measured.

use std::time::Duration;

use super::stats::median;

/// An odd number, for the median.
const PASSES: usize = 11;

/// The time of each empty pass, in their order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OwnCost {
    pub(crate) samples: Vec<Duration>,
    /// Their median.
    pub(crate) time: Duration,
}

impl OwnCost {
    /// `None` without samples.
    pub(crate) fn of(samples: Vec<Duration>) -> Option<Self> {
        let seconds: Vec<f64> = samples.iter().map(Duration::as_secs_f64).collect();
        let time = Duration::from_secs_f64(median(&seconds)?);
        Some(Self { samples, time })
    }

    /// Runs an empty pass that is not counted, and then so many that say what one takes.
    pub(crate) fn measure<E>(mut empty: impl FnMut() -> Result<Duration, E>) -> Result<Self, E> {
        empty()?;
        let samples: Vec<Duration> = (0..PASSES).map(|_| empty()).collect::<Result<_, E>>()?;
        let time = Self::of(samples.clone()).map_or(Duration::ZERO, |own| own.time);
        Ok(Self { samples, time })
    }

    /// It as a part of the shortest pass that was measured.
    pub(crate) fn part_of(&self, shortest: Duration) -> f64 {
        self.time.as_secs_f64() / shortest.as_secs_f64().max(1e-9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_the_median_of_the_empty_passes_after_the_first() {
        let mut passes = 0;
        let own = OwnCost::measure(|| {
            passes += 1;
            // The first one is slow, and one more was interrupted.
            let slow = passes == 1 || passes == 5;
            Ok::<_, ()>(Duration::from_micros(if slow { 900 } else { passes }))
        });
        let own = own.expect("it did not fail");
        assert_eq!((own.samples.len(), passes), (11, 12));
        assert_eq!(own.time, Duration::from_micros(8));
        assert!((own.part_of(Duration::from_millis(1)) - 0.008).abs() < 1e-12);
        assert_eq!(OwnCost::of(own.samples.clone()), Some(own));
        assert_eq!(OwnCost::of(Vec::new()), None);
    }

    #[test]
    fn an_empty_pass_that_fails_ends_it() {
        assert_eq!(OwnCost::measure(|| Err("gone")), Err("gone"));
    }
}
