//! Populating that is watched, cancelled or late, on real hugepages.

mod requests;

use std::cell::RefCell;
use std::time::{Duration, Instant};

use prezero_memory::{
    Cancel, Class, ClearRequest, Control, GuestRam, NodeProgress, PopulateError, Request, Reserved,
    StoppedBy, Workers, plan,
};
use prezero_testkit::{Hugepages, thread_names};
use requests::{PAGE, eager, huge, planned_on_one_node, reserved};

/// 256 MiB, in eight chunks of 32 MiB for one worker.
const PAGES: u64 = 128;
const CHUNK: u64 = 32 << 20;

/// Stopping from outside is a race with the work, so it is tried this often.
const ATTEMPTS: u32 = 20;

fn one_worker() -> Request {
    Request {
        threads: Some(1),
        ..eager(&[&huge(PAGES)])
    }
}

#[track_caller]
fn stopped(error: &PopulateError) -> (StoppedBy, NodeProgress) {
    match error {
        PopulateError::Stopped { by, nodes, .. } if nodes.len() == 1 => (*by, nodes[0]),
        error => panic!("{error:?}"),
    }
}

/// What was stopped can be populated after all, and then given back.
#[track_caller]
fn assert_can_go_on(ram: GuestRam<Reserved>, workers: Workers, pages: &Hugepages) {
    let (ram, report) = ram
        .populate(&workers, &Control::default())
        .expect("nothing stops it");
    assert_eq!(report.bytes, PAGES * PAGE);
    let (ram, cleared) = ram
        .clear(&workers, &ClearRequest::default(), &Control::default())
        .expect("nothing stops it");
    assert_eq!(cleared.bytes, 0);
    let (ram, placement) = ram
        .check_placement(&Control::default())
        .expect("nothing is bound");
    assert_eq!(placement.checked_pages, PAGES);
    drop((ram, workers));
    assert!(
        !thread_names()
            .iter()
            .any(|name| name.starts_with("prezero-n"))
    );
    pages.assert_clean();
}

#[test]
fn cancelled_work_stops_within_one_chunk_and_can_go_on() {
    let Some(pages) = Hugepages::take(PAGE, PAGES) else {
        return;
    };
    let (plan, before) = (planned_on_one_node(&one_worker()), pages.counters());
    let workers = Workers::start(plan.workers()).expect("one thread");
    for _ in 0..ATTEMPTS {
        let cancel = Cancel::new();
        let control = Control {
            cancel: Some(&cancel),
            ..Control::default()
        };
        // Cancels as soon as a first page is taken, and says how many were by then.
        let (result, taken) = std::thread::scope(|scope| {
            let canceller = scope.spawn(|| {
                let start = Instant::now();
                while pages.counters().free == before.free && start.elapsed().as_secs() < 5 {}
                cancel.cancel();
                before.free - pages.counters().free
            });
            let result = reserved(&plan).populate(&workers, &control);
            (result, canceller.join().expect("no panic"))
        });
        let Err(failed) = result else { continue };
        let (by, node) = stopped(&failed.error);
        assert_eq!((by, node.total), (StoppedBy::Cancel, PAGES * PAGE));
        assert!(
            node.done < node.total && node.done.is_multiple_of(CHUNK),
            "{node:?}"
        );
        // At most the chunk being worked on when the flag was seen to be set, and none after it.
        assert!(
            node.done <= taken * PAGE + CHUNK,
            "{node:?} after {taken} pages"
        );
        assert_eq!(failed.error.class(), Class::Stopped);
        let now = pages.counters();
        assert_eq!(before.free - now.free, node.done / PAGE);
        assert_eq!(now.reserved - before.reserved, PAGES - node.done / PAGE);
        return assert_can_go_on(failed.ram, workers, &pages);
    }
    panic!("{ATTEMPTS} times all of it was done before it could be cancelled");
}

#[test]
fn work_that_is_late_says_how_far_it_came_and_gives_everything_back() {
    let Some(pages) = Hugepages::take(PAGE, PAGES) else {
        return;
    };
    let plan = planned_on_one_node(&one_worker());
    let workers = Workers::start(plan.workers()).expect("one thread");
    // Between the first page and the last, wherever that is on this machine at this moment.
    let mut allowed = Duration::from_millis(8);
    for _ in 0..ATTEMPTS {
        let ram = reserved(&plan);
        let control = Control {
            deadline: Some(Instant::now() + allowed),
            ..Control::default()
        };
        let Err(failed) = ram.populate(&workers, &control) else {
            allowed /= 2;
            continue;
        };
        if stopped(&failed.error).1.done == 0 {
            allowed += allowed / 2;
            continue;
        }
        let (by, node) = stopped(&failed.error);
        assert_eq!((by, node.total), (StoppedBy::Deadline, PAGES * PAGE));
        let text = failed.error.to_string();
        assert!(
            text.starts_with("Deadline passed with ")
                && text.contains(" of 256 MiB populated on node 0, after ")
                && text.ends_with(" GB/s"),
            "{text}"
        );
        drop(failed);
        return pages.assert_clean();
    }
    panic!("{ATTEMPTS} deadlines were before the first page or after the last");
}

#[test]
fn cancelling_before_the_work_takes_no_page() {
    let Some(pages) = Hugepages::take(PAGE, PAGES) else {
        return;
    };
    let (plan, before) = (planned_on_one_node(&one_worker()), pages.counters());
    let workers = Workers::start(plan.workers()).expect("one thread");
    let cancel = Cancel::new();
    cancel.cancel();
    let control = Control {
        cancel: Some(&cancel),
        ..Control::default()
    };
    let failed = reserved(&plan)
        .populate(&workers, &control)
        .expect_err("it is cancelled");
    assert_eq!(stopped(&failed.error).1.done, 0);
    assert_eq!(pages.counters().free, before.free);
    assert_can_go_on(failed.ram, workers, &pages);
}

#[test]
fn progress_only_grows_and_ends_at_the_total_of_each_node() {
    let Some(pages) = Hugepages::take(PAGE, PAGES) else {
        return;
    };
    let (host, _) = requests::host_with_a_second_node(PAGES - 1);
    let plan = plan(&host, &eager(&[&huge(PAGES)])).expect("the host has enough");
    let workers = Workers::start(plan.workers()).expect("a few threads");
    let (seen, caller) = (RefCell::new(Vec::new()), std::thread::current().id());
    let progress = |nodes: &[NodeProgress]| {
        assert_eq!(std::thread::current().id(), caller);
        seen.borrow_mut().push(nodes.to_vec());
    };
    let control = Control {
        progress: Some(&progress),
        ..Control::default()
    };
    let (ram, report) = reserved(&plan)
        .populate(&workers, &control)
        .expect("nothing stops it");
    let seen = seen.into_inner();
    for pair in seen.windows(2) {
        assert!(
            pair[0]
                .iter()
                .zip(&pair[1])
                .all(|(a, b)| a.node == b.node && a.done <= b.done)
        );
    }
    let last = seen.last().expect("told once at least");
    assert_eq!(last.len(), 2);
    assert!(
        last.iter()
            .all(|node| node.done == node.total && node.total > 0),
        "{last:?}"
    );
    assert_eq!(last.iter().map(|node| node.done).sum::<u64>(), report.bytes);
    drop((ram, workers));
    pages.assert_clean();
}
