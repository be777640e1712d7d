//! What the machine's CPUs do, for this process and for others.

use std::path::Path;

use super::text;

/// Load averages of the last minute, 5 and 15 minutes (proc_loadavg(5)).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load(pub(crate) [f64; 3]);

impl Load {
    pub(crate) fn read(root: &Path) -> Option<Self> {
        Self::parse(&text(root, "proc/loadavg")?)
    }

    pub(crate) fn parse(loadavg: &str) -> Option<Self> {
        let mut figures = loadavg.split_whitespace().map(|figure| figure.parse().ok());
        let mut next = || figures.next().flatten();
        Some(Self([next()?, next()?, next()?]))
    }

    /// Of the last minute.
    pub(crate) fn now(self) -> f64 {
        self.0[0]
    }
}

/// Time of all CPUs since the boot, in clock ticks: the first line of proc_stat(5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CpuTime {
    /// In programs, virtual machines and the kernel.
    pub(super) busy: u64,
    pub(super) idle: u64,
    /// Ready to run, and held back by the hypervisor.
    pub(super) stolen: u64,
}

impl CpuTime {
    pub(super) fn read(root: &Path) -> Option<Self> {
        Self::parse(&text(root, "proc/stat")?)
    }

    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Option<Vec<u64>> = line.split_whitespace().map(|n| n.parse().ok()).collect();
        // Time in guests (the ninth and tenth figure) is part of the first and second.
        let [user, nice, system, idle, iowait, irq, softirq, stolen, ..] = ticks?[..] else {
            return None;
        };
        let busy = [user, nice, system, irq, softirq];
        Some(Self {
            busy: busy.into_iter().fold(0, u64::saturating_add),
            idle: idle.saturating_add(iowait),
            stolen,
        })
    }

    /// What passed from `before` to this.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            busy: self.busy.saturating_sub(before.busy),
            idle: self.idle.saturating_sub(before.idle),
            stolen: self.stolen.saturating_sub(before.stolen),
        }
    }
}

/// CPU time of this process, of its threads that ended and of its children that were waited for, in
/// clock ticks: utime, stime, cutime and cstime of proc_pid_stat(5).
pub(super) fn own_ticks(root: &Path) -> Option<u64> {
    let stat = text(root, "proc/self/stat")?;
    // The name before it may hold anything, parentheses too.
    let (_, rest) = stat.rsplit_once(')')?;
    let ticks = rest.split_whitespace().skip(11).take(4);
    let ticks: Option<Vec<u64>> = ticks.map(|n| n.parse().ok()).collect();
    let ticks = ticks.filter(|ticks| ticks.len() == 4)?;
    Some(ticks.into_iter().fold(0, u64::saturating_add))
}

#[cfg(test)]
mod tests {
    use super::super::tests::root;
    use super::*;

    #[test]
    fn load_averages_are_three_figures() {
        let load = Load::parse("2.92 2.65 2.34 1/106 3160\n");
        assert_eq!(load, Some(Load([2.92, 2.65, 2.34])));
        assert_eq!(Load::parse("2.92 x 2.34"), None);
        assert_eq!(Load::parse(""), None);
    }

    #[test]
    fn time_in_guests_is_not_counted_twice() {
        let time = CpuTime::parse("cpu  100 20 30 400 50 6 7 80 60 10\ncpu0 1 1 1 1 1 1 1 1 1 1\n");
        let wanted = CpuTime {
            busy: 163,
            idle: 450,
            stolen: 80,
        };
        assert_eq!(time, Some(wanted));
        assert_eq!(CpuTime::parse("cpu  1 2 3\n"), None);
        assert_eq!(CpuTime::parse("intr 1\n"), None);
        let later = CpuTime {
            busy: 170,
            ..wanted
        };
        let passed = CpuTime {
            busy: 7,
            ..CpuTime::default()
        };
        assert_eq!(later.since(wanted), passed);
    }

    #[test]
    fn own_time_is_that_of_threads_and_children() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194304 100 0 0 0 11 22 33 44 20 0 3 0 100 0 0\n";
        let dir = root(&[("proc/self/stat", stat)]);
        assert_eq!(own_ticks(dir.path()), Some(110));
        assert_eq!(
            own_ticks(root(&[("proc/self/stat", "42 (a) S 1\n")]).path()),
            None
        );
        assert!(own_ticks(Path::new("/")).is_some() && CpuTime::read(Path::new("/")).is_some());
    }
}
