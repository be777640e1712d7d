//! A pool that says of itself that nobody may clear its dirty segments.

use std::fs;
use std::time::Duration;

use prezero_memory::pool::{Pool, PoolError, PoolRequest, ScrubRequest};
use prezero_memory::{Class, Control, Host};

use crate::fixture::{
    Fixture, SEGMENT, assert_clean_is_zero, counts, open_directory, request, scrub, stain, take,
    up_to,
};
use crate::pin::seen_by_a_pin;

fn create(fixture: &Fixture, segments: u64, exchange_only: bool) -> Result<Pool, PoolError> {
    let asked = PoolRequest {
        exchange_only,
        ..request(segments * SEGMENT, SEGMENT)
    };
    let (host, control) = (Host::probe(), Control::default());
    Pool::create(&fixture.dir(), &asked, &host, None, &control).map(|(pool, _)| pool)
}

#[test]
fn nobody_leases_its_dirty_segments() {
    let Some(fixture) = Fixture::new(4) else {
        return;
    };
    let pool = create(&fixture, 2, true).expect("pages are there");
    take(&pool, SEGMENT).iter().for_each(stain);
    assert_eq!(counts(&pool), [1, 1, 0, 0, 0]);
    let found = pool.lock(&up_to(u64::MAX)).expect("readable");
    assert_eq!((found.bytes(), found.busy), (SEGMENT, 0));
    drop(found);
    let (host, default) = (Host::probe(), ScrubRequest::default());
    let take_clean = |request: &ScrubRequest| {
        pool.take_one_clean(SEGMENT, None, &host, request, &Control::default())
    };
    let (lease, report) = take_clean(&default).expect("one is clean");
    assert_eq!(report.bytes, 0);
    let dir = fixture.dir();
    let dir = dir.display();
    for error in [
        take_clean(&default).expect_err("only a dirty one"),
        pool.take_one(SEGMENT, None).expect_err("only a dirty one"),
    ] {
        assert_eq!(error.class(), Class::Shortage);
        assert_eq!(
            error.to_string(),
            format!(
                "{dir} has no clean segment of 4 MiB; 1 are dirty, and the pool is exchange-only"
            )
        );
        assert_eq!(error.fix(), Some(format!("prezero pool scrub {dir}")));
    }
    assert_eq!(counts(&pool), [0, 1, 1, 0, 0]);
    let exchange = ScrubRequest {
        exchange: true,
        ..default
    };
    let (other, report) = take_clean(&exchange).expect("exchanged for it");
    assert_eq!(report.bytes, SEGMENT);
    drop((lease, other));
    let report = scrub(&pool);
    assert_eq!((report.segments, report.exchange), (2, true));
    assert_clean_is_zero(&pool);
}

#[test]
fn a_scrub_exchanges_without_being_told() {
    let Some(fixture) = Fixture::new(3) else {
        return;
    };
    let pool = create(&fixture, 1, true).expect("pages are there");
    assert_eq!(seen_by_a_pin(&fixture, &pool, false), 0xa5);
}

#[test]
fn it_stays_so_until_it_is_destroyed() {
    let Some(fixture) = Fixture::new(4) else {
        return;
    };
    let is_so = |pool: &Pool| {
        let status = pool.status().expect("readable");
        assert_eq!(status.problems, []);
        assert_eq!(
            status.exchange_only,
            pool.is_exchange_only().expect("readable")
        );
        status.exchange_only
    };
    assert!(is_so(&create(&fixture, 1, true).expect("pages are there")));
    assert!(is_so(&create(&fixture, 2, false).expect("pages are there")));
    let pool = create(&fixture, 2, true).expect("nothing is to be done");
    pool.drain(None, None).expect("readable");
    assert!(is_so(&pool));
    let destroyed = pool.destroy().expect("readable");
    assert_eq!(destroyed.left.len(), 0);
    assert!(!fixture.dir().exists());
    assert!(!is_so(
        &create(&fixture, 1, false).expect("pages are there")
    ));

    // What is there may have been cleared.
    let error = create(&fixture, 2, true).expect_err("a segment is there");
    assert!(matches!(error, PoolError::Cleared(_)), "{error}");
    assert_eq!(error.class(), Class::Usage);
    let pool = Pool::open(&fixture.dir()).expect("a pool");
    assert!(!is_so(&pool));
    pool.drain(None, None).expect("readable");
    assert!(is_so(&create(&fixture, 2, true).expect("pages are there")));
}

#[test]
fn what_keeps_the_directory_keeps_the_marker() {
    let Some(fixture) = Fixture::new(2) else {
        return;
    };
    let pool = create(&fixture, 1, true).expect("pages are there");
    fs::write(fixture.dir().join("notes"), "").expect("an empty file");
    pool.destroy().expect("readable");
    let pool = Pool::open(&fixture.dir()).expect("a pool");
    assert!(pool.is_exchange_only().expect("readable"));
}

/// Or else segments that are being added would be those of a pool that may be cleared.
#[test]
fn destroying_waits_for_a_create_under_way() {
    let Some(fixture) = Fixture::new(2) else {
        return;
    };
    let pool = create(&fixture, 1, true).expect("pages are there");
    let creator = open_directory(&fixture.dir());
    creator.lock().expect("nobody else has it");
    std::thread::scope(|scope| {
        let destroyed = scope.spawn(|| pool.destroy());
        std::thread::sleep(Duration::from_millis(100));
        assert!(fixture.dir().join("exchange-only").exists());
        drop(creator);
        let destroyed = destroyed.join().expect("no panic").expect("readable");
        assert_eq!(destroyed.left.len(), 0);
    });
}
