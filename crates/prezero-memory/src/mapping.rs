//! The owner of one slot's host memory.
//!
//! ```text
//!  1. address space, PROT_NONE, one alignment larger than needed
//!     ├╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌┤
//!  2. cut down to a range congruent with the guest address modulo the page size
//!              ├╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌┤
//!  3. extents mapped over it, side by side (MAP_FIXED), each kept from forks and core dumps
//!              ├── memfd ──┼── memfd ──┼── … ───┤
//! ```
//!
//! Hugepages are mapped shared and with the kernel's reservation, so a pool that is too small is
//! `ENOMEM` here and not a SIGBUS in the guest. Nothing is faulted in.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use prezero_host::PageSize;

use crate::plan::{Backing, Extent, SlotPlan};
use crate::policy::{Policy, sys as policy};
use crate::pool::Lease;
use crate::size::ByteSize;
use crate::sys::{self, Advice, Source};

/// One step of mapping a slot, for error messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MapStep {
    /// Finding address space.
    Addresses,
    /// Making the file: a memfd, or a nameless one on hugetlbfs.
    File,
    /// Mapping the memory, which reserves hugepages.
    Map,
    /// Binding the memory to its node.
    Bind,
    /// Keeping the memory from forks and core dumps.
    Advise,
}

impl fmt::Display for MapStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Addresses => "Finding address space",
            Self::File => "Making a file on hugepages",
            Self::Map => "Mapping memory",
            Self::Bind => "Binding memory to its node",
            Self::Advise => "Keeping memory from forks and core dumps",
        })
    }
}

/// An error with the step and extent it happened at.
#[derive(Debug)]
pub(crate) struct MapFailure {
    pub(crate) step: MapStep,
    pub(crate) extent: Option<Extent>,
    pub(crate) source: io::Error,
}

/// A mapped extent: what was planned, and the file it shows, if any.
#[derive(Debug)]
pub(crate) struct MappedExtent {
    pub(crate) plan: Extent,
    /// Offset from the start of the slot, in bytes.
    pub(crate) offset: u64,
    file: Option<Backer>,
}

/// The file that an extent shows.
#[derive(Debug)]
enum Backer {
    /// Its own, from offset 0 on.
    Own(OwnedFd),
    /// A segment of a pool, from an offset on. Nobody else gets it while the lease lives.
    Leased(Arc<Lease>, u64),
}

impl Backer {
    fn view(&self) -> (BorrowedFd<'_>, u64) {
        match self {
            Self::Own(file) => (file.as_fd(), 0),
            Self::Leased(lease, offset) => (lease.file(), *offset),
        }
    }
}

impl MappedExtent {
    /// The file behind the extent, and where in it the extent starts.
    pub(crate) fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        self.file.as_ref().map(Backer::view)
    }
}

/// Owns the address range of one slot and everything mapped into it, and unmaps it on drop.
///
/// Nothing in this crate makes a reference into the range: guests and devices change it at any
/// time, which no `&` or `&mut` allows.
#[derive(Debug)]
pub(crate) struct SlotMapping {
    addr: u64,
    len: u64,
    extents: Vec<MappedExtent>,
    /// Whether KVM may refer to these addresses.
    known_to_kvm: AtomicBool,
}

impl SlotMapping {
    /// Maps a slot; `segments` are in the order of [`crate::Request::recycled`].
    pub(crate) fn new(
        slot: &SlotPlan,
        segments: &[Option<Arc<Lease>>],
    ) -> Result<Self, MapFailure> {
        let addr = reserve_congruent(slot).map_err(|source| MapFailure {
            step: MapStep::Addresses,
            extent: None,
            source,
        })?;
        // From here on drop unmaps the range, whatever has been mapped into it by then.
        let mut mapping = Self {
            addr,
            len: slot.len(),
            extents: Vec::with_capacity(slot.extents().len()),
            known_to_kvm: AtomicBool::new(false),
        };
        for extent in slot.extents() {
            let mapped = mapping.map_extent(extent, slot, segments);
            let file = mapped.map_err(|(step, source)| MapFailure {
                step,
                extent: Some(extent.clone()),
                source,
            })?;
            mapping.extents.push(MappedExtent {
                plan: extent.clone(),
                offset: extent.gpa() - slot.gpa(),
                file,
            });
        }
        Ok(mapping)
    }

    fn map_extent(
        &self,
        extent: &Extent,
        slot: &SlotPlan,
        segments: &[Option<Arc<Lease>>],
    ) -> Result<Option<Backer>, (MapStep, io::Error)> {
        let addr = self.addr + (extent.gpa() - slot.gpa());
        let len = extent.len().bytes();
        let at = |step| move |source| (step, source);
        let file = match extent.backing() {
            Backing::Memfd => {
                let file = sys::hugetlb_memfd(c"prezero-ram", extent.page_size(), len);
                Some(Backer::Own(file.map_err(at(MapStep::File))?))
            }
            Backing::Hugetlbfs => {
                let dir = slot.dir().unwrap_or(Path::new("/"));
                let file = sys::hugetlbfs_file(dir, extent.page_size(), len);
                Some(Backer::Own(file.map_err(at(MapStep::File))?))
            }
            Backing::Pool => Some(leased(extent, segments).map_err(at(MapStep::File))?),
            Backing::Thp | Backing::Base => None,
        };
        let source = match &file {
            Some(file) => {
                let (file, offset) = file.view();
                Source::Shared(file, offset)
            }
            None => Source::Anonymous,
        };
        // SAFETY: the range lies inside this slot's own reservation and is not used yet.
        let map = || unsafe { sys::map_fixed(addr, len, source) };
        // The pages of a segment are where they are.
        let wanted = extent.policy().filter(|_| extent.segment().is_none());
        match wanted {
            // A node that is short is ENOMEM here only while the thread itself is bound.
            Some(Policy::Bind) => policy::bound_to(extent.node(), map)
                .map_err(at(MapStep::Bind))?
                .map_err(at(MapStep::Map))?,
            _ => map().map_err(at(MapStep::Map))?,
        }
        // Where nobody asked for a node there is no policy call: containers refuse them.
        if let Some(wanted) = wanted {
            policy::keep_to(addr, len, wanted, extent.nodes(), extent.node())
                .map_err(at(MapStep::Bind))?;
        }
        for advice in [Advice::DontFork, Advice::DontDump] {
            sys::advise(addr, len, advice).map_err(at(MapStep::Advise))?;
        }
        if extent.backing() == Backing::Thp {
            // Only a wish: a kernel that refuses it still gives base pages.
            let _ = sys::advise(addr, len, Advice::Hugepage);
        }
        Ok(file)
    }

