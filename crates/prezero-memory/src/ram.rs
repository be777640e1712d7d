//! Guest RAM, and what is known about it, as types.
//!
//! ```text
//! Reserved ─ populate ─▶ Populated ─ clear ─▶ Cleared ─ check_placement ─▶ Zeroed ─ register ─▶ Registered
//!     └─────────────────────────── unpopulated ──────────────────────────────▲                       │
//!                            Populated ◀─ repopulate ─ Dirty ◀─ unregister ──────────────────────────┘
//! ```
//!
//! Only `GuestRam<Zeroed>` has `register`: memory reaches a guest only if every byte of it reads as
//! zero. Dropping any of them gives everything back.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::control::Control;
use crate::error::{Failed, RegisterError, ReserveError};
use crate::limits::{LimitHit, LimitKind};
use crate::mapping::{MappedExtent, SlotMapping};
use crate::placement::{Placement, PlacementError};
use crate::plan::{Extent, Origin, Plan, Prealloc};
use crate::pool::Lease;
use crate::populate::{PopulateError, PopulateReport, populate};
use crate::register::{SlotRange, SlotRegistrar};
use crate::sys;
use crate::work::Target;
use crate::workers::Workers;

mod attempts;
mod clear;

mod sealed {
    pub trait Sealed {}
}

/// What is known about memory. Implemented by the states of this module only.
pub trait State: sealed::Sealed {}

macro_rules! states {
    ($($(#[$doc:meta])* $name:ident),*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name(());
        impl sealed::Sealed for $name {}
        impl State for $name {}
    )*};
}

states! {
    /// Mapped and reserved; nothing is faulted in.
    Reserved,
    /// Every page is there; what is in the pages that are not fresh is unknown.
    Populated,
    /// Every page is there, and every byte reads as zero.
    Cleared,
    /// Every byte reads as zero, and no guest has seen it.
    Zeroed,
    /// A guest may have written to it.
    Dirty
}

/// KVM knows it, and so may a guest. Its slots are removed on drop, before the memory is unmapped.
pub struct Registered<R: SlotRegistrar> {
    registrar: R,
    slots: Vec<(SlotRange, Arc<SlotMapping>)>,
}

impl<R: SlotRegistrar> sealed::Sealed for Registered<R> {}
impl<R: SlotRegistrar> State for Registered<R> {}

impl<R: SlotRegistrar> fmt::Debug for Registered<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slots = self.slots.iter().map(|(range, _)| range.slot);
        f.debug_tuple("Registered")
            .field(&slots.collect::<Vec<_>>())
            .finish()
    }
}

impl<R: SlotRegistrar> Registered<R> {
    fn remove_slots(&mut self) {
        while let Some((range, mapping)) = self.slots.pop() {
            // Where removing fails or panics, the mapping keeps its addresses for good.
            if self.registrar.remove(&range).is_ok() {
                mapping.set_known_to_kvm(false);
            }
        }
    }
}

impl<R: SlotRegistrar> Drop for Registered<R> {
    fn drop(&mut self) {
        self.remove_slots();
    }
}

#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) number: u32,
    pub(crate) gpa: u64,
    pub(crate) mapping: Arc<SlotMapping>,
}

/// Guest memory in one state: reserved, populated, zeroed, registered or dirty.
///
/// Addresses, lengths and descriptors are all it shows: the memory itself is changed by guests and
/// devices at any time, so no reference into it is ever made.
#[derive(Debug)]
pub struct GuestRam<S: State> {
    // Declared, and so dropped, before the slots: KVM forgets memory before it is unmapped.
    state: S,
    slots: Vec<Slot>,
    contents: Contents,
    /// Whether fresh pages are left to the guest's first touch.
    lazy: bool,
}

/// What is in the memory before it is cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contents {
    /// What the plan says of each extent.
    Planned,
    /// A guest, or a measurement, has written to it.
    Unknown,
}

impl<S: State> GuestRam<S> {
    /// The slots, as plain numbers.
    pub fn slots(&self) -> impl Iterator<Item = SlotRange> {
        self.slots.iter().map(Slot::range)
    }

    /// The extents of all slots with their host addresses and descriptors.
    pub fn extents(&self) -> impl Iterator<Item = ExtentView<'_>> {
        self.slots.iter().flat_map(|slot| {
            let base = slot.mapping.addr();
            let contents = self.contents;
            let extents = slot.mapping.extents().iter();
            extents.map(move |mapped| ExtentView {
                base,
                mapped,
                contents,
            })
        })
    }

    /// All of it, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.slots.iter().map(|slot| slot.mapping.len()).sum()
    }

    #[cfg_attr(not(feature = "vm-memory"), allow(dead_code))]
    pub(crate) fn owned_slots(&self) -> &[Slot] {
        &self.slots
    }
}

