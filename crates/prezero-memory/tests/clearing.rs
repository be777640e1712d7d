//! Hugepages that a guest has written to are zero again before another guest gets them.
#![cfg(feature = "vm-memory")]

mod mappings;
mod registrar;
mod requests;

use prezero_memory::{
    ClearExtents, ClearRequest, Control, Dirty, Failed, GuestMemory, GuestRam, MethodChoice,
    Origin, Plan, PopulateReport, Populated, Reason, RepopulateError, Workers,
};
use prezero_testkit::{Hugepages, punch};
use registrar::Book;
use requests::{PAGE, cleared, eager, huge, planned, populated, reads_as_zero, scribble, zeroed};
use vm_memory::{Bytes, GuestAddress};

const PAGES: u64 = 16;

fn plan() -> Plan {
    planned(&eager(&[&huge(PAGES)]))
}

/// Memory that a guest filled with ones.
fn used(plan: &Plan) -> GuestRam<Dirty> {
    let ram = zeroed(plan)
        .register(Book::default())
        .expect("nothing is refused");
    let slot = ram.slots().next().expect("one slot");
    scribble(slot.hva, slot.len);
    ram.unregister()
}

type Again =
    Result<(GuestRam<Populated>, PopulateReport), Failed<GuestRam<Dirty>, RepopulateError>>;

fn again(ram: GuestRam<Dirty>, workers: &Workers) -> Again {
    // SAFETY: no test of this file keeps a descriptor of the memory.
    unsafe { ram.repopulate(workers, &Control::default()) }
}

#[test]
fn memory_that_kvm_did_not_let_go_of_is_not_used_again() {
    let Some(pages) = Hugepages::take(PAGE, PAGES) else {
        return;
    };
    let plan = plan();
    let workers = Workers::start(plan.workers()).expect("a few threads");
    let ram = zeroed(&plan)
        .register(Book::refusing_to_remove(0))
        .expect("nothing is refused");
    let slot = ram.slots().next().expect("one slot");
    let failed = again(ram.unregister(), &workers).expect_err("the slot is still there");
    assert!(matches!(failed.error, RepopulateError::KnownToKvm));
    drop((failed, workers));
    // The addresses stay taken, the pages do not.
    assert!(!mappings::left(slot.hva, slot.len).is_empty());
    pages.assert_clean();
}

#[test]
fn what_a_guest_wrote_is_gone_for_the_next_one() {
    let Some(pages) = Hugepages::take(PAGE, PAGES) else {
        return;
    };
    let plan = plan();
    let workers = Workers::start(plan.workers()).expect("a few threads");
    let ram = used(&plan);
    assert!(ram.extents().all(|extent| extent.origin() == Origin::Dirty));
    let (ram, _) = again(ram, &workers).expect("nobody has it");
    let slot = ram.slots().next().expect("one slot");
    assert!(
        !reads_as_zero(slot.hva, 4096),
        "populating does not clear what is there"
    );
    let request = ClearRequest {
        used_next: vec![0, PAGE * 3 + 5000],
        ..ClearRequest::default()
    };
    let (ram, report) = ram
        .clear(&workers, &request, &Control::default())
        .expect("nothing stops it");
    assert_eq!(report.bytes, PAGES * PAGE);
    assert!(reads_as_zero(slot.hva, slot.len));
    let (ram, placement) = ram
        .check_placement(&Control::default())
        .expect("nothing is bound");
    assert_eq!(placement.checked_pages, PAGES);
    drop(ram.register(Book::default()).expect("nothing is refused"));
    drop(workers);
    pages.assert_clean();
}

#[test]
fn a_page_that_the_guest_gave_back_is_populated_before_it_is_cleared() {
    let Some(pages) = Hugepages::take(PAGE, PAGES) else {
        return;
    };
    let plan = plan();
    let workers = Workers::start(plan.workers()).expect("a few threads");
    let ram = zeroed(&plan)
        .register(Book::default())
        .expect("nothing is refused");
    let slot = ram.slots().next().expect("one slot");
    scribble(slot.hva, slot.len);
    let (file, _) = ram.files().flatten().next().expect("a memfd");
    punch(file, PAGE * 2, PAGE).expect("hugetlb memfds take holes");
    let before = pages.counters().free;
    let (ram, _) = again(ram.unregister(), &workers).expect("nobody has it");
    assert_eq!(pages.counters().free, before - 1);
    let (ram, _) = ram
        .clear(&workers, &ClearRequest::default(), &Control::default())
        .expect("nothing stops it");
    assert!(reads_as_zero(slot.hva, slot.len));
    drop((ram, workers));
    pages.assert_clean();
}

#[test]
fn memory_that_somebody_still_sees_is_not_used_again() {
    let Some(pages) = Hugepages::take(PAGE, PAGES) else {
        return;
    };
    let plan = plan();
    let workers = Workers::start(plan.workers()).expect("a few threads");
    let ram = zeroed(&plan)
        .register(Book::default())
        .expect("nothing is refused");
    let view: GuestMemory = ram
        .guest_memory()
        .expect("the plan is what vm-memory wants");
    let failed = again(ram.unregister(), &workers).expect_err("there is a view");
    assert!(matches!(failed.error, RepopulateError::Viewed));
    view.write_obj(7_u8, GuestAddress(5)).expect("guest memory");
    drop(view);
    let (ram, _) = again(failed.ram, &workers).expect("the view is gone");
    drop((ram, workers));
    pages.assert_clean();
}

#[test]
fn everything_is_cleared_on_request_by_the_workers_of_its_node() {
    let Some(pages) = Hugepages::take(PAGE, 2 * PAGES) else {
        return;
    };
    let plan = plan();
    let fresh = populated(&plan).0;
    let workers = Workers::start(plan.workers()).expect("a few threads");
    for method in prezero_memory::Method::available() {
        let request = ClearRequest {
            extents: ClearExtents::All,
            choice: MethodChoice::Fixed(method),
            ..ClearRequest::default()
        };
        let (ram, _) = populated(&plan);
        let ram = ram
            .stain(&workers, 0xa5, &Control::default())
            .expect("nothing stops it");
        let slot = ram.slots().next().expect("one slot");
        assert!(!reads_as_zero(slot.hva + slot.len - 8, 8));
        let (ram, report) = ram
            .clear(&workers, &request, &Control::default())
            .expect("nothing stops it");
        assert!(reads_as_zero(slot.hva, slot.len), "{method}");
        assert_eq!(report.workers.len(), plan.workers().len());
        let by_worker: u64 = report.workers.iter().map(|w| w.cleared_bytes).sum();
        assert_eq!((by_worker, report.bytes), (PAGES * PAGE, PAGES * PAGE));
        assert_eq!(report.choices[0].reason, Reason::Requested);
        drop(ram);
    }
    drop((cleared(&plan, fresh), workers));
    pages.assert_clean();
}
