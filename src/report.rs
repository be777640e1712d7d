//! The report of a run as data: schema `prezero/run/1`. Text and JSON are views of it.

use std::time::{Duration, Instant};

use prezero_host::Host;
use prezero_memory::{Plan, Prealloc, WorkerReport};
use serde::Serialize;

use crate::failure::{Failure, class_name};
use crate::output;

/// Durations are reported in nanoseconds; 584 years fit.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) schema: &'static str,
    pub(crate) version: &'static str,
    pub(crate) host: Option<HostFacts>,
    pub(crate) request: Option<RequestFacts>,
    pub(crate) regions: Vec<Region>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) phases: Vec<Phase>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) placement: Option<PlacementFacts>,
    pub(crate) creation_ns: Option<u64>,
    pub(crate) first_instruction_ns: Option<u64>,
    pub(crate) guest: Option<Guest>,
    pub(crate) warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<ErrorFacts>,
}

#[derive(Debug, Serialize)]
pub(crate) struct HostFacts {
    kernel: String,
    cpu: String,
    hypervisor: bool,
    preempt: String,
    nodes: Vec<NodeFacts>,
}

#[derive(Debug, Serialize)]
struct NodeFacts {
    id: u32,
    cpus: Vec<u32>,
    pools: Vec<PoolFacts>,
}

#[derive(Debug, Serialize)]
struct PoolFacts {
    page_size: u64,
    total: u64,
    free: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct RequestFacts {
    pub(crate) bytes: u64,
    pub(crate) prealloc: &'static str,
    /// The clearing method asked for; none can be yet.
    pub(crate) method: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Region {
    pub(crate) gpa: u64,
    pub(crate) len: u64,
    pub(crate) page_size: u64,
    pub(crate) node: u32,
    pub(crate) backing: &'static str,
    pub(crate) origin: &'static str,
    pub(crate) cleared_by: &'static str,
}

#[derive(Debug, Serialize)]
pub(crate) struct Slot {
    slot: u32,
    gpa: u64,
    len: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    pub(crate) ns: u64,
    pub(crate) bytes: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Worker {
    pub(crate) node: u32,
    pub(crate) cpu: Option<u32>,
    pub(crate) pinned: bool,
    pub(crate) remote: bool,
    pub(crate) populated_bytes: u64,
    pub(crate) cleared_bytes: u64,
    pub(crate) cpu_ns: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct PlacementFacts {
    pub(crate) checked_pages: u64,
    pub(crate) misplaced_pages: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Guest {
    pub(crate) exit: &'static str,
    pub(crate) scanned_bytes: u64,
    pub(crate) scan_ns: u64,
    pub(crate) nonzero_bytes: u64,
    pub(crate) first_nonzero_gpa: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ErrorFacts {
    class: &'static str,
    message: String,
    fix: Option<String>,
}

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
            placement: None,
            creation_ns: None,
            first_instruction_ns: None,
            guest: None,
            warnings: Vec::new(),
            error: None,
        }
    }

    pub(crate) fn set_host(&mut self, host: &Host) {
        let nodes = host.nodes.iter().map(|node| NodeFacts {
            id: node.id,
            cpus: node.cpus.iter().collect(),
            pools: node
                .pools
                .iter()
                .map(|pool| PoolFacts {
                    page_size: pool.page_size.bytes(),
                    total: pool.total,
                    free: pool.free,
                })
                .collect(),
        });
        self.host = Some(HostFacts {
            kernel: host.kernel.release.clone(),
            cpu: host.cpu.model.clone(),
            hypervisor: host.cpu.hypervisor,
            preempt: host.kernel.preempt.clone(),
            nodes: nodes.collect(),
        });
    }

    /// The planned regions and slots. What populates them is the kernel, in both ways.
    pub(crate) fn set_plan(&mut self, plan: &Plan) {
        let regions = plan.extents().map(|extent| Region {
            gpa: extent.gpa(),
            len: extent.len().bytes(),
            page_size: extent.page_size().bytes(),
            node: extent.node(),
            backing: extent.backing().name(),
            origin: extent.origin().name(),
            cleared_by: match plan.prealloc() {
                Prealloc::Eager => "kernel",
                Prealloc::Off => "none",
            },
        });
        self.regions = regions.collect();
        let slots = plan.slots().iter().map(|slot| Slot {
            slot: slot.slot(),
            gpa: slot.gpa(),
            len: slot.len(),
        });
        self.slots = slots.collect();
    }

    pub(crate) fn set_workers(&mut self, workers: &[WorkerReport]) {
        let workers = workers.iter().map(|worker| Worker {
            node: worker.node,
            cpu: worker.cpu,
            pinned: worker.pinned,
            remote: worker.remote,
            populated_bytes: worker.populated_bytes,
            cleared_bytes: 0,
            cpu_ns: nanoseconds(worker.cpu_time),
        });
        self.workers = workers.collect();
    }

    pub(crate) fn set_error(&mut self, failure: &Failure) {
        self.error = Some(ErrorFacts {
            class: class_name(failure.class),
            message: failure.message.clone(),
            fix: failure.fix.clone(),
        });
    }

    /// Tells the user at once, and the report.
    pub(crate) fn warn(&mut self, warning: String) {
        output::warn(&warning);
        self.warnings.push(warning);
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
        report.phases.push(Phase {
            name,
            ns: nanoseconds(now - self.last),
            bytes,
        });
        self.last = now;
    }

    /// From the start of `main` to the end of the last phase.
    pub(crate) fn so_far(&self) -> u64 {
        nanoseconds(self.last - self.start)
    }
}
