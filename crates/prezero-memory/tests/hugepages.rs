//! Real hugepages: what is promised, what is taken, and that every page comes back.

mod mappings;
mod requests;

use std::fs::{self, File};
use std::path::PathBuf;

use mappings::{all_mapped, mapped};
use prezero_memory::{
    Backing, Class, Control, GuestRam, PageSize, PlacementError, ReserveError, Shortage, plan,
};
use prezero_testkit::{Hugepages, maps_containing};
use requests::{
    PAGE, cleared, eager, host_claiming, huge, on_touch, planned, populated, reads_as_zero,
    reserved, scribble, zeroed,
};

/// 64 MiB.
const PAGES: u64 = 32;

#[test]
fn reserving_promises_pages_and_takes_none() {
    let Some(pages) = Hugepages::take(PAGE, PAGES) else {
        return;
    };
    let before = pages.counters();
    let ram = reserved(&planned(&eager(&[&huge(PAGES)])));
    let now = pages.counters();
    assert_eq!(now.reserved, before.reserved + PAGES);
    assert_eq!((now.free, now.total), (before.free, before.total));
    drop(ram);
    pages.assert_clean();
}

#[test]
fn populating_takes_exactly_the_guests_pages() {
    let Some(pages) = Hugepages::take(PAGE, PAGES) else {
        return;
    };
    let before = pages.counters();
    let (ram, report) = populated(&planned(&eager(&[&huge(PAGES)])));
    let now = pages.counters();
    assert_eq!(now.free, before.free - PAGES);
    assert_eq!((now.reserved, now.total), (before.reserved, before.total));
    assert_eq!(report.bytes, PAGES * PAGE);
    let by_workers: u64 = report
        .workers
        .iter()
        .map(|worker| worker.populated_bytes)
        .sum();
    assert_eq!(by_workers, PAGES * PAGE);
    // A private mapping of a file takes a second page for each one written (cloud-hypervisor#4805).
    for extent in ram.extents() {
        let (addr, len) = (extent.addr(), extent.plan().len().bytes());
        assert_eq!(extent.plan().backing(), Backing::Memfd);
        assert!(all_mapped(addr, len, "rw-s"));
        scribble(addr, len);
        for mapping in mapped(addr, len) {
            assert!(mapping.has("sh") && mapping.has("ht"), "{mapping:?}");
            assert!(mapping.name.contains("prezero-ram"), "{mapping:?}");
        }
    }
    assert_eq!(pages.counters(), now);
    drop(ram);
    pages.assert_clean();
}

#[test]
fn dropping_any_state_gives_every_page_back() {
    let Some(pages) = Hugepages::take(PAGE, PAGES) else {
        return;
    };
    let plan = planned(&eager(&[&huge(PAGES)]));
    let gone = |what: &str| {
        pages.assert_clean();
        assert_eq!(maps_containing("prezero-ram"), [""; 0], "{what}");
    };
    drop(reserved(&plan));
    gone("reserved");
    drop(reserved(&plan).unpopulated().expect("all of it is fresh"));
    gone("unpopulated");
    drop(populated(&plan));
    gone("populated");
    drop(zeroed(&plan));
    gone("zeroed");
}

#[test]
fn unpopulated_pages_are_taken_on_touch_and_no_others() {
    let Some(pages) = Hugepages::take(PAGE, PAGES) else {
        return;
    };
    let before = pages.counters();
    let ram = reserved(&planned(&on_touch(&[&huge(PAGES)])))
        .unpopulated()
        .expect("all of it is fresh");
    let slot = ram.slots().next().expect("one slot");
    assert!(reads_as_zero(slot.hva + 3 * PAGE, PAGE));
    let now = pages.counters();
    assert_eq!(
        (now.free, now.reserved),
        (before.free - 1, before.reserved + PAGES - 1)
    );
    drop(ram);
    pages.assert_clean();
}

#[test]
fn pages_that_a_guest_wrote_to_read_as_zero_in_the_next() {
    // No other page exists, so the second guest gets the first one's.
    let Some(pages) = Hugepages::exactly(PAGE, PAGES) else {
        return;
    };
    let plan = planned(&eager(&[&huge(PAGES)]));
    for _ in 0..2 {
        let ram = zeroed(&plan);
        for slot in ram.slots() {
            assert!(reads_as_zero(slot.hva, slot.len));
            scribble(slot.hva, slot.len);
        }
    }
    pages.assert_clean();
}

#[test]
fn gigantic_pages_are_promised_taken_and_given_back() {
    let Some(pages) = Hugepages::take(1 << 30, 1) else {
        return;
    };
    let before = pages.counters();
    let plan = planned(&eager(&["size=1G,hugepages=on,hugepage_size=1G"]));
    let ram = reserved(&plan);
    let slot = ram.slots().next().expect("one slot");
    assert_eq!(pages.counters().reserved, before.reserved + 1);
    assert!(
        PageSize::HUGE_1G.is_aligned(slot.hva.abs_diff(slot.gpa)),
        "{slot:?}"
    );
    drop(ram);
    let (ram, report) = populated(&plan);
    assert_eq!(pages.counters().free, before.free - 1);
    // One page is one piece of work: a second worker would have nothing to do.
    assert_eq!((report.bytes, report.workers.len()), (1 << 30, 1));
    let (ram, placement) = cleared(&plan, ram)
        .check_placement(&Control::default())
        .expect("nothing is bound");
    assert_eq!(placement.checked_pages, 1);
    drop(ram);
    pages.assert_clean();
}

