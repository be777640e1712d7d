//! The report of `prezero pool scrub` as data: schema `prezero/pool-scrub/1`. Sizes are bytes, times
//! nanoseconds.

use std::path::PathBuf;

use prezero_memory::pool::{NotScrubbed, ScrubReport as Pass};
use serde::Serialize;

use super::facts::ErrorFacts;
use super::pool::{Count, ProblemFacts};
use super::run::nanoseconds;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct ScrubReport {
    pub(crate) schema: &'static str,
    pub(crate) version: &'static str,
    pub(crate) pool: Option<PathBuf>,
    /// Whether pages were exchanged instead of cleared: asked for, or because the pool is exchange-only.
    pub(crate) exchange: bool,
    /// Passes that found something to do, and the first.
    pub(crate) passes: u64,
    /// Segments that became clean, of all passes.
    pub(crate) cleaned: Count,
    /// Wall time of the passes, and the part of it in which threads cleared or populated.
    pub(crate) ns: u64,
    pub(crate) work_ns: u64,
    /// The methods of the last pass that cleared something.
    pub(crate) methods: Vec<NodeMethod>,
    /// Dirty segments in use, of the last pass.
    pub(crate) busy: usize,
    /// Free dirty segments that did not become clean.
    pub(crate) left: Vec<LeftFacts>,
    /// Of the last pass.
    pub(crate) problems: Vec<ProblemFacts>,
    /// Whether it was stopped by a signal.
    pub(crate) stopped: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<ErrorFacts>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct NodeMethod {
    pub(crate) node: u32,
    pub(crate) method: &'static str,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct LeftFacts {
    pub(crate) path: PathBuf,
    pub(crate) node: u32,
    pub(crate) bytes: u64,
    pub(crate) message: String,
}

impl From<&NotScrubbed> for LeftFacts {
    fn from(left: &NotScrubbed) -> Self {
        Self {
            path: left.path.clone(),
            node: left.node,
            bytes: left.bytes,
            message: left.to_string(),
        }
    }
}

impl ScrubReport {
    pub(crate) fn new() -> Self {
        Self {
            schema: "prezero/pool-scrub/1",
            version: env!("CARGO_PKG_VERSION"),
            pool: None,
            exchange: false,
            passes: 0,
            cleaned: Count::default(),
            ns: 0,
            work_ns: 0,
            methods: Vec::new(),
            busy: 0,
            left: Vec::new(),
            problems: Vec::new(),
            stopped: false,
            error: None,
        }
    }

    pub(crate) fn add(&mut self, pass: &Pass) {
        self.passes += 1;
        self.exchange = pass.exchange;
        self.cleaned.segments += pass.segments;
        self.cleaned.bytes += pass.bytes;
        self.ns = self.ns.saturating_add(nanoseconds(pass.time));
        self.work_ns = self.work_ns.saturating_add(nanoseconds(pass.work_time));
        if !pass.choices.is_empty() {
            let methods = pass.choices.iter().map(|choice| NodeMethod {
                node: choice.node,
                method: choice.method.name(),
            });
            self.methods = methods.collect();
        }
        self.busy = pass.busy.len();
        self.left.extend(pass.left.iter().map(LeftFacts::from));
        self.problems = pass.problems.iter().map(Into::into).collect();
        self.stopped |= pass.stopped.is_some();
    }
}
