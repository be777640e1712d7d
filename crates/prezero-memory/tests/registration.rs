//! Handing memory over and taking it back, with a registrar that keeps a book of what happened.

mod mappings;
mod registrar;
mod requests;

use mappings::{all_mapped, left, mapped};
use std::panic::{AssertUnwindSafe, catch_unwind};

use prezero_memory::{GuestRam, Prealloc, Request, SlotRange, Zeroed};
use prezero_testkit::{Hugepages, MachineLock};
use registrar::{Book, Event};
use requests::{PAGE, eager, huge, on_touch, planned, reserved, zeroed};

/// Four slots of ordinary memory, which every machine has.
fn four_slots() -> GuestRam<Zeroed> {
    let zone = "size=2M,hugepages=off";
    reserved(&planned(&on_touch(&[zone; 4])))
        .unpopulated()
        .expect("all of it is fresh")
}

fn added(slots: &[SlotRange]) -> Vec<Event> {
    slots.iter().map(|slot| Event::Added(*slot)).collect()
}

/// The last slot added is the first removed.
fn removed(slots: &[SlotRange]) -> Vec<Event> {
    let mapped = true;
    let events = slots.iter().rev().map(|slot| Event::Removed {
        slot: slot.slot,
        mapped,
    });
    events.collect()
}

#[track_caller]
fn assert_unmapped(slots: &[SlotRange]) {
    for slot in slots {
        let left = left(slot.hva, slot.len);
        assert!(left.is_empty(), "{left:?} of {slot:x?}");
    }
}

#[test]
fn slots_are_added_lowest_guest_address_first() {
    let _lock = MachineLock::acquire();
    let (ram, book) = (four_slots(), Book::default());
    let slots: Vec<SlotRange> = ram.slots().collect();
    let gpas: Vec<u64> = slots.iter().map(|slot| slot.gpa >> 20).collect();
    assert_eq!(gpas, [0, 2, 4, 6]);
    let ram = ram.register(book.clone()).expect("nothing is refused");
    assert_eq!(book.events(), added(&slots));
    assert_eq!(ram.slots().collect::<Vec<_>>(), slots);
}

#[test]
fn dropping_removes_every_slot_before_its_memory_is_unmapped() {
    let _lock = MachineLock::acquire();
    let (ram, book) = (four_slots(), Book::default());
    let slots: Vec<SlotRange> = ram.slots().collect();
    drop(ram.register(book.clone()).expect("nothing is refused"));
    assert_eq!(book.events(), [added(&slots), removed(&slots)].concat());
    assert_unmapped(&slots);
}

#[test]
fn a_refused_slot_removes_those_before_it_and_hands_dirty_memory_back() {
    let _lock = MachineLock::acquire();
    for refused in 0..4 {
        let (ram, book) = (four_slots(), Book::refusing_to_add(refused));
        let slots: Vec<SlotRange> = ram.slots().collect();
        let failed = ram.register(book.clone()).expect_err("one slot is refused");
        let before = &slots[..refused as usize];
        assert_eq!(book.events(), [added(before), removed(before)].concat());
        assert_eq!(failed.error.range, slots[refused as usize]);
        assert_eq!(failed.error.source.raw_os_error(), Some(libc::EEXIST));
        // The type is GuestRam<Dirty>, which cannot be registered; its memory is there until it is dropped.
        for slot in &slots {
            assert!(all_mapped(slot.hva, slot.len, "rw-p"), "{slot:x?}");
        }
        drop(failed);
        assert_unmapped(&slots);
    }
}

#[test]
fn unregistering_removes_every_slot_and_keeps_the_contents() {
    let _lock = MachineLock::acquire();
    let (ram, book) = (four_slots(), Book::default());
    let slots: Vec<SlotRange> = ram.slots().collect();
    let ram = ram.register(book.clone()).expect("nothing is refused");
    requests::scribble(slots[2].hva, slots[2].len);
    let ram = ram.unregister();
    assert_eq!(book.events(), [added(&slots), removed(&slots)].concat());
    // SAFETY: the slot is still mapped, and its first byte is aligned.
    assert_eq!(unsafe { (slots[2].hva as *const u8).read_volatile() }, 0xff);
    drop(ram);
    assert_unmapped(&slots);
    assert_eq!(book.events().len(), 8, "no slot is removed twice");
}

