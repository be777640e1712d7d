//! What will be mapped where, and who populates it: a pure function of host facts and a request.
//!
//! [`plan`] makes no system call. Everything that can be refused is refused here, with numbers,
//! before a page is touched.

mod apportion;
mod availability;
mod build;
mod error;
mod extent;
mod nodes;
mod pages;
mod shortage;
mod supply;
mod warning;
mod workers;

use std::path::{Path, PathBuf};

use prezero_host::{IdSet, PageSize};

pub(crate) use self::availability::Available;
pub use self::build::plan;
pub use self::error::PlanError;
pub use self::extent::Extent;
pub use self::shortage::{NodePages, NodesShortage, Shortage};
pub use self::warning::PlanWarning;
pub use self::workers::{NodeWork, WorkerPlan, plan_workers};
use crate::layout::Layout;
use crate::size::PageBytes;
use crate::spec::MemorySpec;

/// When guest memory is populated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prealloc {
    /// All of it, by all workers, before KVM sees it.
    Eager,
    /// On the guest's first touch of each page, by the kernel.
    #[default]
    Off,
}

/// Which memory is cleared with our own stores before KVM sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClearExtents {
    /// What is not known to be zero.
    #[default]
    Dirty,
    /// Fresh memory too, which the kernel has cleared already: for measuring, and for the cautious.
    All,
}

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The zones of guest memory, lowest guest addresses first.
    pub zones: Vec<MemorySpec>,
    /// When it is populated.
    pub prealloc: Prealloc,
    /// Segments of pools that the guest may get in place of fresh pages; those that suit are taken in
    /// this order, each only as a whole.
    pub recycled: Vec<Recycled>,
    /// Which memory is cleared; only what is populated can be.
    pub clear: ClearExtents,
    /// Populating threads in all; without it one per usable CPU of every node with memory.
    pub threads: Option<usize>,
    /// CPUs the threads may use, next to the process's own affinity mask.
    pub cpus: Option<IdSet>,
    /// Where RAM may be in the guest's address space; [`Layout::x86_64`] of the host's CPU if `None`.
    pub layout: Option<Layout>,
    /// KVM's number of the first slot; the others follow.
    pub first_slot: u32,
}

/// A segment of a pool that a guest may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recycled {
    /// Its length.
    pub len: PageBytes,
    /// The node its pages are on.
    pub node: u32,
    /// What is in it.
    pub origin: Origin,
}

/// What a piece of memory is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backing {
    /// Pages of a hugetlb pool, through a memfd (memfd_create(2), `MFD_HUGETLB`).
    Memfd,
    /// Pages of a hugetlb pool, through a nameless file on a hugetlbfs mount (open(2), `O_TMPFILE`).
    Hugetlbfs,
    /// Pages of a hugetlb pool that stay in a file from guest to guest ([`crate::pool`]).
    Pool,
    /// Private anonymous memory with `MADV_HUGEPAGE` (transparent hugepages, no promise).
    Thp,
    /// Private anonymous memory on base pages.
    Base,
}

impl Backing {
    /// Whether its pages come from a hugetlb pool.
    #[must_use]
    pub fn is_hugetlb(self) -> bool {
        matches!(self, Self::Memfd | Self::Hugetlbfs | Self::Pool)
    }

    /// The word used in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Memfd => "memfd",
            Self::Hugetlbfs => "hugetlbfs",
            Self::Pool => "pool",
            Self::Thp => "thp",
            Self::Base => "base",
        }
    }
}

/// What is known about the contents of memory before prezero works on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// New from the kernel, which clears every page at its first fault.
    Fresh,
    /// Recycled and scrubbed: a segment of a [`crate::pool`] that was cleared and not used since.
    Clean,
    /// Unknown: a guest, or anybody else, may have written to it. It has to be cleared.
    Dirty,
}

impl Origin {
    /// Whether it reads as zero once it is populated.
    #[must_use]
    pub fn is_zero(self) -> bool {
        match self {
            Self::Fresh | Self::Clean => true,
            Self::Dirty => false,
        }
    }

    /// The word used in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Clean => "clean",
            Self::Dirty => "dirty",
        }
    }
}

/// One KVM memory slot: a guest-physical range and the extents that fill it, side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotPlan {
    slot: u32,
    zone: usize,
    gpa: u64,
    len: u64,
    align: PageSize,
    dir: Option<PathBuf>,
    extents: Vec<Extent>,
}

impl SlotPlan {
    /// KVM's number of the slot.
    #[must_use]
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// The zone it is part of, as its place in [`Request::zones`].
    #[must_use]
    pub fn zone(&self) -> usize {
        self.zone
    }

