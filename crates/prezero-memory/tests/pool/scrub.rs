//! Scrubbing, draining, destroying.

use std::time::{Duration, Instant};

use prezero_memory::pool::ScrubRequest;
use prezero_memory::{Cancel, Control, Host, Method, MethodChoice, NodeProgress, StoppedBy};

use crate::fixture::{
    Fixture, PAGE, SEGMENT, assert_clean_is_zero, counts, scrub, scrub_as, stain, take,
};

/// A pool in which every segment is stained.
fn stained(fixture: &Fixture, segments: u64) -> prezero_memory::pool::Pool {
    let pool = fixture.pool(segments);
    take(&pool, u64::MAX).iter().for_each(stain);
    assert_eq!(counts(&pool), [0, segments, 0, 0, 0]);
    pool
}

#[test]
fn every_method_clears() {
    let Some(fixture) = Fixture::new(6) else {
        return;
    };
    for method in Method::available() {
        let pool = stained(&fixture, 3);
        let report = scrub_as(
            &pool,
            &ScrubRequest {
                choice: MethodChoice::Fixed(method),
                ..ScrubRequest::default()
            },
        );
        assert_eq!((report.segments, report.choices[0].method), (3, method));
        assert_eq!(counts(&pool), [3, 0, 0, 0, 0]);
        assert_clean_is_zero(&pool);
    }
}

#[test]
fn a_rate_is_kept() {
    let Some(fixture) = Fixture::new(32) else {
        return;
    };
    let pool = stained(&fixture, 16);
    // 64 MiB at 128 MiB a second.
    let rate = 128 << 20;
    let request = ScrubRequest {
        rate: Some(rate),
        threads: Some(1),
        ..ScrubRequest::default()
    };
    let told = std::cell::RefCell::new(Vec::new());
    let progress = |nodes: &[NodeProgress]| told.borrow_mut().push((nodes[0].done, nodes[0].total));
    let control = Control {
        progress: Some(&progress),
        ..Control::default()
    };
    let start = Instant::now();
    let report = pool
        .scrub(&Host::probe(), &request, &control)
        .expect("nothing stops it");
    let time = start.elapsed();
    assert_eq!(report.segments, 16);
    let (told, all) = (told.into_inner(), 16 * SEGMENT);
    assert!(
        told.is_sorted() && told.iter().all(|(_, total)| *total == all),
        "{told:?}"
    );
    assert_eq!(told.last(), Some(&(all, all)));
    let expected = Duration::from_millis(500);
    // Slower only where the machine is too busy for idle threads.
    assert!(time >= expected, "{time:?}");
    assert!(time < 4 * expected, "{time:?}");
    assert_clean_is_zero(&pool);
}

#[test]
fn exchanged_segments_keep_their_ids_and_are_zero() {
    let Some(fixture) = Fixture::exactly(6) else {
        return;
    };
    // Not a page is left.
    let pool = stained(&fixture, 3);
    assert_eq!(fixture.pages.counters().available(), 0);
    let before = fixture.names();
    let request = ScrubRequest {
        exchange: true,
        ..ScrubRequest::default()
    };
    let report = scrub_as(&pool, &request);
    assert_eq!((report.segments, report.left.len()), (3, 0), "{report:?}");
    assert_eq!(counts(&pool), [3, 0, 0, 0, 0]);
    let id = |name: &String| name[8..24].to_owned();
    let ids = |names: Vec<String>| names.iter().map(id).collect::<Vec<_>>();
    assert_eq!(ids(fixture.names()), ids(before));
    assert_clean_is_zero(&pool);
}

#[test]
fn a_stopped_scrub_leaves_the_rest_dirty_and_says_so() {
    let Some(fixture) = Fixture::new(16) else {
        return;
    };
    let pool = stained(&fixture, 8);
    let cancel = Cancel::new();
    let told = std::cell::RefCell::new(Vec::new());
    let progress = |nodes: &[NodeProgress]| {
        let done: u64 = nodes.iter().map(|node| node.done).sum();
        told.borrow_mut()
            .push((done, nodes.iter().map(|node| node.total).sum::<u64>()));
        if done >= 3 * SEGMENT {
            cancel.cancel();
        }
    };
    let control = Control {
        cancel: Some(&cancel),
        progress: Some(&progress),
        ..Control::default()
    };
    let report = pool
        .scrub(&Host::probe(), &ScrubRequest::default(), &control)
        .expect("no error");
    assert_eq!(report.stopped, Some(StoppedBy::Cancel));
    assert_eq!((report.segments, counts(&pool)), (3, [3, 5, 0, 0, 0]));
    let told = told.into_inner();
    assert!(
        told.is_sorted() && told.iter().all(|(_, all)| *all == 8 * SEGMENT),
        "{told:?}"
    );
    assert_clean_is_zero(&pool);
}

#[test]
fn draining_gives_back_dirty_segments_first_and_no_more_than_asked() {
    let Some(fixture) = Fixture::new(16) else {
        return;
    };
    drop(fixture.create(4 * PAGE, PAGE).expect("pages are there"));
    let pool = fixture.pool(4);
    drop(take(&pool, SEGMENT));
    let before = fixture.pages.counters().free;
    let drained = pool
        .drain(Some(SEGMENT), Some(SEGMENT + 1))
        .expect("readable");
    assert_eq!((drained.segments, drained.bytes), (2, 2 * SEGMENT));
    assert_eq!(counts(&pool), [6, 0, 0, 0, 0], "the dirty one is gone");
    assert_eq!(fixture.pages.counters().free, before + 4);
    let lease = take(&pool, PAGE);
    let drained = pool.drain(None, None).expect("readable");
    assert_eq!(
        (drained.segments, drained.busy.len()),
        (5, 1),
        "{drained:?}"
    );
    assert_eq!(drained.busy[0].0, lease[0].path());
    assert_eq!(drained.busy[0].1[0].pid, std::process::id());
    drop(lease);
    let destroyed = pool.destroy().expect("readable");
    assert_eq!((destroyed.drained.segments, destroyed.left.len()), (1, 0));
    assert!(!fixture.dir().exists());
    fixture.pages.assert_clean();
}

#[test]
fn nothing_stays_behind_in_this_process() {
    let Some(fixture) = Fixture::new(8) else {
        return;
    };
    let maps = || prezero_testkit::maps_containing("prezero-private-").len();
    let threads = || {
        let names = prezero_testkit::thread_names();
        names
            .iter()
            .filter(|name| name.starts_with("prezero-n"))
            .count()
    };
    let files = || {
        let fds = std::fs::read_dir("/proc/self/fd")
            .expect("own descriptors")
            .flatten();
        let targets = fds.filter_map(|fd| std::fs::read_link(fd.path()).ok());
        targets
            .filter(|to| to.to_string_lossy().contains("prezero-private-"))
            .count()
    };
    {
        let pool = stained(&fixture, 2);
        scrub(&pool);
        drop(take(&pool, SEGMENT));
        let refused = fixture.create(SEGMENT, SEGMENT);
        assert!(refused.is_err());
        pool.destroy().expect("readable");
    }
    assert_eq!((maps(), threads(), files()), (0, 0, 0));
}
