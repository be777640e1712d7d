//! Waiting for releases, and scrubbing as they come.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use prezero_memory::pool::{Pool, PoolError, ScrubRequest, State};
use prezero_memory::{Cancel, Control, Host};

use crate::children::{Process, eventually, pool_dir, say, wait_to_be_killed};
use crate::fixture::{
    Fixture, SEGMENT, View, assert_clean_is_zero, counts, open, stain, take, take_only,
};

#[test]
fn a_wait_ends_with_the_last_mapping() {
    let Some(fixture) = Fixture::new(2) else {
        return;
    };
    let pool = fixture.pool(1);
    let lease = take_only(&pool);
    let view = View::of(lease.file(), SEGMENT);
    let watch = pool.watch().expect("a directory");
    let control = Control::default();
    drop(lease);
    assert!(
        !watch
            .wait(&control, Duration::from_millis(50))
            .expect("no error")
    );
    drop(view);
    assert!(
        watch
            .wait(&control, Duration::from_secs(10))
            .expect("no error")
    );
    eventually("it is free", || take(&pool, u64::MAX).len() == 1);
}

#[test]
fn a_wait_ends_when_it_is_told_to() {
    let Some(fixture) = Fixture::new(2) else {
        return;
    };
    let watch = fixture.pool(1).watch().expect("a directory");
    let start = Instant::now();
    let control = Control {
        deadline: Some(start + Duration::from_millis(50)),
        ..Control::default()
    };
    assert!(
        !watch
            .wait(&control, Duration::from_secs(60))
            .expect("no error")
    );
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
#[ignore = "the part of another process"]
fn child_stains_all() {
    let Some(dir) = pool_dir() else { return };
    let leases = take(&Pool::open(&dir).expect("a pool"), u64::MAX);
    leases.iter().for_each(stain);
    say("stained");
    wait_to_be_killed();
}

/// Runs `test` beside a scrubber that waits for releases, and returns how many passes that made.
fn beside_a_scrubber(pool: &Pool, test: impl FnOnce()) -> u64 {
    let (cancel, passes) = (Cancel::new(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let scrubber = scope.spawn(|| {
            let control = Control {
                cancel: Some(&cancel),
                ..Control::default()
            };
            let request = ScrubRequest::default();
            pool.scrub_on_release(&Host::probe(), &request, &control, &mut |_| {
                passes.fetch_add(1, Ordering::Relaxed);
            })
        });
        test();
        cancel.cancel();
        scrubber.join().expect("no panic").expect("no error");
    });
    passes.load(Ordering::Relaxed)
}

#[test]
fn what_is_released_is_scrubbed() {
    let Some(fixture) = Fixture::new(8) else {
        return;
    };
    let pool = fixture.pool(3);
    beside_a_scrubber(&pool, || {
        for lease in take(&pool, 2 * SEGMENT) {
            stain(&lease);
            drop(lease);
            eventually("all are clean", || {
                counts(&pool)[0] == 3 || counts(&pool)[1] == 0
            });
        }
        let mut child = Process::start("release::child_stains_all", &fixture.dir());
        child.hear();
        child.kill();
        eventually("all are clean again", || counts(&pool) == [3, 0, 0, 0, 0]);
    });
    assert_clean_is_zero(&pool);
}

/// A pass that finds a segment in use has opened and closed it, and must not take that for a release.
#[test]
fn a_segment_in_use_does_not_keep_the_scrubber_busy() {
    let Some(fixture) = Fixture::new(2) else {
        return;
    };
    let pool = fixture.pool(1);
    drop(take_only(&pool));
    let stranger = open(&fixture.only(State::Dirty), false);
    let before = cpu_time();
    let passes = beside_a_scrubber(&pool, || {
        std::thread::sleep(Duration::from_millis(1500));
        assert_eq!(counts(&pool), [0, 0, 1, 0, 0]);
    });
    let spent = cpu_time() - before;
    assert_eq!(passes, 1, "only the first is told");
    assert!(spent < Duration::from_millis(500), "{spent:?} of CPU time");
    drop(stranger);
    beside_a_scrubber(&pool, || {
        eventually("it is clean", || counts(&pool) == [1, 0, 0, 0, 0]);
    });
}

/// CPU time of this process.
fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a live timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).expect("since the start");
    Duration::new(
        seconds,
        u32::try_from(time.tv_nsec).expect("below a second"),
    )
}

/// What is made in its place is another pool, of which the scrubber would see nothing.
#[test]
fn a_scrubber_ends_with_the_pool_that_it_waits_for() {
    let Some(fixture) = Fixture::new(2) else {
        return;
    };
    let pool = fixture.pool(1);
    let ready = AtomicU64::new(0);
    let ended = std::thread::scope(|scope| {
        let scrubber = scope.spawn(|| {
            let control = Control {
                deadline: Some(Instant::now() + Duration::from_secs(20)),
                ..Control::default()
            };
            let request = ScrubRequest::default();
            pool.scrub_on_release(&Host::probe(), &request, &control, &mut |_| {
                ready.fetch_add(1, Ordering::Relaxed);
            })
        });
        eventually("it waits", || ready.load(Ordering::Relaxed) > 0);
        let same = Pool::open(&fixture.dir()).expect("a pool");
        assert_eq!(same.destroy().expect("nobody uses it").left.len(), 0);
        drop(fixture.pool(1));
        scrubber.join().expect("no panic")
    });
    let error = ended.expect_err("the pool is gone");
    assert!(matches!(error, PoolError::Missing(_)), "{error}");
}
