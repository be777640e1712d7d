//! What went on beside a measurement while it ran.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use prezero_host::{CpuThrottling, Host};

use super::load::{CpuTime, Load, own_ticks};
use crate::measure::warning::Warning;

/// Load averages forget with this time (CALC_LOAD in the kernel's `kernel/sched/loadavg.c`).
const MINUTE: f64 = 60.0;
/// Clock ticks in a second: what user space is told is always counted in these on Linux.
const TICKS: f64 = 100.0;
/// Fewer ticks than these are chance.
const FEW_TICKS: u64 = 5;
/// More of the time that CPUs wanted to run is much, in parts of it.
const STOLEN: f64 = 0.02;
/// More of all CPUs' time is much for others to use.
const OTHERS: f64 = 0.1;

/// Counters as they were when a measurement began.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    root: PathBuf,
    cpus: usize,
    start: Instant,
    before: Reading,
    throttling: CpuThrottling,
}

/// What is read at the beginning and at the end.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    load: Option<Load>,
    time: Option<CpuTime>,
    own: Option<u64>,
}

impl Reading {
    fn of(root: &Path) -> Self {
        Self {
            load: Load::read(root),
            time: CpuTime::read(root),
            own: own_ticks(root),
        }
    }
}

/// What came of watching.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(crate) load: Option<Load>,
    pub(crate) warnings: Vec<Warning>,
}

impl Watch {
    /// Begins to watch this machine.
    pub(crate) fn here(host: &Host) -> Self {
        Self::start(Path::new("/"), host.allowed_cpus.len())
    }

    /// Begins to watch the machine whose `/proc` and `/sys` are in `root`, which has so many CPUs. What
    /// is measured comes between this and [`end`](Self::end), and as little else as can be.
    fn start(root: &Path, cpus: usize) -> Self {
        Self {
            root: root.to_owned(),
            cpus,
            throttling: CpuThrottling::start(root),
            before: Reading::of(root),
            start: Instant::now(),
        }
    }

    pub(crate) fn end(&self) -> Watched {
        let after = Reading::of(&self.root);
        let took = self.start.elapsed();
        let mut warnings = of_counters(&self.before, &after, took, self.cpus);
        let throttled = self.throttling.so_far();
        let throttled = throttled.filter(|throttled| !throttled.time.is_zero());
        warnings.extend(throttled.map(Warning::Throttled));
        Watched {
            load: after.load,
            warnings,
        }
    }
}

#[allow(clippy::cast_precision_loss)] // ticks, and numbers of CPUs
fn of_counters(before: &Reading, after: &Reading, took: Duration, cpus: usize) -> Vec<Warning> {
    let mut found = Vec::new();
    let own = before
        .own
        .zip(after.own)
        .map(|(before, after)| after.saturating_sub(before));
    if let Some((was, now)) = before.time.zip(after.time) {
        let passed = now.since(was);
        let part = |part: u64, of: u64| match part < FEW_TICKS {
            true => 0.0,
            false => part as f64 / of as f64,
        };
        let stolen = part(passed.stolen, passed.busy + passed.stolen);
        if stolen > STOLEN {
            found.push(Warning::Stolen { part: stolen });
        }
        let others = own.map_or(0, |own| passed.busy.saturating_sub(own));
        let others = part(others, passed.busy + passed.stolen + passed.idle);
        if others > OTHERS {
            found.push(Warning::Shared { part: others });
        }
    }
    if let Some(((was, now), own)) = before.load.zip(after.load).zip(own) {
        let seconds = took.as_secs_f64().max(1e-3);
        // What this process's own threads add to the average in that time.
        let own = own as f64 / TICKS / seconds * (1.0 - (-seconds / MINUTE).exp());
        let others = now.now() - own;
        if others > was.now() + (cpus as f64 / 4.0).max(0.5) {
            found.push(Warning::LoadRose {
                before: was.now(),
                after: now.now(),
                own,
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::tests::root;
    use super::*;

    fn reading(load: f64, [busy, idle, stolen]: [u64; 3], own: u64) -> Reading {
        Reading {
            load: Some(Load([load, 0.0, 0.0])),
            time: Some(CpuTime { busy, idle, stolen }),
            own: Some(own),
        }
    }

    const MINUTE: Duration = Duration::from_secs(60);
    const IDLE: Reading = Reading {
        load: Some(Load([0.0; 3])),
        time: Some(CpuTime {
            busy: 0,
            idle: 0,
            stolen: 0,
        }),
        own: Some(0),
    };

    #[test]
    fn a_measurement_s_own_threads_are_not_others() {
        // Two threads for a minute: 12,000 ticks, and 1.26 of load.
        let after = reading(1.3, [12_100, 0, 10], 12_000);
        assert_eq!(of_counters(&IDLE, &after, MINUTE, 2), []);
    }

    #[test]
    fn load_that_others_bring_is_said() {
        let after = reading(2.5, [12_000, 0, 0], 12_000);
        let found = of_counters(&IDLE, &after, MINUTE, 2);
        let [Warning::LoadRose { before, after, own }] = found[..] else {
            panic!("{found:?}");
        };
        assert_eq!((before, after), (0.0, 2.5));
        assert!((1.26..1.27).contains(&own), "{own}");
    }

    #[test]
    fn time_that_others_used_is_said() {
        let after = reading(0.0, [9_000, 3_000, 0], 6_000);
        let found = of_counters(&IDLE, &after, MINUTE, 2);
        assert_eq!(found, [Warning::Shared { part: 0.25 }]);
    }

    #[test]
    fn time_that_the_hypervisor_gave_to_others_is_said() {
        let after = reading(0.0, [950, 0, 50], 950);
        let found = of_counters(&IDLE, &after, MINUTE, 2);
        assert_eq!(found, [Warning::Stolen { part: 0.05 }]);
        // A tick or two is a matter of rounding.
        let after = reading(0.0, [4, 0, 4], 0);
        assert_eq!(of_counters(&IDLE, &after, Duration::from_millis(40), 2), []);
    }

    #[test]
    fn where_nothing_can_be_read_nothing_is_said() {
        let dir = root(&[]);
        let watched = Watch::start(dir.path(), 2).end();
        assert_eq!((watched.load, watched.warnings), (None, Vec::new()));
    }

    #[test]
    fn a_cpu_quota_that_held_threads_back_is_said() {
        let dir = root(&[
            ("proc/self/cgroup", "0::/a\n"),
            (
                "proc/self/mountinfo",
                "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            ),
            ("sys/fs/cgroup/a/cpu.stat", "throttled_usec 1000\n"),
        ]);
        let watch = Watch::start(dir.path(), 2);
        assert_eq!(watch.end().warnings, []);
        fs::write(
            dir.path().join("sys/fs/cgroup/a/cpu.stat"),
            "throttled_usec 251000\n",
        )
        .expect("writable");
        let warnings = watch.end().warnings;
        let [Warning::Throttled(throttled)] = &warnings[..] else {
            panic!("{warnings:?}");
        };
        assert_eq!(throttled.time, Duration::from_millis(250));
    }
}