    /// First guest-physical address.
    #[must_use]
    pub fn gpa(&self) -> u64 {
        self.gpa
    }

    /// Length in bytes: the sum of its extents.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Never true: a plan holds no empty slot.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Host and guest addresses of the slot are equal modulo this, so that KVM can map whole pages.
    #[must_use]
    pub fn align(&self) -> PageSize {
        self.align
    }

    /// The directory on a hugetlbfs mount where its files are made, for [`Backing::Hugetlbfs`].
    #[must_use]
    pub fn dir(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    /// The extents, lowest address first, without gaps.
    #[must_use]
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }
}

/// A plan that the host can carry out as far as its facts tell. Made by [`plan`] only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    bytes: u64,
    prealloc: Prealloc,
    clear: ClearExtents,
    slots: Vec<SlotPlan>,
    workers: Vec<WorkerPlan>,
    warnings: Vec<PlanWarning>,
}

impl Plan {
    /// Guest memory in all, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// When it is populated.
    #[must_use]
    pub fn prealloc(&self) -> Prealloc {
        self.prealloc
    }

    /// Which memory is cleared.
    #[must_use]
    pub fn clear(&self) -> ClearExtents {
        self.clear
    }

    /// The KVM slots, lowest guest address first.
    #[must_use]
    pub fn slots(&self) -> &[SlotPlan] {
        &self.slots
    }

    /// Every extent of every slot, lowest guest address first.
    pub fn extents(&self) -> impl Iterator<Item = &Extent> {
        self.slots.iter().flat_map(|slot| &slot.extents)
    }

    /// The threads that populate and clear; with [`Prealloc::Off`] only for segments of pools.
    #[must_use]
    pub fn workers(&self) -> &[WorkerPlan] {
        &self.workers
    }

    /// Whether nothing of it has to be there before the guest starts.
    fn is_left_to_the_guest(&self, extent: &Extent) -> bool {
        self.prealloc == Prealloc::Off && extent.origin() == Origin::Fresh
    }

    /// What there is to do on each node, for [`plan_workers`] with other numbers of threads.
    #[must_use]
    pub fn work(&self) -> Vec<NodeWork> {
        let mut work: Vec<NodeWork> = Vec::new();
        let extents = self
            .extents()
            .filter(|extent| !self.is_left_to_the_guest(extent));
        for (node, len) in extents.flat_map(Extent::shares) {
            let bytes = len.bytes();
            // Ordinary memory is populated 2 MiB at a time at least.
            let unit = len.page_size().max(PageSize::HUGE_2M);
            let pages = bytes.div_ceil(unit.bytes());
            match work.iter_mut().find(|work| work.node == node) {
                Some(work) => {
                    work.bytes += bytes;
                    work.pages += pages;
                }
                None => work.push(NodeWork { node, bytes, pages }),
            }
        }
        work.sort_by_key(|work| work.node);
        work
    }

    /// Length of the largest file it needs, in bytes; zero without hugepages.
    #[must_use]
    pub fn largest_file(&self) -> u64 {
        let files = self
            .extents()
            .filter(|extent| extent.backing().is_hugetlb() && extent.segment().is_none());
        files.map(|extent| extent.len().bytes()).max().unwrap_or(0)
    }

    /// What the user should know about it.
    #[must_use]
    pub fn warnings(&self) -> &[PlanWarning] {
        &self.warnings
    }

    /// A plan for one slot of ordinary memory outside RAM, populated on touch: firmware, a boot page.
    ///
    /// # Errors
    ///
    /// `gpa` and `bytes` have to be multiples of 4 KiB, `bytes` not zero, and the end an address.
    pub fn one_slot(slot: u32, gpa: u64, bytes: u64) -> Result<Self, PlanError> {
        let page = PageSize::BASE;
        let fits = page.is_aligned(gpa) && gpa.checked_add(bytes).is_some();
        let len = PageBytes::new(bytes, page).filter(|_| bytes > 0 && fits);
        let len = len.ok_or(PlanError::OddSlot { gpa, bytes })?;
        let extent = Extent::new(gpa, len, Backing::Base, 0);
        Ok(Self {
            bytes,
            prealloc: Prealloc::Off,
            clear: ClearExtents::Dirty,
            slots: vec![SlotPlan {
                slot,
                zone: 0,
                gpa,
                len: bytes,
                align: page,
                dir: None,
                extents: vec![extent],
            }],
            workers: Vec::new(),
            warnings: Vec::new(),
        })
    }
}