impl Slot {
    fn range(&self) -> SlotRange {
        SlotRange {
            slot: self.number,
            gpa: self.gpa,
            len: self.mapping.len(),
            hva: self.mapping.addr(),
        }
    }
}

/// One extent of mapped memory.
#[derive(Clone, Copy, Debug)]
pub struct ExtentView<'a> {
    base: u64,
    mapped: &'a MappedExtent,
    contents: Contents,
}

impl<'a> ExtentView<'a> {
    /// What was planned: guest address, length, page size, node, backing, origin.
    #[must_use]
    pub fn plan(&self) -> &'a Extent {
        &self.mapped.plan
    }

    /// Host address of its first byte.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.base + self.mapped.offset
    }

    /// What is known about its contents before it is cleared: what was planned, or dirty once a guest
    /// had it.
    #[must_use]
    pub fn origin(&self) -> Origin {
        match self.contents {
            Contents::Planned => self.mapped.plan.origin(),
            Contents::Unknown => Origin::Dirty,
        }
    }

    /// What the workers of each of its nodes work on.
    fn targets(self) -> impl Iterator<Item = Target> + 'a {
        let (mut next, origin) = (self.addr(), self.origin());
        self.plan().shares().map(move |(node, len)| {
            let addr = next;
            next += len.bytes();
            Target {
                addr,
                len,
                node,
                origin,
            }
        })
    }
}

impl GuestRam<Reserved> {
    /// Maps what was planned. Hugepages are promised by the kernel from here on; no page is touched.
    ///
    /// # Errors
    ///
    /// What the kernel refuses, with the numbers behind it; everything mapped by then is unmapped.
    pub fn reserve(plan: &Plan) -> Result<Self, ReserveError> {
        Self::reserve_with(plan, Vec::new())
    }

    /// [`GuestRam::reserve`] with segments of pools, in the order of [`crate::Request::recycled`];
    /// those that the plan does not use may be missing. They are released when the memory is dropped.
    ///
    /// # Errors
    ///
    /// As [`GuestRam::reserve`], also for a segment that is not as it was planned.
    pub fn reserve_with(plan: &Plan, segments: Vec<Option<Lease>>) -> Result<Self, ReserveError> {
        let segments: Vec<_> = segments
            .into_iter()
            .map(|lease| lease.map(Arc::new))
            .collect();
        // A memfd past RLIMIT_FSIZE is a SIGXFSZ, which no error path survives.
        let (needed, limit) = (plan.largest_file(), sys::file_size_limit());
        if needed > limit {
            return Err(ReserveError::Limit(LimitHit {
                what: LimitKind::FileSize,
                file: "/proc/self/limits".into(),
                limit,
                usage: 0,
                needed,
            }));
        }
        let mut slots = Vec::with_capacity(plan.slots().len());
        for slot in plan.slots() {
            let mapping = SlotMapping::new(slot, &segments)
                .map_err(|failure| ReserveError::new(slot, failure))?;
            slots.push(Slot {
                number: slot.slot(),
                gpa: slot.gpa(),
                mapping: Arc::new(mapping),
            });
        }
        Ok(Self {
            state: Reserved(()),
            slots,
            contents: Contents::Planned,
            lazy: plan.prealloc() == Prealloc::Off,
        })
    }

    /// Has the workers populate every page; with [`Prealloc::Off`] those of segments of pools only, and
    /// the kernel clears each fresh page when the guest first touches it.
    ///
    /// # Errors
    ///
    /// [`PopulateError`], with the memory: it may be tried again.
    pub fn populate(
        self,
        workers: &Workers,
        control: &Control<'_>,
    ) -> Result<(GuestRam<Populated>, PopulateReport), Failed<Self, PopulateError>> {
        match populate(workers, &self.targets(), control) {
            Ok(report) => Ok((self.into_state(Populated(())), report)),
            Err(error) => Err(Failed { ram: self, error }),
        }
    }

    /// Leaves the memory unpopulated: the kernel clears each page when the guest first touches it.
    ///
    /// # Errors
    ///
    /// The memory, if not all of it is fresh: segments of pools are to be populated, and cleared.
    pub fn unpopulated(self) -> Result<GuestRam<Zeroed>, Self> {
        let fresh = self
            .extents()
            .all(|extent| extent.origin() == Origin::Fresh);
        match fresh {
            true => Ok(self.into_state(Zeroed(()))),
            false => Err(self),
        }
    }
}