#[test]
fn registered_hugepages_are_given_back() {
    let Some(pages) = Hugepages::take(PAGE, 8) else {
        return;
    };
    let plan = planned(&eager(&[&huge(4), &huge(4)]));
    drop(
        zeroed(&plan)
            .register(Book::default())
            .expect("nothing is refused"),
    );
    pages.assert_clean();
    let ram = zeroed(&plan)
        .register(Book::default())
        .expect("nothing is refused");
    drop(ram.unregister());
    pages.assert_clean();
    drop(
        zeroed(&plan)
            .register(Book::refusing_to_add(1))
            .expect_err("one slot is refused"),
    );
    pages.assert_clean();
}

/// Whether the kernel would map something else there (`MAP_FIXED_NOREPLACE`, mmap(2)).
fn can_be_mapped(addr: u64) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: NOREPLACE leaves whatever is mapped there alone.
    let mapped = unsafe { libc::mmap(addr as *mut _, 4096, libc::PROT_NONE, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: the page was mapped just above and nobody knows it.
    unsafe { libc::munmap(mapped, 4096) };
    true
}

/// Nothing is ever mapped there, so that a page can be.
const UNUSED: u64 = 16 << 40;

/// The addresses of a slot that could not be removed: kept, and good for nothing.
#[track_caller]
fn assert_sealed(slot: &SlotRange) {
    assert!(
        all_mapped(slot.hva, slot.len, "---p"),
        "{:?}",
        mapped(slot.hva, slot.len)
    );
    assert!(can_be_mapped(UNUSED));
    assert!(!can_be_mapped(slot.hva) && !can_be_mapped(slot.hva + slot.len - 4096));
}

#[test]
fn the_addresses_of_a_slot_that_stays_are_never_used_again() {
    let _lock = MachineLock::acquire();
    let slots: Vec<SlotRange> = {
        let ram = four_slots()
            .register(Book::refusing_to_remove(1))
            .expect("nothing is refused");
        ram.slots().collect()
    };
    assert_sealed(&slots[1]);
    for gone in [0, 2, 3] {
        assert_unmapped(&slots[gone..=gone]);
    }
}

#[test]
fn a_slot_that_stays_after_unregistering_is_sealed_when_the_memory_is_dropped() {
    let _lock = MachineLock::acquire();
    let ram = four_slots()
        .register(Book::refusing_to_remove(3))
        .expect("nothing is refused");
    let ram = ram.unregister();
    let slots: Vec<SlotRange> = ram.slots().collect();
    // Views of it may be alive, and safe code may write through them.
    assert!(all_mapped(slots[3].hva, slots[3].len, "rw-p"));
    drop(ram);
    assert_sealed(&slots[3]);
    assert_unmapped(&slots[..3]);
}

#[test]
fn a_registrar_that_panics_leaves_no_address_that_is_used_again() {
    let _lock = MachineLock::acquire();
    let ram = four_slots()
        .register(Book::panicking())
        .expect("adding is not refused");
    let slots: Vec<SlotRange> = ram.slots().collect();
    let panicked = catch_unwind(AssertUnwindSafe(|| drop(ram)));
    assert!(panicked.is_err(), "the registrar was not asked");
    for slot in &slots {
        assert_sealed(slot);
    }
}

#[test]
fn the_pages_of_a_slot_that_stays_are_given_back() {
    let Some(pages) = Hugepages::take(PAGE, 8) else {
        return;
    };
    let ram = zeroed(&planned(&eager(&[&huge(4), &huge(4)])));
    let ram = ram
        .register(Book::refusing_to_remove(0))
        .expect("nothing is refused");
    let slots: Vec<SlotRange> = ram.slots().collect();
    drop(ram);
    assert_sealed(&slots[0]);
    assert_unmapped(&slots[1..]);
    pages.assert_clean();
}

#[test]
fn a_refusal_names_the_slot_and_its_source_says_why() {
    let _lock = MachineLock::acquire();
    let request = Request {
        zones: vec!["size=2M,hugepages=off".parse().expect("a SPEC"); 2],
        prealloc: Prealloc::Off,
        ..Request::default()
    };
    let ram = reserved(&planned(&request))
        .unpopulated()
        .expect("all of it is fresh");
    let failed = ram
        .register(Book::refusing_to_add(1))
        .expect_err("one slot is refused");
    let text = failed.error.to_string();
    assert!(text.contains("slot 1"), "{text}");
    let source = std::error::Error::source(&failed.error).expect("the registrar's reason");
    assert!(source.to_string().contains("File exists"), "{source}");
}
