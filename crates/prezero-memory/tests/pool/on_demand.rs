//! A lease for somebody who cannot be told what is in it: zero, whatever it takes.

use prezero_memory::pool::{Pool, PoolError, ScrubReport, ScrubRequest};
use prezero_memory::{Cancel, Class, Control, Host, Origin};
use prezero_testkit::maps_containing;

use crate::fixture::{Fixture, PAGE, SEGMENT, View, counts, stain, take, take_only};

fn take_clean(pool: &Pool, request: &ScrubRequest) -> (prezero_memory::pool::Lease, ScrubReport) {
    pool.take_one_clean(SEGMENT, None, &Host::probe(), request, &Control::default())
        .expect("one is free")
}

#[test]
fn a_dirty_segment_is_cleared_before_it_is_leased() {
    let Some(fixture) = Fixture::new(2) else {
        return;
    };
    let pool = fixture.pool(1);
    stain(&take_only(&pool));
    let (lease, report) = take_clean(&pool, &ScrubRequest::default());
    assert_eq!((report.segments, report.bytes), (1, SEGMENT));
    assert_eq!(lease.origin(), Origin::Clean);
    // Leased, it is dirty by name, and nothing of ours maps it.
    assert_eq!(counts(&pool), [0, 0, 1, 0, 0]);
    assert_eq!(lease.path().extension(), Some("dirty".as_ref()));
    let mount = fixture.mount().to_str().expect("UTF-8").to_owned();
    assert_eq!(maps_containing(&mount), [] as [String; 0]);
    assert_eq!(View::of(lease.file(), SEGMENT).stained(), 0);
    drop(lease);
    assert_eq!(counts(&pool), [0, 1, 0, 0, 0]);
}

#[test]
fn a_clean_segment_is_leased_as_it_is() {
    let Some(fixture) = Fixture::new(4) else {
        return;
    };
    let pool = fixture.pool(2);
    stain(&take(&pool, SEGMENT).remove(0));
    assert_eq!(counts(&pool), [1, 1, 0, 0, 0]);
    let (lease, report) = take_clean(&pool, &ScrubRequest::default());
    assert_eq!((report.segments, report.bytes), (0, 0), "{report:?}");
    assert_eq!(View::of(lease.file(), SEGMENT).stained(), 0);
    assert_eq!(counts(&pool), [0, 1, 1, 0, 0]);
}

#[test]
fn an_exchanged_segment_is_leased_with_fresh_pages() {
    let Some(fixture) = Fixture::new(4) else {
        return;
    };
    let pool = fixture.pool(1);
    let dirty = take_only(&pool);
    stain(&dirty);
    drop(dirty);
    let request = ScrubRequest {
        exchange: true,
        ..ScrubRequest::default()
    };
    let (lease, report) = take_clean(&pool, &request);
    assert_eq!((report.segments, report.bytes), (1, SEGMENT));
    assert_eq!(lease.origin(), Origin::Clean);
    assert_eq!(View::of(lease.file(), SEGMENT).stained(), 0);
    assert_eq!(counts(&pool), [0, 0, 1, 0, 0]);
}

#[test]
fn what_cannot_be_leased_clean_is_an_error_and_stays_dirty() {
    let Some(fixture) = Fixture::new(2) else {
        return;
    };
    let pool = fixture.pool(1);
    let (host, request) = (Host::probe(), ScrubRequest::default());
    let take = |bytes, control: &Control<'_>| {
        pool.take_one_clean(bytes, None, &host, &request, control)
            .expect_err("not to be had")
    };
    let error = take(PAGE, &Control::default());
    assert!(matches!(error, PoolError::NoSegment { .. }), "{error}");
    let lease = take_only(&pool);
    let error = take(SEGMENT, &Control::default());
    assert!(matches!(error, PoolError::Busy { .. }), "{error}");
    drop(lease);
    let cancel = Cancel::new();
    cancel.cancel();
    let control = Control {
        cancel: Some(&cancel),
        ..Control::default()
    };
    assert_eq!(take(SEGMENT, &control).class(), Class::Stopped);
    assert_eq!(counts(&pool), [0, 1, 0, 0, 0]);
}
