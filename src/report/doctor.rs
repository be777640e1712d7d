//! The report of `prezero doctor` as data: schema `prezero/doctor/1`.

use std::path::PathBuf;

use prezero_host::Host;
use prezero_memory::Class;
use prezero_memory::pool::Status;
use serde::{Serialize, Serializer};

use super::calibration::CalibrationFacts;
use super::facts::{ErrorFacts, HostFacts, Region};
use super::pool::TotalFacts;
use crate::failure::{Failure, class_name};

#[derive(Clone, Debug, Serialize)]
pub(crate) struct DoctorReport {
    pub(crate) schema: &'static str,
    pub(crate) version: &'static str,
    pub(crate) host: Option<HostFacts>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) pools: Vec<PoolRow>,
    pub(crate) regions: Vec<Region>,
    /// Pools of recycled pages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) recycled: Vec<RecycledPool>,
    /// Of `--calibrate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) calibration: Option<CalibrationFacts>,
    /// The files of `--record`, relative to its directory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) recorded: Vec<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<ErrorFacts>,
}

impl DoctorReport {
    pub(crate) fn new() -> Self {
        Self {
            schema: "prezero/doctor/1",
            version: env!("CARGO_PKG_VERSION"),
            host: None,
            findings: Vec::new(),
            pools: Vec::new(),
            regions: Vec::new(),
            recycled: Vec::new(),
            calibration: None,
            recorded: Vec::new(),
            error: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    Ok,
    /// A run may be slower than it could be, or fail for what was not asked about.
    Warning,
    /// A run with the same options fails.
    Problem,
}

impl Level {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// What one check found.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) name: &'static str,
    pub(crate) level: Level,
    pub(crate) message: String,
    /// Something to type, unless all is well; it may be several lines of shell.
    pub(crate) fix: Option<String>,
    /// What kind of error a run ends with, of problems.
    #[serde(serialize_with = "name_of_class")]
    pub(crate) class: Option<Class>,
}

fn name_of_class<S: Serializer>(class: &Option<Class>, to: S) -> Result<S::Ok, S::Error> {
    class.map(class_name).serialize(to)
}

impl Finding {
    pub(crate) fn ok(name: &'static str, message: impl Into<String>) -> Self {
        Self {
            name,
            level: Level::Ok,
            message: message.into(),
            fix: None,
            class: None,
        }
    }

    pub(crate) fn warning(
        name: &'static str,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            level: Level::Warning,
            fix: Some(fix.into()),
            ..Self::ok(name, message)
        }
    }

    /// What a run would end with; `otherwise` is the fix where the error has none of its own.
    pub(crate) fn problem(name: &'static str, failure: Failure, otherwise: &str) -> Self {
        Self {
            level: Level::Problem,
            fix: Some(failure.fix.unwrap_or_else(|| otherwise.to_owned())),
            class: Some(failure.class),
            ..Self::ok(name, failure.message)
        }
    }

    /// The failure that a problem is; `None` for everything else.
    pub(crate) fn failure(&self) -> Option<Failure> {
        Some(Failure {
            class: self.class?,
            message: self.message.clone(),
            fix: self.fix.clone(),
        })
    }
}

/// A pool of recycled pages.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RecycledPool {
    pub(crate) dir: PathBuf,
    pub(crate) page_size: u64,
    pub(crate) totals: Vec<TotalFacts>,
}

impl From<&Status> for RecycledPool {
    fn from(status: &Status) -> Self {
        Self {
            dir: status.path.clone(),
            page_size: status.page_size.bytes(),
            totals: status.totals.iter().map(Into::into).collect(),
        }
    }
}

/// Hugepages of one size, of the host or of one of its nodes, in pages.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PoolRow {
    pub(crate) page_size: u64,
    /// `None` for the whole host.
    pub(crate) node: Option<u32>,
    pub(crate) total: u64,
    pub(crate) free: u64,
    pub(crate) surplus: u64,
    /// Free pages that are promised to a mapping: counted for the whole host only.
    pub(crate) reserved: Option<u64>,
    /// What a new mapping can have; of a node only its free pages are known.
    pub(crate) available: Option<u64>,
}

impl PoolRow {
    /// Each of the host's pools, followed by the same of every node that has one.
    pub(crate) fn of(host: &Host) -> Vec<Self> {
        let mut rows = Vec::new();
        for pool in &host.pools {
            rows.push(Self {
                page_size: pool.page_size.bytes(),
                node: None,
                total: pool.total,
                free: pool.free,
                surplus: pool.surplus,
                reserved: Some(pool.reserved),
                available: Some(pool.available()),
            });
            let of_nodes = host
                .nodes
                .iter()
                .filter_map(|node| Some((node.id, node.pool(pool.page_size)?)));
            rows.extend(of_nodes.map(|(node, pool)| Self {
                page_size: pool.page_size.bytes(),
                node: Some(node),
                total: pool.total,
                free: pool.free,
                surplus: pool.surplus,
                reserved: None,
                available: None,
            }));
        }
        rows
    }
}
