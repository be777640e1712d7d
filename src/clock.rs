//! The clock that processes of one machine share: CLOCK_MONOTONIC (clock_gettime(2)).

use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Its reading now. No process can set it, and all of one time namespace read the same.
pub(crate) fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    // It begins at zero, and its nanoseconds are below a second.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanoseconds)
}

/// Says its reading in nanoseconds, just before it does, in a line.
pub(crate) fn say() -> ExitCode {
    let line = format!("{}\n", now().as_nanos());
    match rustix::io::write(rustix::stdio::stdout(), line.as_bytes()) {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// What it read at a moment in the past.
pub(crate) fn at(moment: Instant) -> Duration {
    // Two readings cannot be taken at once. Of a few tries the one that was interrupted least counts.
    let tries = (0..4).map(|_| {
        let (before, elapsed, after) = (now(), moment.elapsed(), now());
        (after.saturating_sub(before), before.saturating_sub(elapsed))
    });
    tries.min().map_or(Duration::ZERO, |(_, at)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_lies_between_the_readings_around_it() {
        let before = now();
        let moment = Instant::now();
        let after = now();
        // Below what a thread can be kept from its CPU for between two readings.
        let slack = Duration::from_secs(10);
        let found = at(moment);
        assert!(before <= found + slack && found <= after + slack);
    }
}
