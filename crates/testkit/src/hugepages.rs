//! Hugepages for one test.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use crate::lock::MachineLock;
use crate::pool::{Change, Counters, Pool};
use crate::require::{note_skip, skip};

/// Above this, a page needs luck that no machine can be required to have: a whole free range (and, for 1 GiB on x86-64,
/// a CPU feature).
const LARGEST_REQUIRED: u64 = 32 << 20;

/// The kernel gives pages back from a work queue in places, so the counters lag behind the last munmap.
const SETTLE: Duration = Duration::from_secs(2);

/// A number of available hugepages, for one test alone: it holds the [`MachineLock`] as long as it lives.
///
/// Dropped, it checks that every page came back and returns the pool to its size by the difference it made.
#[derive(Debug)]
pub struct Hugepages {
    // Dropped in this order: the pages are back before anybody else may count them.
    holding: Holding,
    _lock: MachineLock,
}

impl Hugepages {
    /// At least `pages` available (free and not reserved) pages of `page_size` bytes; the pool grows where it must.
    ///
    /// None, after [`skip`] for `hugepages`, where they cannot be had. Pages above 32 MiB are never required.
    ///
    /// # Panics
    ///
    /// As [`skip`] and [`MachineLock::acquire`] do.
    #[must_use = "the pages are taken until the guard is dropped, and without one the test has to return"]
    #[track_caller]
    pub fn take(page_size: u64, pages: u64) -> Option<Self> {
        Self::hold(page_size, |pool| pool.raise_available_to(pages))
    }

    /// Exactly `pages` available pages, perhaps none: the pool shrinks where it must, for tests of a shortage.
    ///
    /// None, after [`skip`] for `hugepages`, where that is refused.
    ///
    /// # Panics
    ///
    /// As [`Hugepages::take`].
    #[must_use = "the pool is changed until the guard is dropped, and without one the test has to return"]
    #[track_caller]
    pub fn exactly(page_size: u64, pages: u64) -> Option<Self> {
        Self::hold(page_size, |pool| pool.set_available_to(pages))
    }

    #[track_caller]
    fn hold(page_size: u64, adjust: impl FnOnce(&Pool) -> io::Result<Change>) -> Option<Self> {
        let lock = MachineLock::acquire();
        match Holding::new(page_size, adjust) {
            Ok(holding) => Some(Self {
                holding,
                _lock: lock,
            }),
            Err(error) => {
                let why = error.to_string();
                if page_size <= LARGEST_REQUIRED {
                    skip("hugepages", &why);
                } else {
                    note_skip("hugepages", &why);
                }
                None
            }
        }
    }

    /// Bytes per page.
    #[must_use]
    pub fn page_size(&self) -> u64 {
        self.holding.pool.page_size()
    }

    /// The counters as they are now.
    ///
    /// # Panics
    ///
    /// When sysfs cannot be read.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.holding.counters()
    }

    /// Checks that the counters are what they were when the guard was made; waits up to two seconds for that.
    ///
    /// # Panics
    ///
    /// When pages are still used or reserved after that time.
    #[track_caller]
    pub fn assert_clean(&self) {
        if let Err(now) = self.holding.settle() {
            panic!("{}", self.holding.complaint(now));
        }
    }
}

#[derive(Debug)]
struct Holding {
    pool: Pool,
    change: Change,
    start: Counters,
}

impl Holding {
    fn new(page_size: u64, adjust: impl FnOnce(&Pool) -> io::Result<Change>) -> io::Result<Self> {
        let pool = Pool::of(page_size)?;
        let change = adjust(&pool)?;
        let start = pool.counters()?;
        Ok(Self {
            pool,
            change,
            start,
        })
    }

    fn counters(&self) -> Counters {
        self.pool
            .counters()
            .expect("sysfs shows the counters of a pool that exists")
    }

    /// The counters that are not those of the start, where they stay so.
    fn settle(&self) -> Result<(), Counters> {
        let deadline = Instant::now() + SETTLE;
        loop {
            let now = self.counters();
            if now == self.start {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(now);
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn complaint(&self, now: Counters) -> String {
        let size = self.pool.page_size() >> 10;
        format!(
            "Pages of {size} KiB did not come back: {:?} before, {now:?} now",
            self.start
        )
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let settled = self.settle();
        let undone = self.pool.undo(&self.change);
        if thread::panicking() {
            if let Err(error) = undone {
                eprintln!("The hugepage pool is not as it was: {error}");
            }
            return;
        }
        if let Err(now) = settled {
            panic!("{}", self.complaint(now));
        }
        if let Err(error) = undone {
            panic!("The hugepage pool is not as it was: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    const PAGE: u64 = 2 << 20;

    /// Counters before and after `test`, with nobody else counting; None where the pages cannot be had.
    fn around(
        adjust: impl FnOnce(&Pool) -> io::Result<Change>,
        test: impl FnOnce(Holding),
    ) -> Option<(Counters, Counters)> {
        let _lock = MachineLock::acquire();
        let before = Pool::of(PAGE).and_then(|pool| pool.counters());
        match Holding::new(PAGE, adjust) {
            Ok(holding) => test(holding),
            Err(error) => {
                skip("hugepages", &error.to_string());
                return None;
            }
        }
        let after = Pool::of(PAGE).and_then(|pool| pool.counters());
        Some((before.expect("readable"), after.expect("readable")))
    }

    #[test]
    fn taken_pages_are_available_and_given_back() {
        let counters = around(
            |pool| pool.raise_available_to(pool.counters()?.available() + 3),
            |holding| {
                assert_eq!(holding.change.pages(), 3);
                assert!(holding.start.available() >= 3);
            },
        );
        if let Some((before, after)) = counters {
            assert_eq!(before, after);
        }
    }

    #[test]
    fn a_shortage_is_exact_and_ends() {
        let counters = around(
            |pool| {
                // Something to take away, whatever the machine has.
                let grown = pool.raise_available_to(4)?;
                let shrunk = pool.set_available_to(1)?;
                assert!(shrunk.pages() <= -3);
                assert_eq!(pool.counters()?.available(), 1);
                pool.undo(&shrunk)?;
                assert!(pool.counters()?.available() >= 4);
                pool.undo(&grown)?;
                pool.set_available_to(0)
            },
            |holding| {
                assert_eq!(holding.start.available(), 0);
                sys::memfd_of_2m_pages(1).expect_err("there is no page to have");
            },
        );
        if let Some((before, after)) = counters {
            assert_eq!(before, after);
        }
    }

    #[test]
    fn a_page_that_stays_is_noticed() {
        let counters = around(
            |pool| pool.raise_available_to(2),
            |holding| {
                let leak = sys::memfd_of_2m_pages(1).expect("a page is available");
                assert!(holding.settle().is_err());
                let dropped = catch_unwind(AssertUnwindSafe(|| drop(holding)));
                let message = *dropped
                    .expect_err("drop panics")
                    .downcast::<String>()
                    .expect("text");
                assert!(message.contains("did not come back"), "{message}");
                drop(leak);
            },
        );
        // The pool shrank all the same: the page was surplus until it was freed.
        if let Some((before, after)) = counters {
            assert_eq!(before, after);
        }
    }

    #[test]
    fn more_than_the_memory_is_refused() {
        let _lock = MachineLock::acquire();
        let Ok(pool) = Pool::of(PAGE) else {
            return skip("hugepages", "no 2 MiB pages");
        };
        let before = pool.counters().expect("readable");
        let error = pool.raise_available_to(1 << 40).expect_err("an exbibyte");
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory, "{error}");
        assert_eq!(before, pool.counters().expect("readable"));
    }
}
