//! Staying below a rate.

use std::thread;
use std::time::{Duration, Instant};

use prezero_host::PageSize;

use crate::control::Control;

/// Pieces between pauses are this part of a second's worth: short against what anybody would notice.
const PIECES_PER_SECOND: u64 = 20;
/// The most that is done at once, whatever the rate.
const LARGEST: u64 = 64 << 20;
/// How long a pause lasts before the caller's wish to stop is seen.
const NAP: Duration = Duration::from_millis(50);

/// Spreads work over time: after each piece it waits until the bytes done so far were due. Time that was
/// lost elsewhere is not made up for by going faster later.
#[derive(Debug)]
pub(super) struct Pace {
    rate: u64,
    due: Instant,
}

impl Pace {
    /// At most `rate` bytes a second, at least one.
    pub(super) fn new(rate: u64) -> Self {
        Self {
            rate: rate.max(1),
            due: Instant::now(),
        }
    }

    /// How many bytes to do between pauses.
    pub(super) fn piece(&self, page: PageSize) -> u64 {
        let piece = (self.rate / PIECES_PER_SECOND).min(LARGEST);
        page.round_down(piece).max(page.bytes())
    }

    /// To be called before a piece, so that time spent on other things does not count.
    pub(super) fn start(&mut self) {
        self.due = self.due.max(Instant::now());
    }

    /// Waits until `bytes` more were due; returns early when the work is to stop.
    pub(super) fn done(&mut self, bytes: u64, control: &Control<'_>) {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.rate);
        let time = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let Some(due) = self.due.checked_add(time) else {
            return;
        };
        self.due = due;
        loop {
            let left = self.due.saturating_duration_since(Instant::now());
            if left.is_zero() || control.stopped_by().is_some() {
                return;
            }
            thread::sleep(left.min(NAP));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Cancel;

    #[test]
    fn a_rate_is_kept_and_never_exceeded() {
        let start = Instant::now();
        let mut pace = Pace::new(1000 << 20);
        for _ in 0..10 {
            pace.start();
            pace.done(20 << 20, &Control::default());
        }
        // 200 MiB at 1000 MiB/s.
        let time = start.elapsed();
        assert!(time >= Duration::from_millis(200), "{time:?}");
    }

    #[test]
    fn lost_time_is_not_made_up_for() {
        let mut pace = Pace::new(100 << 20);
        thread::sleep(Duration::from_millis(100));
        let start = Instant::now();
        pace.start();
        pace.done(10 << 20, &Control::default());
        assert!(start.elapsed() >= Duration::from_millis(100));
    }

    #[test]
    fn pieces_are_whole_pages() {
        assert_eq!(Pace::new(1).piece(PageSize::HUGE_2M), 2 << 20);
        assert_eq!(Pace::new(100 << 20).piece(PageSize::HUGE_2M), 4 << 20);
        assert_eq!(Pace::new(u64::MAX).piece(PageSize::HUGE_2M), LARGEST);
        assert_eq!(Pace::new(1 << 30).piece(PageSize::HUGE_1G), 1 << 30);
    }

    #[test]
    fn a_pause_ends_when_the_work_is_to_stop() {
        let cancel = Cancel::new();
        cancel.cancel();
        let control = Control {
            cancel: Some(&cancel),
            ..Control::default()
        };
        let start = Instant::now();
        Pace::new(1).done(1 << 20, &control);
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}