#[test]
fn a_pool_smaller_than_planned_is_refused_with_its_numbers() {
    for node in [None, Some(0)] {
        let Some(pages) = Hugepages::exactly(PAGE, 4) else {
            return;
        };
        let bind = node.map_or(String::new(), |node: u32| format!(",host_numa_node={node}"));
        let request = eager(&[&(huge(PAGES) + &bind)]);
        let plan = plan(&host_claiming(1000), &request).expect("the host claims enough");
        let error = GuestRam::reserve(&plan).expect_err("four pages are not enough");
        let total = pages.counters().total;
        let ReserveError::Short {
            ref shortage,
            ref source,
        } = error
        else {
            panic!("{error:?}");
        };
        let expected = Shortage {
            page: PageSize::HUGE_2M,
            node,
            needed: PAGES,
            available: 4,
            total,
            zones: 1,
            elsewhere: None,
            choices: Vec::new(),
            // It moves.
            memory: shortage.memory,
        };
        assert_eq!(*shortage, expected);
        assert_eq!(source.raw_os_error(), Some(libc::ENOMEM));
        assert_eq!(error.class(), Class::Shortage);
        let grown = total + PAGES - 4;
        let typed = format!("echo {grown} | sudo tee ");
        let fix = error.fix().expect("pages can be added");
        assert!(
            fix.starts_with(&typed) && fix.ends_with("hugepages-2048kB/nr_hugepages"),
            "{fix}"
        );
        assert_eq!(maps_containing("prezero-ram"), [""; 0]);
        pages.assert_clean();
    }
}

#[test]
fn a_slot_that_is_refused_takes_those_before_it_along() {
    let Some(pages) = Hugepages::exactly(PAGE, PAGES) else {
        return;
    };
    let request = eager(&[&huge(8), "size=4M,hugepages=off", &huge(PAGES)]);
    let plan = plan(&host_claiming(1000), &request).expect("the host claims enough");
    let error = GuestRam::reserve(&plan).expect_err("eight pages are missing");
    let ReserveError::Short { shortage, .. } = error else {
        panic!("{error:?}");
    };
    // Asked while the first slot still has its eight: what is short is what has to be added.
    assert_eq!((shortage.needed, shortage.available), (PAGES, PAGES - 8));
    assert_eq!(maps_containing("prezero-ram"), [""; 0]);
    pages.assert_clean();
}

#[test]
fn two_memories_of_one_process_are_independent() {
    let Some(pages) = Hugepages::take(PAGE, 2 * PAGES) else {
        return;
    };
    let before = pages.counters();
    let plan = planned(&eager(&[&huge(PAGES)]));
    let (one, two) = std::thread::scope(|scope| {
        let other = scope.spawn(|| zeroed(&plan));
        (zeroed(&plan), other.join().expect("the other memory"))
    });
    let range = |ram: &GuestRam<_>| ram.slots().next().expect("one slot");
    let (a, b) = (range(&one), range(&two));
    assert!(
        a.hva + a.len <= b.hva || b.hva + b.len <= a.hva,
        "{a:x?} {b:x?}"
    );
    assert_eq!(pages.counters().free, before.free - 2 * PAGES);
    scribble(a.hva, a.len);
    drop(one);
    assert_eq!(pages.counters().free, before.free - PAGES);
    assert!(reads_as_zero(b.hva, b.len));
    drop(two);
    pages.assert_clean();
}

/// The memfd behind the only memory of this test, opened once more.
fn memfd() -> File {
    let fds = fs::read_dir("/proc/self/fd").expect("own descriptors");
    let paths = fds.map(|fd| fd.expect("a descriptor").path());
    let is_ram = |path: &PathBuf| {
        fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("prezero-ram"))
    };
    let path = paths.into_iter().find(is_ram).expect("the memfd is open");
    File::options()
        .write(true)
        .open(path)
        .expect("our own file")
}

#[test]
fn pages_that_are_gone_after_populating_are_an_error() {
    let Some(pages) = Hugepages::take(PAGE, 8) else {
        return;
    };
    let plan = planned(&eager(&[&huge(8)]));
    let ram = cleared(&plan, populated(&plan).0);
    let file = memfd();
    file.set_len(6 * PAGE).expect("it is not sealed");
    file.set_len(8 * PAGE).expect("it is not sealed");
    let failed = ram
        .check_placement(&Control::default())
        .expect_err("two pages are gone");
    assert_eq!(
        failed.error,
        PlacementError::Absent {
            absent: 2,
            pages: 8,
            page: PageSize::HUGE_2M,
            gpa: 6 * PAGE,
        }
    );
    drop((failed, file));
    pages.assert_clean();
}
