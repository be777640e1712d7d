//! Why a request cannot be planned on a host.

use std::path::{Path, PathBuf};

use prezero_host::{IdSet, PageSize};

use super::shortage::{NodesShortage, Shortage};
use crate::class::Class;
use crate::layout::LayoutError;
use crate::limits::LimitHit;
use crate::size::ByteSize;
use crate::spec::MemorySpec;

/// Why a request cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// No zone at all.
    #[error("No guest memory was asked for")]
    Nothing,
    /// A size that no page size of the host divides, or not the one asked for.
    #[error("The size of {what} is not a multiple of {page}")]
    NotWholePages {
        /// The zone.
        what: String,
        /// The page size.
        page: PageSize,
        /// The nearest smaller size, in bytes.
        below: Option<u64>,
        /// The nearest larger size, in bytes.
        above: Option<u64>,
    },
    /// A slot that is empty, not of whole pages, or ends beyond the address space.
    #[error("A slot of {} at guest address {gpa:#x} is not a run of 4 KiB pages", ByteSize(*.bytes))]
    OddSlot {
        /// Guest address.
        gpa: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// No place in the guest's address space.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A hugepage size that this host does not have.
    #[error("This host has no hugepages of {page}; it has {}", if .offered.is_empty() { "none" } else { .offered.as_str() })]
    PageSizeMissing {
        /// The page size asked for.
        page: PageSize,
        /// The sizes there are.
        offered: String,
    },
    /// A kernel without hugetlb pages.
    #[error("This host's kernel offers no hugepages")]
    NoHugepages,
    /// Too few hugepages.
    #[error("{0}")]
    Short(Shortage),
    /// Too few hugepages on the nodes that share a zone.
    #[error("{0}")]
    ShortNodes(NodesShortage),
    /// A limit below what the pools could give.
    #[error("{0}")]
    Limit(LimitHit),
    /// A `path=` that is not on hugetlbfs. Nothing is created there.
    #[error("{} is not on a hugetlbfs mount; {}", .path.display(), list_mounts(.mounts))]
    NotHugetlbfs {
        /// The path.
        path: PathBuf,
        /// The hugetlbfs mounts there are.
        mounts: Vec<PathBuf>,
    },
    /// A hugetlbfs mount on which nothing can be created.
    #[error("The hugetlbfs mount {} is read-only", .0.display())]
    ReadOnlyMount(PathBuf),
    /// A page size that the mount does not have.
    #[error("The hugetlbfs mount {} has pages of {page}, {asked} were asked for", .path.display())]
    MountPageSize {
        /// The mount.
        path: PathBuf,
        /// Its page size.
        page: PageSize,
        /// The one asked for.
        asked: PageSize,
    },
    /// Two zones with one name.
    #[error("Two memory zones have the id '{0}'")]
    DuplicateId(String),
    /// Too little ordinary memory to populate.
    #[error("Populating takes {} of ordinary memory, and {} is available (MemAvailable)", ByteSize(*.needed), ByteSize(*.available))]
    ShortOfMemory {
        /// Bytes needed.
        needed: u64,
        /// Bytes the kernel says can be had without swapping.
        available: u64,
        /// Why it is not hugepages, with `hugepages=auto`.
        #[source]
        instead_of: Option<Box<PlanError>>,
    },
    /// A node that is not there.
    #[error("There is no NUMA node {node}; the nodes with memory are {valid}")]
    NoSuchNode {
        /// The node asked for.
        node: u32,
        /// Nodes with memory.
        valid: IdSet,
    },
    /// A node that has CPUs only.
    #[error("NUMA node {node} has no memory; the nodes with memory are {valid}")]
    NodeWithoutMemory {
        /// The node asked for.
        node: u32,
        /// Nodes with memory.
        valid: IdSet,
    },
    /// A node outside the process's cpuset.
    #[error("Node {node} is not in this process's allowed memory nodes ({allowed}){}", set_by(.file.as_deref()))]
    NodeNotAllowed {
        /// The node asked for.
        node: u32,
        /// `Mems_allowed_list` of /proc/self/status.
        allowed: IdSet,
        /// The `cpuset.mems` that leaves it out, if it is shown.
        file: Option<PathBuf>,
    },
    /// A kernel without `MADV_POPULATE_WRITE`.
    #[error("Linux {release} has no MADV_POPULATE_WRITE; populating needs 5.14 or later")]
    KernelTooOld {
        /// The running kernel.
        release: String,
    },
    /// A CPU list that leaves no CPU.
    #[error("None of the CPUs {asked} is in this process's affinity mask ({allowed})")]
    NoCpu {
        /// The list.
        asked: IdSet,
        /// `Cpus_allowed_list` of /proc/self/status.
        allowed: IdSet,
    },
    /// Zero threads.
    #[error("Populating takes at least one thread")]
    NoThreads,
    /// Clearing all memory without populating it: its pages do not exist yet.
    #[error("All memory is to be cleared, but not populated")]
    ClearUnpopulated,
}

fn set_by(file: Option<&Path>) -> String {
    file.map_or(String::new(), |file| format!(", set by {}", file.display()))
}

