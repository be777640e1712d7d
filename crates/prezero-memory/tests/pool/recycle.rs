//! From guest to guest: what one wrote, the next does not see.

use prezero_memory::Origin;
use prezero_memory::pool::{Pool, State};

use crate::children::{Process, pool_dir, say, wait_to_be_killed};
use crate::fixture::{
    Fixture, SEGMENT, View, assert_clean_is_zero, counts, open, scrub, stain, take, take_only,
};

#[test]
fn what_was_leased_is_dirty_until_it_is_scrubbed() {
    let Some(fixture) = Fixture::new(4) else {
        return;
    };
    let pool = fixture.pool(2);
    let lease = take(&pool, SEGMENT).remove(0);
    assert_eq!(counts(&pool), [1, 0, 1, 0, 0]);
    stain(&lease);
    drop(lease);
    assert_eq!(counts(&pool), [1, 1, 0, 0, 0]);
    // Clean first, and of the dirty one it is said that it is.
    let leases = take(&pool, u64::MAX);
    let origins: Vec<Origin> = leases.iter().map(|lease| lease.origin()).collect();
    assert_eq!(origins, [Origin::Clean, Origin::Dirty]);
    assert_ne!(View::of(leases[1].file(), SEGMENT).stained(), 0);
    drop(leases);
    let report = scrub(&pool);
    assert_eq!((report.segments, report.bytes), (2, 2 * SEGMENT));
    assert!(
        report.left.is_empty() && report.busy.is_empty(),
        "{report:?}"
    );
    for lease in take(&pool, u64::MAX) {
        assert_eq!(lease.origin(), Origin::Clean);
        assert_eq!(View::of(lease.file(), SEGMENT).stained(), 0);
    }
}

/// The control of all tests of contents: what goes behind the pool's back is seen by them.
#[test]
fn a_stain_behind_the_pools_back_is_seen() {
    let Some(fixture) = Fixture::new(2) else {
        return;
    };
    let pool = fixture.pool(1);
    let file = open(&fixture.only(State::Clean), true);
    View::of(std::os::fd::AsFd::as_fd(&file), SEGMENT).write(1000, 0xa5);
    drop(file);
    let lease = take_only(&pool);
    assert_eq!(lease.origin(), Origin::Clean);
    assert_eq!(View::of(lease.file(), SEGMENT).stained(), 1);
    drop(lease);
    std::fs::rename(fixture.only(State::Dirty), {
        let dirty = fixture.only(State::Dirty);
        dirty.with_extension("clean")
    })
    .expect("a name is free");
    let checked = std::panic::catch_unwind(|| assert_clean_is_zero(&pool));
    assert!(checked.is_err());
}

#[test]
fn a_lock_that_is_dropped_changes_nothing() {
    let Some(fixture) = Fixture::new(4) else {
        return;
    };
    let pool = fixture.pool(2);
    let before = fixture.names();
    let found = pool
        .lock(&crate::fixture::up_to(u64::MAX))
        .expect("readable");
    assert_eq!((found.locked.len(), found.bytes()), (2, 2 * SEGMENT));
    assert!(take(&pool, u64::MAX).is_empty());
    drop(found);
    assert_eq!(fixture.names(), before);
    assert_eq!(take(&pool, u64::MAX).len(), 2);
}

#[test]
#[ignore = "the part of another process"]
fn child_uses_a_lease() {
    let Some(dir) = pool_dir() else { return };
    let pool = Pool::open(&dir).expect("a pool");
    let lease = take(&pool, SEGMENT).remove(0);
    let view = View::of(lease.file(), SEGMENT);
    view.fill(0xa5);
    drop(lease);
    say("written");
    wait_to_be_killed();
    drop(view);
}

#[test]
fn a_killed_process_leaves_its_segment_free_and_dirty() {
    let Some(fixture) = Fixture::new(4) else {
        return;
    };
    let pool = fixture.pool(2);
    let mut child = Process::start("recycle::child_uses_a_lease", &fixture.dir());
    assert_eq!(child.hear(), "written");
    // It holds the lease by its mapping alone, and is named by its process id.
    let status = pool.status().expect("readable");
    let leased = status
        .segments
        .iter()
        .find_map(|segment| match &segment.usage {
            prezero_memory::pool::Use::Leased { holders } => Some(holders.clone()),
            prezero_memory::pool::Use::Free => None,
        });
    let pids: Vec<u32> = leased
        .expect("one is")
        .iter()
        .map(|holder| holder.pid)
        .collect();
    assert_eq!(pids, [child.id()]);
    let others = take(&pool, u64::MAX);
    assert_eq!((others.len(), others[0].origin()), (1, Origin::Clean));
    drop(others);
    child.kill();
    assert_eq!(counts(&pool), [0, 2, 0, 0, 0]);
    assert_clean_is_zero(&pool);
    assert_eq!(scrub(&pool).segments, 2);
    assert_eq!(counts(&pool), [2, 0, 0, 0, 0]);
    assert_clean_is_zero(&pool);
}
