//! The RAM of a virtual machine on hugepages: planned, populated in parallel, zero by construction.
//!
//! ```text
//! MemorySpec ─┐
//!             ├─ plan ─▶ Plan ─ reserve ─▶ GuestRam<Reserved> ─ populate ─▶ GuestRam<Populated>
//! Host ───────┘                                                                       │ clear
//! GuestRam<Registered> ◀─ register ─ GuestRam<Zeroed> ◀─ check_placement ─ GuestRam<Cleared>
//! ```
//!
//! * [`plan`] is a pure function; everything that can be refused is refused there, with numbers.
//! * [`GuestRam::reserve`] maps each KVM slot as one host address range. The kernel promises the
//!   hugepages (of the host's pool: a node's pages and a cgroup's limit it does not), and nothing is
//!   faulted in.
//! * [`GuestRam::populate`] has the kernel clear every page, on all CPUs of the node it belongs to.
//! * [`GuestRam::clear`] clears what is not known to be zero, with the stores that are fastest on this
//!   machine, and touches nothing that is fresh.
//! * Only [`GuestRam<Zeroed>`](Zeroed) can be registered with KVM.
//!
//! ```
//! use prezero_host::Host;
//! use prezero_memory::{ClearRequest, Control, GuestRam, Prealloc, Request, Workers, plan};
//!
//! let request = Request {
//!     zones: vec!["size=64M".parse()?],
//!     prealloc: Prealloc::Eager,
//!     ..Request::default()
//! };
//! let plan = plan(&Host::probe(), &request)?;
//! let workers = Workers::start(plan.workers())?;
//! let ram = GuestRam::reserve(&plan)?;
//! let (ram, report) = ram.populate(&workers, &Control::default()).map_err(|failed| failed.error)?;
//! let (ram, cleared) = ram
//!     .clear(&workers, &ClearRequest::default(), &Control::default())
//!     .map_err(|failed| failed.error)?;
//! drop(workers);
//! assert_eq!(cleared.bytes, 0); // all of it is fresh
//! let (ram, placement) = ram.check_placement(&Control::default()).map_err(|failed| failed.error)?;
//! assert_eq!((report.bytes, placement.misplaced_pages), (64 << 20, 0));
//! for slot in ram.slots() {
//!     println!("guest {:#x}, {} bytes at host {:#x}", slot.gpa, slot.len, slot.hva);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The crate installs no signal handler, reads no environment variable, has no global state, and
//! leaves the caller's CPU mask and memory policy as they are.

#[cfg(feature = "vm-memory")]
mod adapter;
mod class;
mod clear;
#[cfg(doctest)]
mod compile_fail;
mod control;
mod diagnosis;
mod error;
mod features;
mod growth;
mod layout;
mod limits;
mod mapping;
mod placement;
mod plan;
mod policy;
pub mod pool;
mod populate;
mod ram;
mod register;
mod size;
mod spec;
mod sys;
mod work;
mod workers;

pub use prezero_clear::{Method, MethodError, Unaccounted};
pub use prezero_host::{Host, IdSet, PageSize};

#[cfg(feature = "vm-memory")]
pub use crate::adapter::{GuestMemory, Owned};
pub use crate::class::Class;
pub use crate::clear::{
    Calibrating, Calibration, ChosenMethod, ClearError, ClearReport, ClearRequest, MethodChoice,
    Reason, Trial, clear,
};
pub use crate::control::{Cancel, Control, NodeProgress, OnStall, Progress, Stall, StoppedBy};
pub use crate::error::{Failed, RegisterError, RepopulateError, ReserveError};
pub use crate::features::{Feature, Features};
pub use crate::growth::{GrowError, Grown, Growth, LeftPages, Leftover, PoolNeed, leftovers};
pub use crate::layout::{Layout, LayoutError, MAX_SLOT_BYTES};
pub use crate::limits::{LimitHit, LimitKind};
pub use crate::mapping::MapStep;
pub use crate::placement::{CheckedBy, Placement, PlacementError};
pub use crate::plan::{
    Backing, ClearExtents, Extent, NodePages, NodeWork, NodesShortage, Origin, Plan, PlanError,
    PlanWarning, Prealloc, Recycled, Request, Shortage, SlotPlan, WorkerPlan, plan, plan_workers,
};
pub use crate::policy::{NodeChoice, Policy};
pub use crate::populate::{PopulateError, PopulateReport, populate};
pub use crate::ram::{
    Cleared, Dirty, ExtentView, GuestRam, Populated, RegisterFailure, Registered, Reserved, State,
    Zeroed,
};
pub use crate::register::{SlotRange, SlotRegistrar};
pub use crate::size::{ByteSize, PageBytes, SizeError, parse_size};
pub use crate::spec::{Hugepages, MemorySpec, SPEC_KEYS, SpecError};
pub use crate::work::{Target, WorkerReport};
pub use crate::workers::{Spawner, StartError, ThreadBody, Workers};
