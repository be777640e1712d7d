//! The reports of `prezero pool drain` and `destroy` as data: schemas `prezero/pool-drain/1` and
//! `prezero/pool-destroy/1`. Sizes are bytes.

use std::path::PathBuf;

use prezero_memory::pool::{Destroyed, Drained};
use serde::Serialize;

use super::facts::ErrorFacts;
use super::pool::{Count, HolderFacts, ProblemFacts};

#[derive(Clone, Debug, Serialize)]
pub(crate) struct DrainReport {
    pub(crate) schema: &'static str,
    pub(crate) version: &'static str,
    pub(crate) pool: Option<PathBuf>,
    /// What went back to the kernel; null where it did not come to that.
    pub(crate) given_back: Option<Count>,
    /// Segments that stay because they are in use.
    pub(crate) busy: Vec<BusyFacts>,
    pub(crate) problems: Vec<ProblemFacts>,
    /// Of destroy: directories of the pool that are still there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) left: Option<Vec<PathBuf>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<ErrorFacts>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct BusyFacts {
    pub(crate) path: PathBuf,
    /// As far as this user may see them.
    pub(crate) holders: Vec<HolderFacts>,
}

impl DrainReport {
    pub(crate) fn drain() -> Self {
        Self {
            schema: "prezero/pool-drain/1",
            version: env!("CARGO_PKG_VERSION"),
            pool: None,
            given_back: None,
            busy: Vec::new(),
            problems: Vec::new(),
            left: None,
            error: None,
        }
    }

    pub(crate) fn destroy() -> Self {
        Self {
            schema: "prezero/pool-destroy/1",
            left: Some(Vec::new()),
            ..Self::drain()
        }
    }

    pub(crate) fn set_drained(&mut self, drained: &Drained) {
        self.given_back = Some(Count {
            segments: drained.segments,
            bytes: drained.bytes,
        });
        let busy = drained.busy.iter().map(|(path, holders)| BusyFacts {
            path: path.clone(),
            holders: holders.iter().map(Into::into).collect(),
        });
        self.busy = busy.collect();
        self.problems = drained.problems.iter().map(Into::into).collect();
    }

    pub(crate) fn set_destroyed(&mut self, destroyed: &Destroyed) {
        self.set_drained(&destroyed.drained);
        self.left = Some(destroyed.left.clone());
    }
}
