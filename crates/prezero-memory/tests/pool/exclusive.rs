//! A segment that anybody else has is not taken, scrubbed, drained or destroyed, by either proof.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use prezero_memory::pool::{Pool, Proof, State, Use};
use prezero_testkit::skip;

use crate::children::{Process, eventually, pool_dir, say, wait_to_be_killed};
use crate::fixture::{Fixture, PAGE, SEGMENT, View, counts, open, scrub, stain, take, take_only};

const PROOFS: [Proof; 2] = [Proof::Leases, Proof::ProcSearch];

/// Only who can look into every process of the host can prove something by a search. Some containers hide even
/// their first process from root.
fn can_search() -> bool {
    let namespace = std::fs::read_link("/proc/self/ns/pid");
    let first = namespace.is_ok_and(|namespace| namespace == Path::new("pid:[4026531836]"));
    let can = first && std::fs::metadata("/proc/1/fd/0").is_ok();
    if !can {
        skip(
            "proc",
            "other processes are out of sight, so that no search proves anything",
        );
    }
    can
}

/// Nothing can be done with the pool's only segment, which is dirty, while `held` is; everything after.
#[track_caller]
fn assert_holds<T>(fixture: &Fixture, what: &str, held: T) {
    for proof in PROOFS {
        let pool = Pool::open_with(&fixture.dir(), proof).expect("a pool");
        assert!(take(&pool, u64::MAX).is_empty(), "{what}, {proof:?}: taken");
        let report = scrub(&pool);
        assert_eq!(
            (report.segments, report.busy.len()),
            (0, 1),
            "{what}, {proof:?}: {report:?}"
        );
        let drained = pool.drain(None, None).expect("readable");
        assert_eq!(drained.segments, 0, "{what}, {proof:?}: drained");
        assert_eq!(drained.busy.len(), 1, "{what}, {proof:?}: {drained:?}");
        assert!(
            !drained.busy[0].1.is_empty(),
            "{what}, {proof:?}: by nobody"
        );
        assert_eq!(counts(&pool), [0, 0, 1, 0, 0], "{what}, {proof:?}");
        let destroyed = pool.destroy().expect("readable");
        assert_eq!(
            destroyed.drained.segments, 0,
            "{what}, {proof:?}: destroyed"
        );
        assert_eq!(destroyed.left, [fixture.node_dir(), fixture.dir()]);
    }
    drop(held);
    for proof in PROOFS {
        if proof == Proof::ProcSearch && !can_search() {
            continue;
        }
        let pool = Pool::open_with(&fixture.dir(), proof).expect("a pool");
        eventually(what, || take(&pool, u64::MAX).len() == 1);
        assert_eq!(scrub(&pool).segments, 1, "{what}, {proof:?}");
        drop(take_only(&pool));
    }
}

/// A pool whose only segment is dirty, and where that is.
fn used(fixture: &Fixture) -> std::path::PathBuf {
    let pool = fixture.pool(1);
    stain(&take_only(&pool));
    fixture.only(State::Dirty)
}

#[test]
fn descriptors_and_mappings_of_strangers_hold_a_segment() {
    let Some(fixture) = Fixture::new(2) else {
        return;
    };
    let path = used(&fixture);
    assert_holds(&fixture, "a descriptor", open(&path, true));
    let path = fixture.only(State::Dirty);
    assert_holds(&fixture, "a read-only descriptor", open(&path, false));
    let path = fixture.only(State::Dirty);
    let view = View::of(open(&path, true).as_fd(), SEGMENT);
    assert_holds(&fixture, "a mapping alone", view);
    let path = fixture.only(State::Dirty);
    let read_only = View::read_only(open(&path, false).as_fd(), SEGMENT);
    assert_holds(&fixture, "a read-only mapping alone", read_only);
}

