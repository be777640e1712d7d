//! Views of guest memory as vm-memory's [`GuestMemoryMmap`], for code that loads kernels or runs
//! devices on it.
//!
//! vm-memory's regions do not own memory that was mapped by somebody else, so their bitmap type
//! carries the owner along: as long as any clone of a region exists, so does the mapping.

use std::fs::File;
use std::ops::Deref;
use std::sync::Arc;

use vm_memory::bitmap::{BS, Bitmap, NewBitmap, WithBitmapSlice};
use vm_memory::mmap::{FromRangesError, MmapRegionBuilder};
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap};

use crate::mapping::SlotMapping;
use crate::ram::{GuestRam, Registered};
use crate::register::SlotRegistrar;

/// A dirty bitmap `B` (`()` for none) that keeps the mapping it tracks alive.
#[derive(Debug)]
pub struct Owned<B = ()> {
    bitmap: B,
    // Held, never read.
    _owner: Arc<SlotMapping>,
}

impl<B> Deref for Owned<B> {
    type Target = B;

    fn deref(&self) -> &B {
        &self.bitmap
    }
}

impl<'a, B: Bitmap> WithBitmapSlice<'a> for Owned<B> {
    type S = BS<'a, B>;
}

impl<B: Bitmap> Bitmap for Owned<B> {
    fn mark_dirty(&self, offset: usize, len: usize) {
        self.bitmap.mark_dirty(offset, len);
    }

    fn dirty_at(&self, offset: usize) -> bool {
        self.bitmap.dirty_at(offset)
    }

    fn slice_at(&self, offset: usize) -> BS<'_, B> {
        self.bitmap.slice_at(offset)
    }
}

/// Guest memory as vm-memory sees it, with dirty bitmap `B`.
pub type GuestMemory<B = ()> = GuestMemoryMmap<Owned<B>>;

impl<R: SlotRegistrar> GuestRam<Registered<R>> {
    /// The memory as a [`GuestMemoryMmap`], one region per extent. It may outlive `self`: the
    /// mapping then stays until the last clone of its region is gone, but KVM no longer knows it.
    ///
    /// Only registered memory has this, since what is written through it is no longer zero.
    ///
    /// # Errors
    ///
    /// That a descriptor could not be duplicated (reported as vm-memory's `Mmap`); everything else that
    /// vm-memory checks is guaranteed by the plan.
    pub fn guest_memory<B: NewBitmap>(&self) -> Result<GuestMemory<B>, FromRangesError> {
        let mut regions = Vec::new();
        for slot in self.owned_slots() {
            for extent in slot.mapping.extents() {
                // The length of a mapping that exists fits in an address.
                let len = usize::try_from(extent.plan.len().bytes()).unwrap_or(usize::MAX);
                let bitmap = Owned {
                    bitmap: B::with_len(len),
                    _owner: Arc::clone(&slot.mapping),
                };
                let addr = slot.mapping.addr() + extent.offset;
                let builder = MmapRegionBuilder::new_with_bitmap(len, bitmap)
                    .with_mmap_prot(libc::PROT_READ | libc::PROT_WRITE);
                let builder = match extent.file() {
                    Some((fd, offset)) => {
                        let file = File::from(
                            fd.try_clone_to_owned()
                                .map_err(vm_memory::mmap::MmapRegionError::Mmap)?,
                        );
                        builder
                            .with_file_offset(FileOffset::new(file, offset))
                            .with_mmap_flags(libc::MAP_SHARED)
                            .with_hugetlbfs(true)
                    }
                    None => builder.with_mmap_flags(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS),
                };
                // SAFETY: the range is mapped, and stays so while the bitmap holds its owner.
                let region = unsafe { builder.with_raw_mmap_pointer(addr as *mut u8) }.build()?;
                let region = GuestRegionMmap::new(region, GuestAddress(extent.plan.gpa()));
                regions.push(region.ok_or(FromRangesError::InvalidGuestRegion)?);
            }
        }
        Ok(GuestMemoryMmap::from_regions(regions)?)
    }
}
