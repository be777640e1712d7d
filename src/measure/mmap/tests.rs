use std::sync::{Mutex, MutexGuard, PoisonError};

use prezero_host::{HugepagePool, NodePool};

use super::*;

/// For tests that switch transparent hugepages off, which is the process's and not a thread's.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn work(cancel: &Cancel, threads: usize) -> Work<'_> {
    Work {
        page: PageSize::BASE,
        bytes: 4 << 20,
        cpus: super::super::cpus::in_turn(&Host::probe(), threads),
        cancel,
    }
}

#[test]
fn every_loop_of_every_thread_is_timed_and_the_first_of_each_function_is_not_counted() {
    let _turn = turn();
    let cancel = Cancel::new();
    let work = work(&cancel, 2);
    let mapped = std::cell::Cell::new(0);
    let outcome = measure(&work, &Function::ALL, 3, &|done| mapped.set(done)).expect("8 MiB");
    assert_eq!(mapped.get(), 2 * (3 + 1) * (8 << 20));
    let [demand, populate] = &outcome.measured[..] else {
        panic!("{outcome:?}");
    };
    assert_eq!(demand.function, Function::Demand);
    assert_eq!(populate.function, Function::Populate);
    for row in [demand, populate] {
        assert_eq!(row.gbps.len(), 3);
        let counts: Vec<usize> = row.times.iter().map(Vec::len).collect();
        assert_eq!(counts, [2, 2, 2]);
        assert!(
            row.times
                .iter()
                .flatten()
                .all(|time| *time > Duration::ZERO)
        );
        assert!(row.perf.error_percent.is_some());
        // All or nothing.
        assert_eq!(row.counts.is_none(), outcome.uncounted.is_some());
    }
}

#[test]
fn a_loop_that_maps_nothing_is_what_the_instrument_adds() {
    let _turn = turn();
    let cancel = Cancel::new();
    let work = work(&cancel, 2);
    let outcome = measure(&work, &[Function::Demand], 1, &|_| ()).expect("8 MiB");
    let (own, shortest) = outcome.own;
    assert_eq!(own.samples.len(), 11);
    // The touches of 2,048 base pages are not in it.
    assert!(own.time < shortest, "{own:?} of {shortest:?}");
}

#[test]
fn each_page_is_there_after_it_was_touched_or_populated() {
    const PAGES: usize = 64;
    let page = PageSize::BASE;
    for populate in [false, true] {
        let mut memory = sys::Fresh::map(PAGES * 4096, page, populate).expect("256 KiB");
        assert_eq!(memory.resident() == PAGES, populate);
        memory.touch(page, 0..PAGES / 2);
        assert!(memory.resident() >= PAGES / 2);
        // What is beyond the end is left out.
        memory.touch(page, PAGES / 2..10 * PAGES);
        assert_eq!(memory.resident(), PAGES);
    }
}

#[test]
fn transparent_hugepages_are_back_after_base_pages_were_measured() {
    let _turn = turn();
    for before in [false, true] {
        sys::set_thp_disabled(before).expect("no kernel refuses it");
        let without = WithoutThp::new();
        assert!(sys::thp_disabled());
        drop(without);
        assert_eq!(sys::thp_disabled(), before);
    }
    sys::set_thp_disabled(false).expect("no kernel refuses it");
}

#[test]
fn a_cancelled_measurement_says_how_far_it_came() {
    let _turn = turn();
    let cancel = Cancel::new();
    cancel.cancel();
    let failure = measure(&work(&cancel, 1), &Function::ALL, 5, &|_| ()).expect_err("cancelled");
    assert_eq!(failure.class, Class::Stopped);
    assert!(failure.message.contains("0 of 12 loops"), "{failure:?}");
    // In the middle of a loop there is no result either.
    assert!(pass::run(&work(&cancel, 2), Some(Function::Demand)).is_ok_and(|pass| pass.is_none()));
}

#[test]
fn more_than_the_host_has_is_refused_with_what_to_type() {
    let cancel = Cancel::new();
    let mut host = Host::probe();
    host.mem_available = Some(64 << 20);
    host.limits.file_size = Some(0);
    let mut work = work(&cancel, 2);
    check(&host, &work).expect("8 MiB of 64, and no file");
    work.bytes = 1 << 30;
    let failure = check(&host, &work).expect_err("2 GiB of 64 MiB");
    assert_eq!(failure.class, Class::Shortage);
    assert_eq!(failure.fix.as_deref(), Some("-s 32M or less"));

    work.page = PageSize::HUGE_2M;
    host.pools = vec![HugepagePool {
        page_size: PageSize::HUGE_2M,
        total: 16,
        free: 16,
        reserved: 0,
        surplus: 0,
        overcommit: 0,
    }];
    for node in &mut host.nodes {
        node.pools = host.pools.iter().map(NodePool::from).collect();
    }
    work.bytes = 16 << 20;
    check(&host, &work).expect("all 16 pages, and still no file");
    work.bytes = 1 << 30;
    let failure = check(&host, &work).expect_err("2 GiB of 32 MiB, and 64 MiB for more");
    assert!(failure.message.contains("1024 pages"), "{failure:?}");
    assert_eq!(failure.fix.as_deref(), Some("-s 48M or less"));
    work.page = PageSize::HUGE_1G;
    let failure = check(&host, &work).expect_err("no such pool");
    assert_eq!(
        (failure.class, failure.fix.as_deref()),
        (Class::Host, Some("-p 4K or -p 2M"))
    );
}

#[test]
fn the_rate_is_perfs_all_bytes_of_a_thread_by_all_of_its_time() {
    let loops = |times: &[&[u64]]| -> Vec<Vec<Duration>> {
        let of = |times: &&[u64]| times.iter().copied().map(Duration::from_secs).collect();
        times.iter().map(of).collect()
    };
    // Not the mean of the loops' rates, which is 0.75.
    let one = PerfRate::of(1, &loops(&[&[1], &[2]])).expect("loops");
    let wanted = 2.0 / 3.0;
    assert!((one.bytes_per_second - wanted).abs() < 1e-9, "{one:?}");
    assert_eq!(one.error_percent, None);
    // Threads of 9 and 11 s: √2 of σ, by √2 threads, of 10 s.
    let two = PerfRate::of(5, &loops(&[&[4, 5], &[5, 6]])).expect("loops");
    assert!((two.bytes_per_second - 1.0).abs() < 1e-9, "{two:?}");
    assert!((two.error_percent.expect("two threads") - 10.0).abs() < 1e-9);
    assert_eq!(PerfRate::of(1, &[]), None);
}
