//! The report of a run as data: schema `prezero/run/1`. Text and JSON are views of it.

use std::time::{Duration, Instant};

use prezero_memory::{ChosenMethod, ClearReport, Grown, Placement, Plan, WorkerReport};
use serde::Serialize;

use super::boot::Boot;
use super::facts::{ErrorFacts, HostFacts, PoolUse, Region, RequestFacts, Slot};
use crate::output;

/// Durations are reported in nanoseconds; 584 years fit.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) schema: &'static str,
    pub(crate) version: &'static str,
    pub(crate) host: Option<HostFacts>,
    pub(crate) request: Option<RequestFacts>,
    pub(crate) regions: Vec<Region>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) phases: Vec<Phase>,
    pub(crate) workers: Vec<Worker>,
    /// How memory was cleared, where it was.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) clear: Vec<ClearChoice>,
    /// What the cgroup's CPU quota withheld while populating, summed over CPUs; null where no cgroup
    /// counts it.
    pub(crate) throttled_ns: Option<u64>,
    pub(crate) placement: Option<PlacementFacts>,
    /// The pool that segments were taken from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pool: Option<PoolUse>,
    /// What `--reserve` added to the kernel's pools for this run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) grown: Vec<GrownPool>,
    /// Start of main on CLOCK_MONOTONIC (clock_gettime(2)), for whoever has the same clock.
    pub(crate) started_ns: Option<u64>,
    /// From the start of main to the last slot registered.
    pub(crate) creation_ns: Option<u64>,
    /// From the start of main to the guest's first port write.
    pub(crate) first_instruction_ns: Option<u64>,
    pub(crate) guest: Option<Guest>,
    /// What a Linux guest was made of, and when it got how far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) boot: Option<Boot>,
    pub(crate) warnings: Vec<String>,
    /// Whether stderr takes nothing, so that warnings are only kept.
    #[serde(skip)]
    pub(crate) untold: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<ErrorFacts>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    pub(crate) ns: u64,
    pub(crate) bytes: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Worker {
    pub(crate) node: u32,
    pub(crate) cpu: Option<u32>,
    pub(crate) pinned: bool,
    pub(crate) remote: bool,
    pub(crate) populated_bytes: u64,
    pub(crate) cleared_bytes: u64,
    pub(crate) cpu_ns: u64,
}

/// The method that cleared a node's memory, and why it was chosen.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ClearChoice {
    pub(crate) node: u32,
    pub(crate) method: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) trials: Vec<ClearTrial>,
}

/// How fast a candidate was, for one worker while all were at work.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ClearTrial {
    pub(crate) method: &'static str,
    pub(crate) bytes: u64,
    pub(crate) gbps: f64,
}

