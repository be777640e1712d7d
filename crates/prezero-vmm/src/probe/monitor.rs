//! Watching a running probe: progress, silence, cancellation, deadline.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::vcpu::{Lifetime, Pulse};
use crate::error::GuestError;
use crate::threads::VcpuThreads;

/// How often the monitor looks up; a vCPU that ends wakes it at once.
const TICK: Duration = Duration::from_millis(20);

/// How to watch a running probe, and how to stop it.
#[derive(Clone, Copy)]
pub struct ProbeControl<'a> {
    /// Set it from anywhere to stop the guest; noticed within about 20 ms.
    pub cancel: &'a AtomicBool,
    /// When to give up.
    pub deadline: Option<Instant>,
    /// How long a vCPU may go without a port write; it writes at least once for every 8 MiB it scans. Ten seconds
    /// suit even a host that emulates every instruction. Time in which this process does not run (SIGSTOP) does not
    /// count.
    pub silence: Duration,
    /// Called now and then, in the thread that called [`Probe::run`](super::Probe::run), with the bytes scanned so far.
    pub on_progress: Option<&'a (dyn Fn(u64) + Sync)>,
}

impl fmt::Debug for ProbeControl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProbeControl")
            .field("cancel", &self.cancel)
            .field("deadline", &self.deadline)
            .field("silence", &self.silence)
            .field("on_progress", &self.on_progress.is_some())
            .finish()
    }
}

/// How long a vCPU has been quiet.
#[derive(Clone, Default)]
struct Quiet {
    beats: u64,
    time: Duration,
    ended: bool,
}

/// Waits until all vCPUs have ended well, and returns when the first spoke and the last finished. `total` is
/// in bytes.
pub(super) fn watch(
    threads: &VcpuThreads<Lifetime>,
    pulses: &[Pulse],
    total: u64,
    control: &ProbeControl<'_>,
) -> Result<Lifetime, GuestError> {
    let mut all: Option<Lifetime> = None;
    let mut quiet = vec![Quiet::default(); pulses.len()];
    let mut running = pulses.len();
    let mut reported = 0;
    let mut last = Instant::now();
    loop {
        if let Some((cpu, outcome)) = threads.next_ended(TICK) {
            let one = outcome?;
            all = Some(all.map_or(one, |all| Lifetime {
                alive: all.alive.min(one.alive),
                done: all.done.max(one.done),
            }));
            quiet[cpu as usize].ended = true;
            running -= 1;
        }
        let scanned = pulses.iter().map(Pulse::scanned).sum();
        if let Some(on_progress) = control.on_progress.filter(|_| scanned != reported) {
            on_progress(scanned);
            reported = scanned;
        }
        if let Some(all) = all.filter(|_| running == 0) {
            return Ok(all);
        }
        if control.cancel.load(Ordering::Relaxed) {
            return Err(GuestError::Cancelled);
        }
        let now = Instant::now();
        if control.deadline.is_some_and(|deadline| now >= deadline) {
            return Err(GuestError::Deadline { scanned, total });
        }
        // A longer step means that this thread was stopped or starved, and the vCPUs perhaps with it.
        let step = (now - last).min(2 * TICK);
        last = now;
        for (cpu, (quiet, beats)) in
            (0..).zip(quiet.iter_mut().zip(pulses.iter().map(Pulse::beats)))
        {
            if quiet.beats != beats {
                quiet.beats = beats;
                quiet.time = Duration::ZERO;
                continue;
            }
            quiet.time += step;
            if !quiet.ended && quiet.time >= control.silence {
                return Err(GuestError::Silent {
                    cpu,
                    seconds: quiet.time.as_secs_f64(),
                });
            }
        }
    }
}
