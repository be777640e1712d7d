//! Errors of mapping and registering memory, and the shape of an error that hands memory back.

use std::error::Error;
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use prezero_host::{Host, IdSet};

use crate::class::Class;
use crate::diagnosis::{self, Cause};
use crate::limits::LimitHit;
use crate::mapping::{MapFailure, MapStep};
use crate::plan::{Extent, PlanError, Shortage, SlotPlan};
use crate::policy::Policy;
use crate::populate::PopulateError;
use crate::register::SlotRange;
use crate::size::ByteSize;
use crate::sys;

/// An error together with the memory it happened to.
#[derive(Debug)]
pub struct Failed<M, E> {
    /// The memory, in the last state it was known to be in.
    pub ram: M,
    /// What happened.
    pub error: E,
}

impl<M, E: fmt::Display> fmt::Display for Failed<M, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<M: fmt::Debug, E: Error> Error for Failed<M, E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

/// Memory that a guest had cannot be used for another.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepopulateError {
    /// KVM did not remove a slot of it, so its guest may still write to it.
    #[error("KVM did not remove the memory's slots, and a guest may still write to it")]
    KnownToKvm,
    /// Part of it is still visible through a clone of its `GuestMemoryMmap`, and may be written to.
    #[error("A view of the guest's memory still exists")]
    Viewed,
    /// A page of it could not be populated again.
    #[error(transparent)]
    Populate(PopulateError),
}

/// Memory could not be mapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReserveError {
    /// A limit that the plan did not see, or that was used up since.
    #[error("{0}")]
    Limit(LimitHit),
    /// Fewer hugepages than the plan counted on: somebody else took them.
    #[error("{shortage}")]
    Short {
        /// Needed and available when it failed.
        shortage: Shortage,
        /// mmap(2)'s error.
        #[source]
        source: io::Error,
    },
    /// No file could be made on the hugetlbfs mount.
    #[error("No file can be created in {} by user {user}{}", .dir.display(), owned_by(.dir))]
    Create {
        /// The directory.
        dir: PathBuf,
        /// The user id that tried.
        user: u32,
        /// The refusal.
        #[source]
        source: io::Error,
    },
    /// A node that the plan was allowed is outside the process's cpuset now.
    #[error(transparent)]
    Node(PlanError),
    /// The memory policy was refused.
    #[error("{}{}", placing(*.policy, .nodes, *.bytes, *.gpa), refused(.source))]
    Bind {
        /// Bytes of the extent.
        bytes: u64,
        /// Its guest address.
        gpa: u64,
        /// The nodes.
        nodes: IdSet,
        /// How they were asked for.
        policy: Policy,
        /// The refusal.
        #[source]
        source: io::Error,
    },
    /// Anything else the kernel refuses.
    #[error("{step} for slot {slot}: {} at guest address {gpa:#x}", ByteSize(*.bytes))]
    Map {
        /// What was refused.
        step: MapStep,
        /// The slot.
        slot: u32,
        /// Bytes of the slot.
        bytes: u64,
        /// Its guest address.
        gpa: u64,
        /// The refusal.
        #[source]
        source: io::Error,
    },
}

fn placing(policy: Policy, nodes: &IdSet, bytes: u64, gpa: u64) -> String {
    let nodes = match nodes.len() {
        1 => format!("node {nodes}"),
        _ => format!("nodes {nodes}"),
    };
    let memory = format!("{} at guest address {gpa:#x}", ByteSize(bytes));
    match policy {
        Policy::Bind => format!("Binding {memory} to {nodes}"),
        Policy::Preferred => format!("Preferring {nodes} for {memory}"),
        Policy::Interleave => format!("Interleaving {memory} over {nodes}"),
    }
}

/// What a refusal of the calls themselves means, whatever the nodes.
fn refused(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::ENOSYS) => {
            ": mbind and set_mempolicy are refused here, by seccomp or for want of CAP_SYS_NICE"
        }
        _ => "",
    }
}

/// Who may create files there, if the directory tells.
fn owned_by(dir: &Path) -> String {
    let facts = std::fs::metadata(dir);
    facts.map_or(String::new(), |facts| {
        format!(
            " (owned by user {}, mode {:04o})",
            facts.uid(),
            facts.mode() & 0o7777
        )
    })
}