#[test]
fn a_lease_holds_by_its_descriptor_and_by_its_mapping() {
    let Some(fixture) = Fixture::new(2) else {
        return;
    };
    used(&fixture);
    let pool = Pool::open(&fixture.dir()).expect("a pool");
    assert_holds(&fixture, "a lease", take_only(&pool));
    let lease = take_only(&pool);
    let view = View::of(lease.file(), SEGMENT);
    drop(lease);
    assert_holds(&fixture, "a lease's mapping", view);
    let file: OwnedFd = take_only(&pool).into_file();
    assert_holds(&fixture, "a lease's descriptor", file);
}

/// A child that does not end by itself, killed on drop.
struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_child_that_inherits_the_lease_holds_it() {
    let Some(fixture) = Fixture::new(2) else {
        return;
    };
    used(&fixture);
    let pool = Pool::open(&fixture.dir()).expect("a pool");
    let lease = take_only(&pool);
    let inherited = lease.inheritable().expect("a descriptor more");
    let child = Command::new("sleep")
        .arg("60")
        .stdin(Stdio::null())
        .spawn()
        .expect("sleep");
    let child = Sleeper(child);
    drop((lease, inherited));
    let holders = pool.status().expect("readable").segments[0].usage.clone();
    let Use::Leased { holders } = holders else {
        panic!("{holders:?}");
    };
    assert_eq!((holders[0].pid, &*holders[0].comm), (child.0.id(), "sleep"));
    assert_eq!(holders[0].to_string(), format!("{} (sleep)", child.0.id()));
    assert_holds(&fixture, "a child's descriptor", child);
}

#[test]
fn a_child_without_it_does_not() {
    let Some(fixture) = Fixture::new(2) else {
        return;
    };
    used(&fixture);
    let pool = Pool::open(&fixture.dir()).expect("a pool");
    let lease = take_only(&pool);
    let child = Command::new("sleep")
        .arg("60")
        .stdin(Stdio::null())
        .spawn()
        .expect("sleep");
    let child = Sleeper(child);
    drop(lease);
    assert_eq!(take(&pool, u64::MAX).len(), 1);
    drop(child);
}

#[test]
#[ignore = "the part of another process"]
fn child_maps_and_unlocks() {
    let Some(dir) = pool_dir() else { return };
    let pool = Pool::open(&dir).expect("a pool");
    let lease = take_only(&pool);
    let view = View::of(lease.file(), SEGMENT);
    let file = std::fs::File::from(lease.into_file());
    file.unlock().expect("it is the lock's holder");
    drop(file);
    say("unlocked");
    wait_to_be_killed();
    drop(view);
}

#[test]
fn a_child_that_drops_the_lock_and_keeps_a_mapping_holds_it() {
    let Some(fixture) = Fixture::new(2) else {
        return;
    };
    used(&fixture);
    let mut child = Process::start("exclusive::child_maps_and_unlocks", &fixture.dir());
    assert_eq!(child.hear(), "unlocked");
    assert_holds(&fixture, "a mapping without the lock", child);
}

#[test]
fn looking_at_the_status_is_in_nobodys_way() {
    let Some(fixture) = Fixture::new(2) else {
        return;
    };
    let pool = fixture.pool(1);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                pool.status().expect("readable");
            }
        });
        let taken = (0..200)
            .filter(|_| take(&pool, u64::MAX).len() == 1)
            .count();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(taken, 200);
    });
}

/// Without `F_SETSIG`, the kernel ends the holder of a lease by SIGIO when somebody opens the file.
#[test]
fn opening_a_segment_while_it_is_tried_ends_nobody() {
    let Some(fixture) = Fixture::new(1) else {
        return;
    };
    let (pool, _) = fixture.create(PAGE, PAGE).expect("a page is there");
    drop(take_only(&pool));
    let path = fixture.only(State::Dirty);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                drop(open(&path, false));
            }
        });
        let start = std::time::Instant::now();
        let mut taken = 0;
        while start.elapsed() < std::time::Duration::from_millis(500) {
            taken += take(&pool, u64::MAX).len();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_ne!(
            taken, 0,
            "an opener for a moment does not starve those who take"
        );
    });
}
