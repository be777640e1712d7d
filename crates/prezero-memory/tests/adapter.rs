//! Guest memory as vm-memory's `GuestMemoryMmap`.
#![cfg(feature = "vm-memory")]

mod mappings;
mod registrar;
mod requests;

use std::os::fd::AsRawFd;

use mappings::left;
use prezero_memory::{GuestMemory, GuestRam, Registered, SlotRange, plan};
use prezero_testkit::{Hugepages, MachineLock};
use registrar::{Book, Event};
use requests::{PAGE, eager, host_with_a_second_node, huge, on_touch, planned, reserved, zeroed};
use vm_memory::bitmap::{AtomicBitmap, Bitmap};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryRegion, MmapRegion};

const PAGES: u64 = 8;

/// Two extents of hugepages in slot 0, one of ordinary memory in slot 1, without a gap.
fn registered(book: &Book) -> GuestRam<Registered<Book>> {
    let (host, _) = host_with_a_second_node(PAGES - 1);
    let request = eager(&[&huge(PAGES), "size=2M,hugepages=off"]);
    let plan = plan(&host, &request).expect("the host has enough");
    assert_eq!((plan.slots().len(), plan.extents().count()), (2, 3));
    zeroed(&plan)
        .register(book.clone())
        .expect("nothing is refused")
}

#[track_caller]
fn assert_written_and_read(view: &GuestMemory, at: u64) {
    let pattern: Vec<u8> = (1..=64).collect();
    let at = GuestAddress(at);
    view.write_slice(&pattern, at).expect("guest memory");
    let mut read = vec![0; pattern.len()];
    view.read_slice(&mut read, at).expect("guest memory");
    assert_eq!(read, pattern);
}

#[test]
fn bytes_cross_extents_and_slots() {
    let Some(pages) = Hugepages::take(PAGE, PAGES) else {
        return;
    };
    let ram = registered(&Book::default());
    let view: GuestMemory = ram
        .guest_memory()
        .expect("the plan is what vm-memory wants");
    assert_eq!(view.num_regions(), 3);
    let gpas: Vec<u64> = ram.extents().map(|extent| extent.plan().gpa()).collect();
    assert_eq!(gpas, [0, PAGES / 2 * PAGE, PAGES * PAGE]);
    for boundary in &gpas[1..] {
        assert_written_and_read(&view, boundary - 32);
    }
    // The addresses are those that KVM has.
    for slot in ram.slots() {
        let host = view
            .get_host_address(GuestAddress(slot.gpa))
            .expect("guest memory");
        assert_eq!(host as u64, slot.hva);
    }
    let last = GuestAddress(PAGES * PAGE + PAGE - 32);
    assert!(
        view.write_slice(&[1; 64], last).is_err(),
        "guest memory ends there"
    );
    drop((view, ram));
    pages.assert_clean();
}

#[test]
fn a_view_keeps_the_mapping_but_not_the_slots() {
    let Some(pages) = Hugepages::take(PAGE, PAGES) else {
        return;
    };
    let (book, before) = (Book::default(), pages.counters());
    let ram = registered(&book);
    let slots: Vec<SlotRange> = ram.slots().collect();
    let view: GuestMemory = ram
        .guest_memory()
        .expect("the plan is what vm-memory wants");
    assert_written_and_read(&view, 0);
    drop(ram);
    let removed = |slot| Event::Removed { slot, mapped: true };
    assert_eq!(book.events()[2..], [removed(1), removed(0)]);
    assert_written_and_read(&view, PAGES * PAGE - 32);
    assert_eq!(pages.counters().free, before.free - PAGES);

    let clone = view.clone();
    drop(view);
    assert_written_and_read(&clone, 8);
    assert_eq!(pages.counters().free, before.free - PAGES);
    drop(clone);
    for slot in slots {
        let left = left(slot.hva, slot.len);
        assert!(left.is_empty(), "{left:?} of {slot:x?}");
    }
    pages.assert_clean();
}

#[test]
fn a_region_shows_the_file_behind_it() {
    let Some(pages) = Hugepages::take(PAGE, PAGES) else {
        return;
    };
    let ram = registered(&Book::default());
    let view: GuestMemory = ram
        .guest_memory()
        .expect("the plan is what vm-memory wants");
    for ((region, extent), file) in view.iter().zip(ram.extents()).zip(ram.files()) {
        let shown = region.file_offset().map(|file| {
            let len = file.file().metadata().expect("an open file").len();
            assert_eq!(len, extent.plan().len().bytes());
            // SAFETY: the descriptor is open; F_GETFD has no memory operand.
            let flags = unsafe { libc::fcntl(file.file().as_raw_fd(), libc::F_GETFD) };
            assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
            file.start()
        });
        assert_eq!(shown, file.map(|_| 0));
        assert_eq!(region.is_hugetlbfs(), file.map(|_| true));
    }
    assert_eq!(ram.files().flatten().count(), 2);
    drop((view, ram));
    pages.assert_clean();
}

#[test]
fn a_view_may_track_dirty_pages() {
    let _lock = MachineLock::acquire();
    let ram = reserved(&planned(&on_touch(&["size=2M,hugepages=off"])))
        .unpopulated()
        .expect("all of it is fresh");
    let slot = ram.slots().next().expect("one slot");
    let ram = ram.register(Book::default()).expect("nothing is refused");
    let view: GuestMemory<AtomicBitmap> = ram.guest_memory().expect("as without a bitmap");
    view.write_slice(&[1; 16], GuestAddress(3 * 4096 + 8))
        .expect("guest memory");
    let region = view.find_region(GuestAddress(0)).expect("guest memory");
    // The whole bitmap and not a slice of it, which writing goes through.
    let bitmap = MmapRegion::bitmap(region);
    let dirty = (0..8).filter(|page| bitmap.dirty_at(page * 4096));
    let dirty: Vec<usize> = dirty.collect();
    assert_eq!(dirty, [3]);
    drop((ram, view));
    assert!(left(slot.hva, slot.len).is_empty());
}