impl From<&ChosenMethod> for ClearChoice {
    fn from(choice: &ChosenMethod) -> Self {
        let trials = choice.trials.iter().map(|trial| ClearTrial {
            method: trial.method.name(),
            bytes: trial.bytes,
            gbps: trial.gbps(),
        });
        Self {
            node: choice.node,
            method: choice.method.name(),
            reason: choice.reason.name(),
            trials: trials.collect(),
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct PlacementFacts {
    pub(crate) checked_pages: u64,
    pub(crate) misplaced_pages: u64,
    pub(crate) method: &'static str,
}

impl From<&Placement> for PlacementFacts {
    fn from(placement: &Placement) -> Self {
        Self {
            checked_pages: placement.checked_pages,
            misplaced_pages: placement.misplaced_pages,
            method: placement.by.name(),
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct GrownPool {
    pub(crate) page_size: u64,
    pub(crate) node: Option<u32>,
    pub(crate) asked_pages: u64,
    pub(crate) got_pages: u64,
    pub(crate) compacted: bool,
}

impl From<&Grown> for GrownPool {
    fn from(grown: &Grown) -> Self {
        Self {
            page_size: grown.page.bytes(),
            node: grown.node,
            asked_pages: grown.asked,
            got_pages: grown.got,
            compacted: grown.compacted,
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Guest {
    pub(crate) exit: &'static str,
    pub(crate) scanned_bytes: u64,
    pub(crate) scan_ns: u64,
    pub(crate) nonzero_bytes: u64,
    pub(crate) first_nonzero_gpa: Option<u64>,
}

impl Guest {
    /// One that ended like this and did not read its memory.
    pub(crate) fn ended(exit: &'static str) -> Self {
        Self {
            exit,
            scanned_bytes: 0,
            scan_ns: 0,
            nonzero_bytes: 0,
            first_nonzero_gpa: None,
        }
    }
}

/// How a warning of workers that may run on any CPU ends.
pub(crate) const LOOSE: &str = "could not be pinned to a CPU and may share one";

impl Report {
    pub(crate) fn new() -> Self {
        Self {
            schema: "prezero/run/1",
            version: env!("CARGO_PKG_VERSION"),
            host: None,
            request: None,
            regions: Vec::new(),
            slots: Vec::new(),
            phases: Vec::new(),
            workers: Vec::new(),
            clear: Vec::new(),
            throttled_ns: None,
            placement: None,
            pool: None,
            grown: Vec::new(),
            started_ns: None,
            creation_ns: None,
            first_instruction_ns: None,
            guest: None,
            boot: None,
            warnings: Vec::new(),
            untold: false,
            error: None,
        }
    }

    pub(crate) fn set_plan(&mut self, plan: &Plan) {
        self.regions = Region::of(plan);
        self.slots = Slot::of(plan);
    }

    pub(crate) fn set_workers(&mut self, workers: &[WorkerReport]) {
        let workers = workers.iter().map(|worker| Worker {
            node: worker.node,
            cpu: worker.cpu,
            pinned: worker.pinned,
            remote: worker.remote,
            populated_bytes: worker.populated_bytes,
            cleared_bytes: worker.cleared_bytes,
            cpu_ns: nanoseconds(worker.cpu_time),
        });
        self.workers = workers.collect();
    }

    /// Adds what the same workers cleared.
    pub(crate) fn set_clear(&mut self, cleared: &ClearReport) {
        for (worker, done) in self.workers.iter_mut().zip(&cleared.workers) {
            worker.cleared_bytes += done.cleared_bytes;
            worker.cpu_ns += nanoseconds(done.cpu_time);
        }
        self.clear = cleared.choices.iter().map(ClearChoice::from).collect();
    }

    /// Tells the user at once, and the report; not again what was told, as by a plan that is made once more.
    pub(crate) fn warn(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            if !self.untold {
                output::warn(&warning);
            }
            self.warnings.push(warning);
        }
    }

    /// Phases that go on after another one are one.
    fn add_phase(&mut self, name: &'static str, time: Duration, bytes: u64) {
        let ns = nanoseconds(time);
        match self.phases.iter_mut().find(|phase| phase.name == name) {
            Some(phase) => {
                phase.ns += ns;
                phase.bytes += bytes;
            }
            None => self.phases.push(Phase { name, ns, bytes }),
        }
    }
}

/// Cuts the time since the start of `main` into phases without gaps.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    start: Instant,
    last: Instant,
}

impl Stopwatch {
    pub(crate) fn new(start: Instant) -> Self {
        Self { start, last: start }
    }

    pub(crate) fn start(&self) -> Instant {
        self.start
    }

    /// Ends the phase that began at the end of the last one.
    pub(crate) fn lap(&mut self, report: &mut Report, name: &'static str, bytes: u64) {
        let now = Instant::now();
        report.add_phase(name, now - self.last, bytes);
        self.last = now;
    }

    /// Ends a phase that took `time` and ended before now: what came after it is the next one's.
    pub(crate) fn lap_of(
        &mut self,
        report: &mut Report,
        name: &'static str,
        time: Duration,
        bytes: u64,
    ) {
        report.add_phase(name, time, bytes);
        self.last += time;
    }

    /// From the start of `main` to the end of the last phase.
    pub(crate) fn so_far(&self) -> u64 {
        nanoseconds(self.last - self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_again_is_one_phase_and_told_once() {
        let mut report = Report::new();
        let mut clock = Stopwatch::new(Instant::now());
        for _ in 0..2 {
            report.warn("of the plan".to_owned());
            clock.lap_of(&mut report, "calibrate", Duration::ZERO, 2);
            clock.lap(&mut report, "clear", 3);
        }
        let phases: Vec<_> = report.phases.iter().map(|of| (of.name, of.bytes)).collect();
        assert_eq!(phases, [("calibrate", 4), ("clear", 6)]);
        let all: u64 = report.phases.iter().map(|of| of.ns).sum();
        assert_eq!(all, clock.so_far());
        assert_eq!(report.warnings, ["of the plan"]);
    }
}