    /// Host address of the slot's first byte.
    pub(crate) fn addr(&self) -> u64 {
        self.addr
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn extents(&self) -> &[MappedExtent] {
        &self.extents
    }

    /// Says whether KVM may refer to the addresses: set before a slot is added, cleared when it is
    /// known to be gone. While it is set, drop gives the pages back but keeps the addresses, so that
    /// nothing else can be mapped there and become visible to the guest.
    pub(crate) fn set_known_to_kvm(&self, known: bool) {
        self.known_to_kvm.store(known, Ordering::SeqCst);
    }
}

impl SlotMapping {
    /// Whether KVM may refer to the addresses.
    pub(crate) fn known_to_kvm(&self) -> bool {
        self.known_to_kvm.load(Ordering::SeqCst)
    }
}

impl Drop for SlotMapping {
    fn drop(&mut self) {
        if self.known_to_kvm.load(Ordering::SeqCst) {
            // SAFETY: the range is this slot's and everything that uses it keeps the owner alive.
            let sealed = unsafe { sys::map_fixed(self.addr, self.len, Source::Inaccessible) };
            debug_assert!(sealed.is_ok(), "mmap of {}: {sealed:?}", ByteSize(self.len));
            return;
        }
        // SAFETY: the range is this slot's and everything that uses it keeps the owner alive. Its
        // ends are page boundaries of every extent by construction, so the kernel takes it.
        let unmapped = unsafe { sys::unmap(self.addr, self.len) };
        debug_assert!(
            unmapped.is_ok(),
            "munmap of {}: {unmapped:?}",
            ByteSize(self.len)
        );
    }
}

/// The segment of an extent, if it was leased and reaches as far as planned: past the end of its file a
/// store is a SIGBUS.
fn leased(extent: &Extent, segments: &[Option<Arc<Lease>>]) -> io::Result<Backer> {
    let missing = || io::Error::from(io::ErrorKind::NotFound);
    let (n, offset) = extent.segment().ok_or_else(missing)?;
    let lease = segments
        .get(n)
        .and_then(Option::as_ref)
        .ok_or_else(missing)?;
    let end = offset.checked_add(extent.len().bytes());
    let as_planned = lease.page_size() == extent.page_size()
        && lease.origin() == extent.origin()
        && end.is_some_and(|end| end <= lease.len().bytes());
    match as_planned {
        true => Ok(Backer::Leased(Arc::clone(lease), offset)),
        false => Err(missing()),
    }
}

/// Reserves `slot.len()` bytes at a host address congruent with the guest address modulo the
/// slot's page size; KVM maps whole hugepages into the guest only then.
fn reserve_congruent(slot: &SlotPlan) -> io::Result<u64> {
    let align = slot.align();
    let too_large = || io::Error::from_raw_os_error(libc::ENOMEM);
    let padded = slot
        .len()
        .checked_add(align.bytes())
        .ok_or_else(too_large)?;
    let raw = sys::reserve_addresses(padded)?;
    let addr = congruent(raw, slot.gpa(), align);
    let (head, tail) = (addr - raw, raw + padded - (addr + slot.len()));
    for (start, len) in [(raw, head), (addr + slot.len(), tail)] {
        if len > 0 {
            // SAFETY: both ends were reserved just above and nobody knows them.
            if let Err(error) = unsafe { sys::unmap(start, len) } {
                // Splitting a mapping can hit vm.max_map_count; taking all of it away cannot.
                // SAFETY: nobody knows the rest either, and what is gone already is not mapped again.
                let _ = unsafe { sys::unmap(raw, padded) };
                return Err(error);
            }
        }
    }
    Ok(addr)
}

/// The lowest address at or above `raw` that is congruent with `gpa` modulo `align`.
fn congruent(raw: u64, gpa: u64, align: PageSize) -> u64 {
    let mask = align.bytes() - 1;
    raw + (gpa.wrapping_sub(raw) & mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn host_and_guest_addresses_are_congruent(
            raw in 0..1_u64 << 46, gpa in 0..1_u64 << 46, huge: bool
        ) {
            let align = if huge { PageSize::HUGE_1G } else { PageSize::HUGE_2M };
            let (raw, gpa) = (raw & !0xfff, gpa & !0xfff);
            let addr = congruent(raw, gpa, align);
            proptest::prop_assert!(addr >= raw && addr - raw < align.bytes());
            proptest::prop_assert!(align.is_aligned(addr.abs_diff(gpa)));
        }
    }
}