impl ReserveError {
    pub(crate) fn new(slot: &SlotPlan, failure: MapFailure) -> Self {
        let MapFailure {
            step,
            extent,
            source,
        } = failure;
        let errno = source.raw_os_error();
        let other = |source| Self::Map {
            step,
            slot: slot.slot(),
            bytes: slot.len(),
            gpa: slot.gpa(),
            source,
        };
        match (step, extent, slot.dir()) {
            (MapStep::Bind, Some(extent), _) => Self::policy(&extent, source),
            (MapStep::Map, Some(extent), dir)
                if extent.backing().is_hugetlb() && errno == Some(libc::ENOMEM) =>
            {
                match diagnosis::of_mapping(&Host::probe(), &extent, dir) {
                    Some(Cause::Limit(hit)) => Self::Limit(hit),
                    Some(Cause::Short(shortage)) => Self::Short { shortage, source },
                    None => other(source),
                }
            }
            (MapStep::File, _, Some(dir)) => Self::create(dir, source),
            _ => other(source),
        }
    }

    /// EINVAL says "no such node" for one outside the cpuset too.
    pub(crate) fn policy(extent: &Extent, source: io::Error) -> Self {
        if source.raw_os_error() == Some(libc::EINVAL)
            && let Some(error) = diagnosis::of_nodes(&Host::probe(), extent.nodes())
        {
            return Self::Node(error);
        }
        Self::Bind {
            bytes: extent.len().bytes(),
            gpa: extent.gpa(),
            nodes: extent.nodes().clone(),
            policy: extent.policy().unwrap_or_default(),
            source,
        }
    }

    pub(crate) fn create(dir: &Path, source: io::Error) -> Self {
        Self::Create {
            dir: dir.to_owned(),
            user: sys::user(),
            source,
        }
    }

    /// Whether ordinary memory would have been possible.
    #[must_use]
    pub fn is_about_hugepages(&self) -> bool {
        matches!(self, Self::Limit(_) | Self::Short { .. })
    }

    /// What kind of error it is.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Limit(_) | Self::Short { .. } => Class::Shortage,
            Self::Bind { .. } => Class::Host,
            Self::Node(error) => error.class(),
            Self::Create { source, .. }
                if matches!(source.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) =>
            {
                Class::Usage
            }
            Self::Create { source, .. } | Self::Map { source, .. } => match source.raw_os_error() {
                Some(libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::ENOSPC) => Class::Shortage,
                Some(
                    libc::EPERM
                    | libc::EACCES
                    | libc::ENOSYS
                    | libc::EINVAL
                    | libc::EROFS
                    | libc::EMEDIUMTYPE
                    | libc::EOPNOTSUPP,
                ) => Class::Host,
                _ => Class::Internal,
            },
        }
    }

    /// What to type.
    #[must_use]
    pub fn fix(&self) -> Option<String> {
        Some(match self {
            Self::Limit(hit) => hit.fix(),
            Self::Short { shortage, .. } => shortage.fix(),
            Self::Node(error) => return error.fix(),
            Self::Create { dir, user, source } => match source.raw_os_error() {
                Some(libc::ENOENT) => format!("mkdir {}", dir.display()),
                Some(libc::ENOTDIR) => match dir.parent() {
                    Some(parent) => format!("path={}", parent.display()),
                    None => return None,
                },
                Some(libc::EACCES | libc::EPERM) => format!(
                    "leave path out: a memfd needs no mount; or: sudo chown {user} {}",
                    dir.display()
                ),
                Some(libc::EMFILE | libc::ENFILE) => "ulimit -n 1024".to_owned(),
                _ => format!(
                    "leave path out: a memfd needs no mount; or see what is there: findmnt -T {}",
                    dir.display()
                ),
            },
            Self::Bind { source, .. } => match source.raw_os_error() {
                Some(libc::EPERM | libc::ENOSYS) => {
                    "leave the nodes out, or allow mbind and set_mempolicy (CAP_SYS_NICE and the seccomp profile of the container, such as docker run --cap-add SYS_NICE)".to_owned()
                }
                _ => "grep Mems_allowed_list /proc/self/status, and cpuset.mems of this process's cgroup".to_owned(),
            },
            Self::Map { source, .. } => match source.raw_os_error() {
                Some(libc::EMFILE | libc::ENFILE) => "ulimit -n 1024".to_owned(),
                Some(libc::ENOMEM) => "a smaller size=, or ulimit -v unlimited".to_owned(),
                _ => return None,
            },
        })
    }
}

/// A slot that was refused.
#[derive(Debug, thiserror::Error)]
#[error("Guest memory was not registered: {range}")]
pub struct RegisterError<E: std::error::Error + 'static> {
    /// The slot.
    pub range: SlotRange,
    /// The registrar's reason.
    #[source]
    pub source: E,
}
