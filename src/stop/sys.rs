//! sigaction(2): what is done at once when a signal comes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use signal_hook::low_level;

use crate::clock;

/// What comes sooner after the first signal is the same request once more: timeout(1) sends its signal to
/// the command and then to the group that the command is in.
const SAME_REQUEST: Duration = Duration::from_millis(200);

/// Has the signal set the flag, and end the process as by default if it is another request than the first.
pub(super) fn register(signal: i32, flag: Arc<AtomicBool>, first: Arc<First>) -> io::Result<()> {
    // The first reading looks for the vDSO, which may allocate.
    let _ = clock::now();
    let action = move || {
        flag.store(true, Ordering::SeqCst);
        if first.is_long_ago(clock::now()) {
            // It returns for signals that do nothing by default, of which these are none.
            let _ = low_level::emulate_default_handler(signal);
        }
    };
    // SAFETY: it does nothing that a handler may not (signal-safety(7)): it stores to atomics, reads a clock that
    // was read before, by clock_gettime(2) or in the vDSO, and calls what its crate has for handlers. It
    // allocates nothing and leaves errno alone.
    unsafe { low_level::register(signal, action) }.map(drop)
}

/// When the first signal came, in nanoseconds of the [clock]; 0 before.
#[derive(Debug, Default)]
pub(super) struct First(AtomicU64);

impl First {
    /// Whether there was one, so long before this one that this one is another request.
    fn is_long_ago(&self, now: Duration) -> bool {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let now = nanoseconds(now).max(1);
        let before = self
            .0
            .compare_exchange(0, now, Ordering::SeqCst, Ordering::SeqCst);
        before.is_err_and(|first| now.saturating_sub(first) >= nanoseconds(SAME_REQUEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_comes_at_once_again_is_the_same_request() {
        let first = First::default();
        let at = |milliseconds| first.is_long_ago(Duration::from_millis(milliseconds));
        assert!(!at(0) && !at(1), "the clock may begin with it");
        assert!(!at(150));
        assert!(at(201) && at(1_000_000));
    }
}
