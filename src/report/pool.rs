//! The reports of `prezero pool` as data: schemas `prezero/pool-create/1` and `prezero/pool-status/1`. Sizes are bytes,
//! times nanoseconds.

use std::path::PathBuf;

use prezero_host::HugetlbCharge;
use prezero_memory::pool::{Created, Holder, Problem, ProblemKind, Segment, Status, Total, Use};
use serde::Serialize;

use super::facts::ErrorFacts;
use super::run::nanoseconds;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct CreateReport {
    pub(crate) schema: &'static str,
    pub(crate) version: &'static str,
    pub(crate) pool: Option<PathBuf>,
    pub(crate) page_size: Option<u64>,
    /// The length of a segment.
    pub(crate) segment_bytes: Option<u64>,
    /// Whether dirty segments may only be exchanged.
    pub(crate) exchange_only: bool,
    pub(crate) added: Count,
    /// Segments that were not published, because pages were on another node.
    pub(crate) misplaced: Vec<Misplaced>,
    pub(crate) workers: usize,
    pub(crate) ns: u64,
    /// What there is now.
    pub(crate) totals: Vec<TotalFacts>,
    /// The cgroup that the new pages are charged to; null where that is the root, which counts nothing.
    pub(crate) cgroup: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<ErrorFacts>,
}

/// Segments, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Count {
    pub(crate) segments: u64,
    pub(crate) bytes: u64,
}

impl Count {
    pub(crate) fn of(segments: u64, each: u64) -> Self {
        let bytes = segments.saturating_mul(each);
        Self { segments, bytes }
    }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Misplaced {
    pub(crate) node: u32,
    pub(crate) segments: u64,
}

/// The segments of one length on one node.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TotalFacts {
    pub(crate) node: u32,
    pub(crate) segment_bytes: u64,
    pub(crate) clean: Count,
    pub(crate) dirty: Count,
    pub(crate) leased: Count,
    pub(crate) retired: Count,
    pub(crate) incomplete: Count,
}

impl From<&Total> for TotalFacts {
    fn from(total: &Total) -> Self {
        let count = |segments| Count::of(segments, total.bytes);
        Self {
            node: total.node,
            segment_bytes: total.bytes,
            clean: count(total.clean),
            dirty: count(total.dirty),
            leased: count(total.leased),
            retired: count(total.retired),
            incomplete: count(total.incomplete),
        }
    }
}

impl CreateReport {
    pub(crate) fn new() -> Self {
        Self {
            schema: "prezero/pool-create/1",
            version: env!("CARGO_PKG_VERSION"),
            pool: None,
            page_size: None,
            segment_bytes: None,
            exchange_only: false,
            added: Count::default(),
            misplaced: Vec::new(),
            workers: 0,
            ns: 0,
            totals: Vec::new(),
            cgroup: None,
            error: None,
        }
    }

    pub(crate) fn set_created(&mut self, created: &Created) {
        self.added = Count {
            segments: created.segments,
            bytes: created.bytes,
        };
        let misplaced = created.misplaced.iter();
        self.misplaced = misplaced
            .map(|&(node, segments)| Misplaced { node, segments })
            .collect();
        self.workers = created.workers;
        self.ns = nanoseconds(created.time);
    }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct StatusReport {
    pub(crate) schema: &'static str,
    pub(crate) version: &'static str,
    pub(crate) pool: Option<PathBuf>,
    pub(crate) page_size: Option<u64>,
    /// Whether dirty segments may only be exchanged.
    pub(crate) exchange_only: bool,
    pub(crate) totals: Vec<TotalFacts>,
    pub(crate) segments: Vec<SegmentFacts>,
    pub(crate) problems: Vec<ProblemFacts>,
    /// The cgroups that hugepages of this size are charged to, the pool's and all others.
    pub(crate) charges: Vec<Charge>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<ErrorFacts>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct SegmentFacts {
    pub(crate) node: u32,
    pub(crate) bytes: u64,
    /// `clean`, `dirty` or `retired`: what its name says.
    pub(crate) state: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) leased: bool,
    /// As far as this user may see them.
    pub(crate) holders: Vec<HolderFacts>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct HolderFacts {
    pub(crate) pid: u32,
    pub(crate) comm: String,
}

impl From<&Holder> for HolderFacts {
    fn from(holder: &Holder) -> Self {
        Self {
            pid: holder.pid,
            comm: holder.comm.clone(),
        }
    }
}

/// Something that is left alone.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ProblemFacts {
    pub(crate) path: PathBuf,
    pub(crate) kind: &'static str,
    pub(crate) message: String,
    /// What to type, where that is all it takes.
    pub(crate) fix: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Charge {
    pub(crate) cgroup: PathBuf,
    pub(crate) bytes: u64,
}

impl From<&Segment> for SegmentFacts {
    fn from(segment: &Segment) -> Self {
        let holders = match &segment.usage {
            Use::Free => &[][..],
            Use::Leased { holders } => holders,
        };
        Self {
            node: segment.node,
            bytes: segment.name.bytes,
            state: segment.name.state.name(),
            path: segment.path.clone(),
            leased: segment.usage != Use::Free,
            holders: holders.iter().map(Into::into).collect(),
        }
    }
}

impl From<&Problem> for ProblemFacts {
    fn from(problem: &Problem) -> Self {
        Self {
            path: problem.path.clone(),
            kind: match problem.kind {
                ProblemKind::UnknownName => "unknown-name",
                ProblemKind::NotAFile => "not-a-file",
                ProblemKind::Owner { .. } => "owner",
                ProblemKind::OtherMount => "other-mount",
                ProblemKind::Open { .. } => "open",
                ProblemKind::NoSuchNode { .. } => "no-such-node",
                ProblemKind::Mode { .. } => "mode",
                ProblemKind::Linked { .. } => "linked",
                ProblemKind::SameId { .. } => "same-id",
                ProblemKind::Length { .. } => "length",
                ProblemKind::Holes { .. } => "holes",
                ProblemKind::Unreadable { .. } => "unreadable",
                _ => "other",
            },
            message: problem.to_string(),
            fix: problem.fix(),
        }
    }
}

impl From<&HugetlbCharge> for Charge {
    fn from(charge: &HugetlbCharge) -> Self {
        Self {
            cgroup: charge.cgroup.clone(),
            bytes: charge.bytes,
        }
    }
}

impl StatusReport {
    pub(crate) fn new() -> Self {
        Self {
            schema: "prezero/pool-status/1",
            version: env!("CARGO_PKG_VERSION"),
            pool: None,
            page_size: None,
            exchange_only: false,
            totals: Vec::new(),
            segments: Vec::new(),
            problems: Vec::new(),
            charges: Vec::new(),
            error: None,
        }
    }

    pub(crate) fn set_status(&mut self, status: &Status) {
        self.page_size = Some(status.page_size.bytes());
        self.exchange_only = status.exchange_only;
        self.totals = status.totals.iter().map(Into::into).collect();
        self.segments = status.segments.iter().map(Into::into).collect();
        self.problems = status.problems.iter().map(Into::into).collect();
    }
}