impl GuestRam<Cleared> {
    /// Asks the kernel for the node of every page.
    ///
    /// # Errors
    ///
    /// Bound memory on another node, hugepages that are not there any more, or a stop. Memory that
    /// nobody bound is counted only.
    pub fn check_placement(
        self,
        control: &Control<'_>,
    ) -> Result<(GuestRam<Zeroed>, Placement), Failed<Self, PlacementError>> {
        let extents = self.worked_on();
        let extents: Vec<_> = extents
            .map(|extent| (extent.addr(), extent.plan()))
            .collect();
        match Placement::of(&extents, control) {
            Ok(placement) => Ok((self.into_state(Zeroed(())), placement)),
            Err(error) => Err(Failed { ram: self, error }),
        }
    }
}

impl<S: State> GuestRam<S> {
    fn into_state<T: State>(self, state: T) -> GuestRam<T> {
        GuestRam {
            state,
            slots: self.slots,
            contents: self.contents,
            lazy: self.lazy,
        }
    }

    fn into_dirty(mut self) -> GuestRam<Dirty> {
        self.contents = Contents::Unknown;
        self.into_state(Dirty(()))
    }

    fn targets(&self) -> Vec<Target> {
        self.worked_on().flat_map(ExtentView::targets).collect()
    }

    /// What is populated, and cleared if need be: all but what is left to the guest.
    fn worked_on(&self) -> impl Iterator<Item = ExtentView<'_>> {
        let left = |extent: &ExtentView<'_>| self.lazy && extent.origin() == Origin::Fresh;
        self.extents().filter(move |extent| !left(extent))
    }

    /// The host address of a guest-physical one.
    fn addr_of(&self, gpa: u64) -> Option<u64> {
        let mut slots = self.slots();
        let slot = slots.find(|slot| gpa.wrapping_sub(slot.gpa) < slot.len)?;
        Some(slot.hva + (gpa - slot.gpa))
    }
}

/// What comes back when registering fails: the memory, and the registrar's reason.
pub type RegisterFailure<R> = Failed<GuestRam<Dirty>, RegisterError<<R as SlotRegistrar>::Error>>;

impl GuestRam<Zeroed> {
    /// Hands every slot to KVM, lowest guest address first.
    ///
    /// # Errors
    ///
    /// The registrar's first refusal. Slots registered by then are removed, but a guest may have
    /// been running: the memory comes back as dirty.
    pub fn register<R: SlotRegistrar>(
        self,
        registrar: R,
    ) -> Result<GuestRam<Registered<R>>, RegisterFailure<R>> {
        let mut state = Registered {
            registrar,
            slots: Vec::with_capacity(self.slots.len()),
        };
        let mut failed = None;
        for slot in &self.slots {
            let range = slot.range();
            // Set and owned before the call, so that a registrar that panics leaves nothing behind that
            // a guest could see through.
            slot.mapping.set_known_to_kvm(true);
            state.slots.push((range, Arc::clone(&slot.mapping)));
            // SAFETY: the mapping outlives the slot: `Registered` owns it too and removes the slot
            // before letting go of it, and a mapping that KVM may know keeps its addresses.
            if let Err(source) = unsafe { state.registrar.add(&range) } {
                slot.mapping.set_known_to_kvm(false);
                state.slots.pop();
                failed = Some(RegisterError { range, source });
                break;
            }
        }
        match failed {
            None => Ok(self.into_state(state)),
            Some(error) => {
                drop(state);
                let ram = self.into_dirty();
                Err(Failed { ram, error })
            }
        }
    }
}

impl<R: SlotRegistrar> GuestRam<Registered<R>> {
    /// The files behind the extents, and the offset in bytes from which each is shown, for vhost-user
    /// and the like; `None` for ordinary memory. In the order of [`GuestRam::extents`].
    ///
    /// Only registered memory shows them: whoever has one can write to the memory.
    pub fn files(&self) -> impl Iterator<Item = Option<(BorrowedFd<'_>, u64)>> {
        let slots = self.slots.iter();
        slots.flat_map(|slot| slot.mapping.extents().iter().map(MappedExtent::file))
    }

    /// Takes the memory away from KVM. Whatever the guest wrote is still in it.
    #[must_use]
    pub fn unregister(mut self) -> GuestRam<Dirty> {
        self.state.remove_slots();
        self.into_dirty()
    }
}
