//! Killed at any moment, nothing is lost but cleanliness.

use std::time::Duration;

use prezero_memory::pool::{Pool, PoolRequest, ScrubRequest};
use prezero_memory::{Control, Host, PageBytes, PageSize};

use crate::children::{Process, pool_dir, say};
use crate::fixture::{Fixture, SEGMENT, assert_clean_is_zero, counts, request, scrub, stain, take};

const SEGMENTS: u64 = 16;

#[test]
#[ignore = "the part of another process"]
fn child_scrubs() {
    let Some(dir) = pool_dir() else { return };
    let pool = Pool::open(&dir).expect("a pool");
    // Slow enough that the parent's moments are within the work.
    let request = ScrubRequest {
        rate: Some(256 << 20),
        exchange: dir.with_extension("exchange").exists(),
        ..ScrubRequest::default()
    };
    say("begins");
    pool.scrub(&Host::probe(), &request, &Control::default())
        .expect("nothing stops it");
}

fn kill_scrubbers(fixture: &Fixture, points: u64) {
    let pool = fixture.pool(SEGMENTS);
    let mut between = 0;
    for point in 0..points {
        take(&pool, u64::MAX).iter().for_each(stain);
        let mut child = Process::start("killed::child_scrubs", &fixture.dir());
        child.hear();
        // 64 MiB take 250 ms; odd fractions, so that all parts of a segment's turn are met.
        std::thread::sleep(Duration::from_micros(
            point * 250_000 / points + point * 37 % 1000,
        ));
        child.kill();
        let [clean, dirty, leased, retired, incomplete] = counts(&pool);
        assert_eq!(
            (clean + dirty, leased, retired, incomplete),
            (SEGMENTS, 0, 0, 0),
            "{point}"
        );
        between += u64::from(clean > 0 && dirty > 0);
        assert_clean_is_zero(&pool);
    }
    assert_ne!(between, 0, "no scrubber was killed at its work");
    assert_eq!(scrub(&pool).segments, SEGMENTS);
    assert_clean_is_zero(&pool);
}

#[test]
fn a_killed_scrubber_leaves_dirty_what_is_not_clean() {
    let Some(fixture) = Fixture::new(SEGMENTS * 2) else {
        return;
    };
    kill_scrubbers(&fixture, 10);
}

#[test]
#[ignore = "slow"]
fn thirty_killed_scrubbers_leave_dirty_what_is_not_clean() {
    let Some(fixture) = Fixture::new(SEGMENTS * 2) else {
        return;
    };
    kill_scrubbers(&fixture, 30);
}

#[test]
fn a_killed_exchange_loses_at_most_the_segment_at_hand() {
    let Some(fixture) = Fixture::new(SEGMENTS * 2 + 2) else {
        return;
    };
    std::fs::write(fixture.dir().with_extension("exchange"), "").expect("an empty file");
    let pool = fixture.pool(SEGMENTS);
    for point in 1..6 {
        take(&pool, u64::MAX).iter().for_each(stain);
        let mut child = Process::start("killed::child_scrubs", &fixture.dir());
        child.hear();
        std::thread::sleep(Duration::from_millis(point * 40));
        child.kill();
        let [clean, dirty, leased, retired, incomplete] = counts(&pool);
        // Published before the old one was removed: one more, not one less, while pages are left.
        assert!(
            (SEGMENTS - 1..=SEGMENTS + 1).contains(&(clean + dirty)),
            "{clean} + {dirty}"
        );
        assert_eq!((leased, retired, incomplete), (0, 0, 0));
        assert_clean_is_zero(&pool);
        if clean + dirty < SEGMENTS {
            fixture
                .create(SEGMENTS * SEGMENT, SEGMENT)
                .expect("its pages are free");
        } else if clean + dirty > SEGMENTS {
            pool.drain(None, Some(SEGMENT)).expect("readable");
        }
    }
}

#[test]
#[ignore = "the part of another process"]
fn child_creates() {
    let Some(dir) = pool_dir() else { return };
    let progress = |nodes: &[prezero_memory::NodeProgress]| {
        if nodes.iter().any(|node| node.done > 0) {
            say("populates");
        }
    };
    let control = Control {
        progress: Some(&progress),
        ..Control::default()
    };
    let (host, mut asked) = (Host::probe(), request(32 * SEGMENT, SEGMENT));
    loop {
        say("begins");
        let (pool, _) = Pool::create(&dir, &asked, &host, Some(1), &control).expect("pages");
        pool.destroy().expect("readable");
        asked = PoolRequest {
            segment: PageBytes::new(SEGMENT, PageSize::HUGE_2M).expect("pages"),
            ..asked
        };
    }
}

#[test]
fn a_killed_create_leaves_no_segment_that_is_not_whole() {
    let Some(fixture) = Fixture::new(64) else {
        return;
    };
    for point in 0..10 {
        let mut child = Process::start("killed::child_creates", &fixture.dir());
        child.hear();
        std::thread::sleep(Duration::from_millis(point * 5));
        child.kill();
        if !fixture.dir().exists() {
            continue;
        }
        let pool = Pool::open(&fixture.dir()).expect("a pool");
        let status = pool.status().expect("readable");
        assert!(status.problems.is_empty(), "{status:?}");
        assert_clean_is_zero(&pool);
        pool.destroy().expect("readable");
        fixture.pages.assert_clean();
    }
}
