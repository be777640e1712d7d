//! The report of `prezero plan` as data: schema `prezero/plan/1`.

use prezero_host::Host;
use prezero_memory::{Plan, WorkerPlan};
use serde::Serialize;

use super::estimate::EstimateFacts;
use super::facts::{ErrorFacts, HostFacts, PoolUse, Region, RequestFacts, Slot};

/// Keys as in `prezero/run/1`, without what only a run can know.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PlanReport {
    pub(crate) schema: &'static str,
    pub(crate) version: &'static str,
    pub(crate) host: Option<HostFacts>,
    pub(crate) request: Option<RequestFacts>,
    pub(crate) regions: Vec<Region>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) workers: Vec<Worker>,
    /// The pool that segments would be taken from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pool: Option<PoolUse>,
    /// What it would take, from measurements that were given. A prediction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) estimate: Option<EstimateFacts>,
    pub(crate) warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<ErrorFacts>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Worker {
    pub(crate) node: u32,
    pub(crate) cpu: Option<u32>,
    pub(crate) remote: bool,
}

impl From<&WorkerPlan> for Worker {
    fn from(worker: &WorkerPlan) -> Self {
        Self {
            node: worker.node(),
            cpu: worker.cpu(),
            remote: worker.remote(),
        }
    }
}

impl PlanReport {
    pub(crate) fn new() -> Self {
        Self {
            schema: "prezero/plan/1",
            version: env!("CARGO_PKG_VERSION"),
            host: None,
            request: None,
            regions: Vec::new(),
            slots: Vec::new(),
            workers: Vec::new(),
            pool: None,
            estimate: None,
            warnings: Vec::new(),
            error: None,
        }
    }

    pub(crate) fn set_host(&mut self, host: &Host) {
        self.host = Some(host.into());
        self.warnings
            .extend(host.problems.iter().map(ToString::to_string));
    }

    pub(crate) fn set_plan(&mut self, plan: &Plan) {
        self.regions = Region::of(plan);
        self.slots = Slot::of(plan);
        self.workers = plan.workers().iter().map(Worker::from).collect();
        self.warnings
            .extend(plan.warnings().iter().map(ToString::to_string));
    }
}
