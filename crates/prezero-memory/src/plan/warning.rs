//! What the planner chose that the user may not expect.

use std::fmt;

use prezero_host::{IdSet, PageSize};

use super::PlanError;

/// Something the planner chose that the user may not expect.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanWarning {
    /// `hugepages=auto` and too few hugepages: ordinary memory is used.
    Ordinary {
        /// What hugepages would have needed.
        shortage: Box<PlanError>,
    },
    /// Fewer threads asked for than nodes with work; every node gets one.
    ThreadsRaised {
        /// Threads asked for.
        asked: usize,
        /// Threads planned.
        planned: usize,
    },
    /// The preferred nodes have too few pages: the nearest other nodes give the rest.
    Overflow {
        /// The nodes asked for.
        preferred: IdSet,
        /// The page size.
        page: PageSize,
        /// Pages of the zone.
        pages: u64,
        /// Pages that are on other nodes.
        beyond: u64,
        /// Those nodes.
        on: IdSet,
    },
    /// Memory of a node is populated from another node's CPUs.
    RemoteWorkers {
        /// The node without usable CPUs.
        node: u32,
    },
    /// Memory bound to a node and not populated: pages that others take first are missing when the
    /// guest touches them, which is a SIGBUS.
    BoundOnTouch {
        /// The node.
        node: u32,
    },
    /// The host does not say which CPUs belong to which node.
    Unpinned,
}

impl fmt::Display for PlanWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ordinary { shortage } => {
                write!(f, "Using ordinary memory instead of hugepages: {shortage}")?;
                let fix = match **shortage {
                    PlanError::NoHugepages => None,
                    _ => shortage.fix(),
                };
                fix.map_or(Ok(()), |fix| write!(f, " (for hugepages: {fix})"))
            }
            Self::ThreadsRaised { asked, planned } => write!(
                f,
                "{asked} threads asked for, {planned} used: one for each node with memory"
            ),
            Self::Overflow {
                preferred,
                page,
                pages,
                beyond,
                on,
            } => {
                let (of, has) = match preferred.len() {
                    1 => ("node", "has"),
                    _ => ("nodes", "have"),
                };
                let there = pages.saturating_sub(*beyond);
                let where_to = if on.len() == 1 { "node" } else { "nodes" };
                write!(
                    f,
                    "The preferred {of} {preferred} {has} {there} of {pages} pages of {page}: {beyond} are on {where_to} {on}"
                )
            }
            Self::RemoteWorkers { node } => write!(
                f,
                "Node {node} has no CPU this process may use: another node's CPUs populate it (remote)"
            ),
            Self::BoundOnTouch { node } => write!(
                f,
                "Memory bound to node {node} is not populated, and the kernel promises pages of the host, not of a node: if others take node {node}'s, the guest dies when it touches its memory (populate it: --prealloc)"
            ),
            Self::Unpinned => {
                f.write_str("This host does not show its NUMA topology: workers are not pinned")
            }
        }
    }
}