fn list_mounts(mounts: &[PathBuf]) -> String {
    let names: Vec<String> = mounts
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    match names.is_empty() {
        true => "this host has none".to_owned(),
        false => format!("there is one at {}", names.join(", ")),
    }
}

impl PlanError {
    /// The same error, with the one that made hugepages impossible behind it.
    pub(crate) fn after(mut self, earlier: Option<Self>) -> Self {
        if let Self::ShortOfMemory { instead_of, .. } = &mut self {
            *instead_of = earlier.map(Box::new);
        }
        self
    }

    /// Whether `hugepages=auto` may use ordinary memory instead: not where the user asked for
    /// something in so many words that no host has.
    pub(crate) fn would_help_elsewhere(&self, spec: &MemorySpec) -> bool {
        match self {
            Self::Short(_)
            | Self::ShortNodes(_)
            | Self::Limit(_)
            | Self::NoHugepages
            | Self::PageSizeMissing { .. } => true,
            Self::NotWholePages { .. } => spec.hugepage_size.is_none() && spec.path.is_none(),
            _ => false,
        }
    }

    /// What kind of error it is.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Nothing
            | Self::NotWholePages { .. }
            | Self::OddSlot { .. }
            | Self::Layout(_)
            | Self::NoSuchNode { .. }
            | Self::NodeWithoutMemory { .. }
            | Self::NoCpu { .. }
            | Self::NotHugetlbfs { .. }
            | Self::MountPageSize { .. }
            | Self::DuplicateId(_)
            | Self::NoThreads
            | Self::ClearUnpopulated => Class::Usage,
            Self::Short(_) | Self::ShortNodes(_) | Self::Limit(_) | Self::ShortOfMemory { .. } => {
                Class::Shortage
            }
            Self::PageSizeMissing { .. }
            | Self::NoHugepages
            | Self::NodeNotAllowed { .. }
            | Self::ReadOnlyMount(_)
            | Self::KernelTooOld { .. } => Class::Host,
        }
    }

    /// What to type instead, or first.
    #[must_use]
    pub fn fix(&self) -> Option<String> {
        let spec = |bytes: u64| format!("size={}", ByteSize(bytes).to_spec());
        Some(match self {
            Self::Nothing => "--memory 1G".to_owned(),
            Self::NotWholePages { below, above, .. } => match (below, above) {
                (Some(below), Some(above)) => format!("{} or {}", spec(*below), spec(*above)),
                (Some(only), None) | (None, Some(only)) => spec(*only),
                (None, None) => return None,
            },
            Self::OddSlot { .. } => return None,
            Self::Layout(LayoutError::BeyondAddressBits { max, .. }) => {
                format!("{} or less", spec(*max))
            }
            Self::Layout(LayoutError::PageAboveHole { .. }) => "hugepage_size=1G".to_owned(),
            Self::PageSizeMissing { page, .. } => format!(
                "leave hugepage_size out, or boot with hugepagesz={} hugepages=N",
                ByteSize(page.bytes()).to_spec()
            ),
            Self::NoHugepages => "hugepages=off".to_owned(),
            Self::Short(shortage) => shortage.fix(),
            Self::ShortNodes(shortage) => shortage.fix(),
            Self::Limit(hit) => hit.fix(),
            Self::NotHugetlbfs { mounts, .. } => match mounts.first() {
                Some(mount) => format!("path={}, or leave path out: a memfd needs no mount", mount.display()),
                None => "leave path out: a memfd needs no mount; or: sudo mkdir -p /dev/hugepages && sudo mount -t hugetlbfs none /dev/hugepages".to_owned(),
            },
            Self::ReadOnlyMount(path) => {
                format!("sudo mount -o remount,rw {}, or leave path out: a memfd needs no mount", path.display())
            }
            Self::MountPageSize { page, .. } => {
                let size = ByteSize(page.bytes()).to_spec();
                format!("hugepage_size={size}, or a path on a mount of the other size")
            }
            Self::DuplicateId(id) => format!("id={id}-2 for one of them"),
            Self::ShortOfMemory { available, .. } => {
                let mib = (available >> 20).max(1);
                format!("size={mib}M or less, or leave --prealloc out")
            }
            Self::NoSuchNode { valid, .. } | Self::NodeWithoutMemory { valid, .. } => {
                format!("host_numa_node={}", valid.first().unwrap_or(0))
            }
            Self::NodeNotAllowed {
                node,
                allowed,
                file,
            } => {
                let first = allowed.first().unwrap_or(0);
                let with: IdSet = allowed.iter().chain([*node]).collect();
                match file {
                    Some(file) => format!(
                        "host_numa_node={first}, or: echo {with} | sudo tee {}",
                        file.display()
                    ),
                    None => format!(
                        "host_numa_node={first}, or add node {node} to cpuset.mems of this process's cgroup (cat /proc/self/cgroup)"
                    ),
                }
            }
            Self::KernelTooOld { .. } => "leave --prealloc out, or boot Linux 5.14+".to_owned(),
            Self::NoCpu { allowed, .. } => format!("choose among {allowed}"),
            Self::NoThreads => "--threads 1".to_owned(),
            Self::ClearUnpopulated => "--prealloc --clear always".to_owned(),
        })
    }
}
