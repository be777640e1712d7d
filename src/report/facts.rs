//! What the reports of several commands have in common: the host, the request, the planned memory.

use std::path::Path;

use prezero_host::Host;
use prezero_memory::{ByteSize, ClearExtents, IdSet, Origin, Plan, Policy, Prealloc, Request};
use serde::Serialize;

use crate::failure::{Failure, class_name};

#[derive(Clone, Debug, Serialize)]
pub(crate) struct HostFacts {
    kernel: String,
    cpu: String,
    hypervisor: bool,
    preempt: String,
    nodes: Vec<NodeFacts>,
}

#[derive(Clone, Debug, Serialize)]
struct NodeFacts {
    id: u32,
    cpus: Vec<u32>,
    pools: Vec<PoolFacts>,
}

#[derive(Clone, Debug, Serialize)]
struct PoolFacts {
    page_size: u64,
    total: u64,
    free: u64,
}

impl HostFacts {
    /// Whether there is more than one node to choose from.
    pub(crate) fn has_several_nodes(&self) -> bool {
        self.nodes.len() > 1
    }
}

impl From<&Host> for HostFacts {
    fn from(host: &Host) -> Self {
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
        Self {
            kernel: host.kernel.release.clone(),
            cpu: host.cpu.model.clone(),
            hypervisor: host.cpu.hypervisor,
            preempt: host.kernel.preempt.clone(),
            nodes: nodes.collect(),
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct RequestFacts {
    bytes: u64,
    prealloc: &'static str,
    clear: &'static str,
    /// The clearing method asked for.
    pub(crate) method: Option<String>,
}

impl From<&Request> for RequestFacts {
    fn from(request: &Request) -> Self {
        let zones = request.zones.iter();
        Self {
            bytes: zones.fold(0, |sum, zone| sum.saturating_add(zone.bytes)),
            prealloc: match request.prealloc {
                Prealloc::Eager => "eager",
                Prealloc::Off => "off",
            },
            clear: match request.clear {
                ClearExtents::Dirty => "auto",
                ClearExtents::All => "always",
            },
            method: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Region {
    gpa: u64,
    len: u64,
    page_size: u64,
    node: u32,
    nodes: Vec<u32>,
    policy: Option<&'static str>,
    /// On this node because the preferred ones are short.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    overflow: bool,
    backing: &'static str,
    origin: &'static str,
    cleared_by: &'static str,
}

impl Region {
    /// The planned regions, and who clears each before the guest starts.
    pub(crate) fn of(plan: &Plan) -> Vec<Self> {
        let regions = plan.extents().map(|extent| Self {
            gpa: extent.gpa(),
            len: extent.len().bytes(),
            page_size: extent.page_size().bytes(),
            node: extent.node(),
            nodes: extent.nodes().iter().collect(),
            policy: extent.policy().map(Policy::name),
            overflow: extent.overflow(),
            backing: extent.backing().name(),
            origin: extent.origin().name(),
            cleared_by: match (plan.clear(), extent.origin(), plan.prealloc()) {
                (ClearExtents::All, ..) => "user",
                (_, origin, _) if !origin.is_zero() => "user",
                (_, Origin::Clean, _) => "none",
                (_, _, Prealloc::Eager) => "kernel",
                (_, _, Prealloc::Off) => "none",
            },
        });
        regions.collect()
    }

    /// For people: segments of a pool that are alike are one region, however many they are.
    pub(crate) fn joined(regions: &[Self]) -> Vec<Self> {
        let mut joined: Vec<Self> = Vec::new();
        for region in regions {
            match joined.last_mut() {
                Some(last) if last.goes_on_as(region) => last.len += region.len,
                _ => joined.push(region.clone()),
            }
        }
        joined
    }

    fn goes_on_as(&self, next: &Self) -> bool {
        let after = Self {
            gpa: self.gpa + self.len,
            len: next.len,
            ..self.clone()
        };
        self.backing == "pool" && after == *next
    }

    /// One line for people.
    pub(crate) fn describe(&self) -> String {
        let size = ByteSize(self.len);
        let page = ByteSize(self.page_size);
        let what = match self.backing {
            "pool" => format!("{page} hugepages (pool, {})", self.origin),
            "thp" => {
                "ordinary memory, transparent hugepages where the kernel gives them".to_owned()
            }
            "base" => format!("ordinary memory on {page} pages"),
            backing => format!("{page} hugepages ({backing})"),
        };
        let (gpa, node) = (self.gpa, self.node);
        let nodes: IdSet = self.nodes.iter().copied().collect();
        let place = match self.policy {
            Some("interleave") if nodes.len() > 1 => format!("interleaved over nodes {nodes}"),
            Some("bind") => format!("bound to node {node}"),
            Some("preferred") if self.overflow => {
                format!("node {node} (the preferred ones are short)")
            }
            Some("preferred") => format!("node {node} (preferred)"),
            _ => format!("node {node}"),
        };
        let cleared = match (self.cleared_by, self.origin) {
            ("user", "fresh") => ", cleared by the kernel and once more",
            ("user", _) => ", cleared",
            _ => "",
        };
        format!("{size} at {gpa:#x} on {what}, {place}{cleared}")
    }

    /// Whether the planner chose the node.
    pub(crate) fn follows_free_pages(&self) -> bool {
        self.policy.is_none()
    }
}

/// What a guest has from a pool, and what besides.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PoolUse {
    pub(crate) dir: String,
    pub(crate) clean_segments: u64,
    pub(crate) dirty_segments: u64,
    pub(crate) clean_bytes: u64,
    pub(crate) dirty_bytes: u64,
    /// Of the guest's other memory.
    pub(crate) fresh_bytes: u64,
}

impl PoolUse {
    /// What a plan takes from the pool in `dir`; `None` if that is nothing.
    pub(crate) fn of(plan: &Plan, dir: &Path) -> Option<Self> {
        let bytes = |origin: Origin| -> u64 {
            let extents = plan.extents().filter(|extent| extent.origin() == origin);
            extents.map(|extent| extent.len().bytes()).sum()
        };
        let segments = |origin: Origin| {
            let extents = plan.extents().filter(|extent| extent.origin() == origin);
            // One segment may be on both sides of a hole.
            let mut segments: Vec<usize> = extents
                .filter_map(|extent| Some(extent.segment()?.0))
                .collect();
            segments.sort_unstable();
            segments.dedup();
            segments.len() as u64
        };
        let (clean, dirty) = (segments(Origin::Clean), segments(Origin::Dirty));
        (clean + dirty > 0).then(|| Self {
            dir: dir.display().to_string(),
            clean_segments: clean,
            dirty_segments: dirty,
            clean_bytes: bytes(Origin::Clean),
            dirty_bytes: bytes(Origin::Dirty),
            fresh_bytes: bytes(Origin::Fresh),
        })
    }

    /// For people: "2 clean segments (32 MiB) and 1 dirty segment (16 MiB) of DIR, 16 MiB fresh".
    pub(crate) fn describe(&self) -> String {
        let part = |segments: u64, state: &str, bytes: u64| {
            let plural = if segments == 1 { "" } else { "s" };
            let bytes = ByteSize(bytes);
            (segments > 0).then(|| format!("{segments} {state} segment{plural} ({bytes})"))
        };
        let clean = part(self.clean_segments, "clean", self.clean_bytes);
        let dirty = part(self.dirty_segments, "dirty", self.dirty_bytes);
        let parts: Vec<String> = clean.into_iter().chain(dirty).collect();
        let fresh = match self.fresh_bytes {
            0 => String::new(),
            bytes => format!(", {} fresh", ByteSize(bytes)),
        };
        format!("{} of {}{fresh}", parts.join(" and "), self.dir)
    }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Slot {
    slot: u32,
    gpa: u64,
    len: u64,
}

impl Slot {
    pub(crate) fn of(plan: &Plan) -> Vec<Self> {
        let slots = plan.slots().iter().map(|slot| Self {
            slot: slot.slot(),
            gpa: slot.gpa(),
            len: slot.len(),
        });
        slots.collect()
    }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct ErrorFacts {
    class: &'static str,
    message: String,
    fix: Option<String>,
}

impl From<&Failure> for ErrorFacts {
    fn from(failure: &Failure) -> Self {
        Self {
            class: class_name(failure.class),
            message: failure.message.clone(),
            fix: failure.fix.clone(),
        }
    }
}
