//! Where guest memory lies in this process, and that nothing stays there.

mod mappings;
mod requests;

use mappings::{address_space, all_mapped, left, mapped, open_memory_files};
use prezero_memory::{GuestRam, PageSize, Plan, ReserveError, plan};
use prezero_testkit::{Hugepages, MachineLock, maps_containing};
use requests::{
    PAGE, eager, host_claiming, host_with_a_second_node, huge, on_touch, planned, reserved, zeroed,
};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Host and guest addresses of each slot differ by whole pages, or KVM maps small ones (firecracker#6003).
#[track_caller]
fn assert_congruent(plan: &Plan) {
    let ram = reserved(plan);
    for (slot, planned) in ram.slots().zip(plan.slots()) {
        let apart = slot.hva.abs_diff(slot.gpa);
        assert!(
            planned.align().is_aligned(apart),
            "{slot:x?} on {}",
            planned.align()
        );
        for extent in planned.extents() {
            assert!(extent.page_size().is_aligned(apart), "{slot:x?}");
        }
        assert!(all_mapped(slot.hva, slot.len, "rw-p") || all_mapped(slot.hva, slot.len, "rw-s"));
    }
}

#[test]
fn slots_on_both_sides_of_the_device_hole_are_congruent() {
    let _lock = MachineLock::acquire();
    let plan = planned(&on_touch(&["size=3200M,hugepages=off"]));
    let starts: Vec<u64> = plan.slots().iter().map(|slot| slot.gpa()).collect();
    assert_eq!(starts, [0, 4 * GIB]);
    assert_congruent(&plan);
}

#[test]
fn slots_that_start_inside_a_hugepage_are_congruent() {
    let _lock = MachineLock::acquire();
    let zones = [
        "size=3145732K,hugepages=off",
        "size=6148K,hugepages=off",
        "size=4M,hugepages=off",
    ];
    let plan = planned(&on_touch(&zones));
    // Ordinary memory is given to KVM in transparent hugepages all the same.
    assert!(
        plan.slots()
            .iter()
            .all(|slot| slot.align() == PageSize::HUGE_2M)
    );
    let inside = plan
        .slots()
        .iter()
        .filter(|slot| !PageSize::HUGE_2M.is_aligned(slot.gpa()));
    assert_eq!(inside.count(), 2);
    for _ in 0..8 {
        assert_congruent(&plan);
    }
}

#[test]
fn hugepage_slots_after_ordinary_ones_are_congruent() {
    let Some(_pages) = Hugepages::take(PAGE, 12) else {
        return;
    };
    let zones = [&huge(4), "size=68K,hugepages=off", &huge(8)];
    let plan = planned(&on_touch(&zones));
    assert_eq!(plan.slots().len(), 3);
    assert_congruent(&plan);
}

#[test]
fn nothing_is_mapped_where_memory_was() {
    let Some(pages) = Hugepages::take(PAGE, 12) else {
        return;
    };
    let (host, _) = host_with_a_second_node(7);
    let zones = [&huge(8), "size=6148K,hugepages=off", &huge(4)];
    let plan = plan(&host, &eager(&zones)).expect("the host has enough");
    assert_eq!((plan.slots().len(), plan.extents().count()), (3, 5));
    let ram = zeroed(&plan);
    let slots: Vec<_> = ram.slots().collect();
    for slot in &slots {
        assert!(!mapped(slot.hva, slot.len).is_empty());
    }
    drop(ram);
    for slot in &slots {
        let left = left(slot.hva, slot.len);
        assert!(left.is_empty(), "{left:?} of {slot:x?}");
    }
    assert_eq!(maps_containing("prezero-ram"), [""; 0]);
    assert_eq!(open_memory_files(), 0);
    pages.assert_clean();
}

#[test]
fn nothing_is_mapped_where_memory_could_not_be_had() {
    let Some(pages) = Hugepages::exactly(PAGE, 4) else {
        return;
    };
    let (zone, before) = (huge(32), address_space());
    let plan = plan(&host_claiming(32), &eager(&[&zone])).expect("the host claims enough");
    for _ in 0..32 {
        let refused = GuestRam::reserve(&plan);
        assert!(matches!(refused, Err(ReserveError::Short { .. })));
    }
    assert_eq!(maps_containing("prezero-ram"), [""; 0]);
    assert_eq!(open_memory_files(), 0);
    // Thirty-two times 64 MiB of address space would be 2 GiB.
    let grown = address_space().saturating_sub(before);
    assert!(grown < GIB, "{} MiB more", grown / MIB);
    pages.assert_clean();
}

#[test]
fn what_was_mapped_for_alignment_is_given_back() {
    let _lock = MachineLock::acquire();
    let plan = planned(&on_touch(&["size=4K,hugepages=off"]));
    let before = address_space();
    let held: Vec<_> = (0..1000).map(|_| reserved(&plan)).collect();
    // Each was cut out of 2 MiB and 4 KiB, 2 GiB in all. Threads of other tests may have their stacks in between.
    let grown = address_space().saturating_sub(before);
    assert!(grown < GIB, "{} MiB more", grown / MIB);
    drop(held);
    for _ in 0..1000 {
        drop(reserved(&plan));
    }
    let grown = address_space().saturating_sub(before);
    assert!(grown < GIB, "{} MiB more", grown / MIB);
}
