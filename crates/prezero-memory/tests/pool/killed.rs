//! Killed at any moment, nothing is lost but cleanliness.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::thread;
use std::time::{Duration, Instant};

use prezero_memory::pool::{Pool, PoolRequest, ScrubRequest};
use prezero_memory::{Control, Host, PageBytes, PageSize};

use crate::children::{Process, pool_dir, say, wait_to_be_killed};
use crate::fixture::{
    Fixture, PAGE, SEGMENT, assert_clean_is_zero, counts, request, scrub, scrub_as, stain, take,
};

const SEGMENTS: u64 = 16;

/// Waits for a random moment within one of `points` equal parts of `whole`.
fn wait(point: u64, points: u64, whole: Duration) {
    let part = u64::try_from(whole.as_micros()).expect("a short time") / points;
    let within = RandomState::new().build_hasher().finish() % part;
    let moment = Duration::from_micros(point * part + within);
    // Shown with the failure that it leads to.
    eprintln!("point {point} of {points}: after {moment:?}");
    thread::sleep(moment);
}

#[test]
#[ignore = "the part of another process"]
fn child_scrubs() {
    let Some(dir) = pool_dir() else { return };
    let pool = Pool::open(&dir).expect("a pool");
    // Slow enough that the parent's moments are within the work.
    let request = ScrubRequest {
        rate: Some(256 << 20),
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
        // 64 MiB take 250 ms.
        wait(point, points, Duration::from_millis(250));
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
#[ignore = "the part of another process"]
fn child_exchanges() {
    let Some(dir) = pool_dir() else { return };
    let request = ScrubRequest {
        exchange: true,
        ..ScrubRequest::default()
    };
    let (pool, host) = (Pool::open(&dir).expect("a pool"), Host::probe());
    say("begins");
    pool.scrub(&host, &request, &Control::default())
        .expect("nothing stops it");
    say("ends");
    wait_to_be_killed();
}

#[test]
fn a_killed_exchange_loses_nothing_but_cleanliness() {
    // Large enough that most moments are within a segment, and not a page more than the pool has.
    const LARGE: u64 = 8 * SEGMENT;
    let Some(fixture) = Fixture::exactly(4 * LARGE / PAGE) else {
        return;
    };
    let (pool, _) = fixture.create(4 * LARGE, LARGE).expect("pages are there");
    let (mut between, mut torn) = (0, 0);
    // How long a whole exchange takes here and now.
    let mut span = Duration::from_millis(10);
    for point in 0..30_u64 {
        take(&pool, u64::MAX).iter().for_each(stain);
        let mut child = Process::start("killed::child_exchanges", &fixture.dir());
        child.hear();
        let start = Instant::now();
        if point == 0 {
            child.hear();
            span = start.elapsed();
        } else {
            wait(point, 30, span);
        }
        child.kill();
        let [clean, dirty, leased, retired, incomplete] = counts(&pool);
        let all = (clean + dirty + incomplete, leased, retired);
        assert_eq!(all, (4, 0, 0), "{point}");
        between += u64::from(clean + incomplete > 0 && clean < 4);
        torn += incomplete;
        assert_clean_is_zero(&pool);
        // What is incomplete counts as there.
        let (_, created) = fixture
            .create(4 * LARGE, LARGE)
            .expect("as much as there is");
        assert_eq!(created.segments, 0, "{point}");
        // Filled up by either.
        let exchange = point % 2 == 0;
        let request = ScrubRequest {
            exchange,
            ..ScrubRequest::default()
        };
        let report = scrub_as(&pool, &request);
        assert_eq!(report.left.len(), 0, "{point}: {report:?}");
        assert_eq!(counts(&pool), [4, 0, 0, 0, 0], "{point}");
        assert_clean_is_zero(&pool);
    }
    assert_ne!(between, 0, "no exchange was killed at its work");
    println!("{between} killed between, {torn} torn, {span:?} for all");
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

fn kill_creators(fixture: &Fixture, points: u64) {
    for point in 0..points {
        let mut child = Process::start("killed::child_creates", &fixture.dir());
        child.hear();
        wait(point, points, Duration::from_millis(50));
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

#[test]
fn a_killed_create_leaves_no_segment_that_is_not_whole() {
    let Some(fixture) = Fixture::new(64) else {
        return;
    };
    kill_creators(&fixture, 10);
}

mod slow {
    use super::*;

    #[test]
    #[ignore = "slow"]
    fn thirty_killed_scrubbers_leave_dirty_what_is_not_clean() {
        let Some(fixture) = Fixture::new(SEGMENTS * 2) else {
            return;
        };
        kill_scrubbers(&fixture, 30);
    }

    #[test]
    #[ignore = "slow"]
    fn thirty_killed_creates_leave_no_segment_that_is_not_whole() {
        let Some(fixture) = Fixture::new(64) else {
            return;
        };
        kill_creators(&fixture, 30);
    }
}
