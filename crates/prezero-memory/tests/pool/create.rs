//! What `create` makes, and what it refuses.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use prezero_memory::pool::{Pool, PoolError, State};
use prezero_memory::{Class, Control, Host, NodeProgress, Origin, PageBytes, PageSize};
use prezero_testkit::{Hugepages, PrivateMount};

use crate::fixture::{Fixture, PAGE, SEGMENT, View, counts, open, open_directory, request, take};

#[test]
fn segments_are_whole_zero_and_closed_to_others() {
    let Some(fixture) = Fixture::new(16) else {
        return;
    };
    let (pool, created) = fixture
        .create(4 * SEGMENT, SEGMENT)
        .expect("pages are there");
    assert_eq!((created.segments, created.bytes), (4, 4 * SEGMENT));
    assert_eq!(
        (created.misplaced.len(), counts(&pool)),
        (0, [4, 0, 0, 0, 0])
    );
    let mode = |path: &std::path::Path| fs::metadata(path).expect("there").permissions().mode();
    assert_eq!(mode(&fixture.dir()) & 0o7777, 0o700);
    assert_eq!(mode(&fixture.node_dir()) & 0o7777, 0o700);
    for name in fixture.names() {
        assert_eq!(
            mode(&fixture.node_dir().join(&name)) & 0o7777,
            0o600,
            "{name}"
        );
        assert!(
            name.starts_with("4194304-") && name.ends_with(".clean"),
            "{name}"
        );
    }
    assert_eq!(
        fixture.pages.counters().free,
        fixture.pages.counters().available()
    );
    let leases = take(&pool, u64::MAX);
    assert_eq!(leases.len(), 4);
    for lease in &leases {
        assert_eq!(
            (lease.origin(), lease.page_size()),
            (Origin::Clean, PageSize::HUGE_2M)
        );
        assert_eq!(View::of(lease.file(), SEGMENT).stained(), 0);
    }
}

#[test]
fn a_size_is_a_total_of_segments_of_one_length() {
    let Some(fixture) = Fixture::new(16) else {
        return;
    };
    drop(
        fixture
            .create(2 * SEGMENT, SEGMENT)
            .expect("pages are there"),
    );
    let (pool, more) = fixture
        .create(3 * SEGMENT, SEGMENT)
        .expect("pages are there");
    assert_eq!(more.segments, 1);
    // A leased segment counts; one of another length does not.
    let lease = take(&pool, SEGMENT);
    let (_, other) = fixture.create(2 * PAGE, PAGE).expect("pages are there");
    let (_, none) = fixture
        .create(3 * SEGMENT, SEGMENT)
        .expect("nothing is to be done");
    assert_eq!((other.segments, none.segments), (2, 0));
    let error = fixture.create(SEGMENT, SEGMENT).expect_err("less");
    assert_eq!(error.class(), Class::Usage);
    let dir = fixture.dir();
    let dir = dir.display();
    assert_eq!(
        error.to_string(),
        format!("{dir} has 12 MiB in segments of 4 MiB, 4 MiB were asked for")
    );
    assert_eq!(
        error.fix(),
        Some(format!("prezero pool drain {dir} --size 8M --segment 4M"))
    );
    drop(lease);
}

#[test]
fn too_few_pages_are_refused_in_numbers_before_any_is_populated() {
    let Some(pages) = Hugepages::exactly(PAGE, 5) else {
        return;
    };
    let Some(mount) = PrivateMount::hugetlbfs(PAGE) else {
        return;
    };
    let dir = mount.path().join("pool");
    let (host, control) = (Host::probe(), Control::default());
    let asked = request(4 * SEGMENT, SEGMENT);
    let error = Pool::create(&dir, &asked, &host, None, &control).expect_err("5 pages");
    assert_eq!(error.class(), Class::Shortage);
    let text = error.to_string();
    assert!(
        text.contains("needs 8 pages of 2 MiB, has 5 free, short by 3 (6 MiB)"),
        "{text}"
    );
    assert!(
        error.fix().is_some_and(|fix| fix.contains("nr_hugepages")),
        "{error:?}"
    );
    assert_eq!(pages.counters().free, pages.counters().available());

    // A host that was read too early: the kernel's refusal is said in the same numbers.
    let mut stale = Host::probe();
    for pool in stale
        .pools
        .iter_mut()
        .filter(|pool| pool.page_size == PageSize::HUGE_2M)
    {
        (pool.total, pool.free, pool.reserved) = (100, 100, 0);
    }
    for pool in stale.nodes.iter_mut().flat_map(|node| &mut node.pools) {
        (pool.total, pool.free) = (100, 100);
    }
    let error = Pool::create(&dir, &asked, &stale, None, &control).expect_err("5 pages");
    assert_eq!(error.class(), Class::Shortage, "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("needs 2 pages of 2 MiB, has 1 free, short by 1"),
        "{text}"
    );
    let pool = Pool::open(&dir).expect("the directory was made");
    assert_eq!(counts(&pool), [0; 5]);
    pages.assert_clean();
}

#[test]
fn requests_that_no_host_could_meet_are_refused() {
    let Some(fixture) = Fixture::new(8) else {
        return;
    };
    let error = fixture
        .create(SEGMENT + PAGE, SEGMENT)
        .expect_err("one and a half");
    assert_eq!(
        (error.class(), error.fix()),
        (Class::Usage, Some("--size 4M or 8M".to_owned()))
    );
    let gigantic = prezero_memory::pool::PoolRequest {
        bytes: 1 << 30,
        segment: PageBytes::new(1 << 30, PageSize::HUGE_1G).expect("a page"),
        nodes: Vec::new(),
        exchange_only: false,
    };
    let (host, control) = (Host::probe(), Control::default());
    let error = Pool::create(&fixture.dir(), &gigantic, &host, None, &control).expect_err("2 MiB");
    assert!(matches!(error, PoolError::PageSize { .. }), "{error:?}");
    assert_eq!(error.class(), Class::Usage);
    let mut nowhere = request(SEGMENT, SEGMENT);
    nowhere.nodes = vec![4095];
    let error = Pool::create(&fixture.dir(), &nowhere, &host, None, &control).expect_err("a node");
    assert_eq!(error.class(), Class::Usage, "{error:?}");
    assert!(
        error.to_string().starts_with("There is no NUMA node 4095"),
        "{error}"
    );
    assert!(!fixture.dir().exists());
}

#[test]
fn nothing_is_made_outside_of_hugetlbfs() {
    let dir = tempfile::tempdir().expect("a directory");
    let (host, control) = (Host::probe(), Control::default());
    for path in [dir.path().join("pool"), dir.path().join("none/pool")] {
        let asked = request(SEGMENT, SEGMENT);
        let error = Pool::create(&path, &asked, &host, None, &control).expect_err("no hugetlbfs");
        assert!(matches!(error, PoolError::NotHugetlbfs { .. }), "{error:?}");
        assert_eq!(error.class(), Class::Usage);
        assert!(error.fix().is_some());
    }
    assert_eq!(fs::read_dir(dir.path()).expect("readable").count(), 0);
    let error = Pool::open(dir.path()).expect_err("no hugetlbfs");
    assert!(matches!(error, PoolError::NotHugetlbfs { .. }), "{error:?}");
    let error = Pool::open(&dir.path().join("pool")).expect_err("nothing there");
    assert!(matches!(error, PoolError::Missing(_)), "{error:?}");
}

#[test]
fn one_length_is_had_by_name_and_what_is_missing_is_said() {
    let Some(fixture) = Fixture::new(16) else {
        return;
    };
    drop(fixture.create(PAGE, PAGE).expect("pages are there"));
    let pool = fixture.pool(1);
    let lease = pool.take_one(SEGMENT, None).expect("one is free");
    assert_eq!(
        (lease.len().bytes(), lease.name().state),
        (SEGMENT, State::Dirty)
    );
    assert_eq!(lease.path(), fixture.only(State::Dirty));

    let dir = fixture.dir();
    let dir = dir.display();
    let error = pool.take_one(3 * PAGE, None).expect_err("no such length");
    assert_eq!(
        error.to_string(),
        format!("{dir} has no segment of 6 MiB; it has 2 MiB, 4 MiB")
    );
    assert_eq!(error.class(), Class::Shortage);
    let fix = format!("prezero pool create {dir} --size 6M --segment 6M");
    assert_eq!(error.fix(), Some(fix));

    let error = pool.take_one(SEGMENT, None).expect_err("it is leased");
    let me = std::process::id();
    let text = error.to_string();
    assert!(
        text.starts_with(&format!(
            "All 1 segments of 4 MiB in {dir} are in use, by process {me} ("
        )),
        "{text}"
    );
    assert_eq!(error.class(), Class::Shortage);
    assert_eq!(
        error.fix(),
        Some(format!("prezero pool create {dir} --size 8M --segment 4M"))
    );
    drop(lease);
    pool.take_one(SEGMENT, None).expect("free again");
}

#[test]
fn largest_first_and_only_what_fits() {
    let Some(fixture) = Fixture::new(16) else {
        return;
    };
    drop(fixture.create(4 * PAGE, PAGE).expect("pages are there"));
    let pool = fixture.pool(2);
    let lengths = |max: u64| -> Vec<u64> {
        take(&pool, max)
            .iter()
            .map(|lease| lease.len().pages())
            .collect()
    };
    assert_eq!(lengths(5 * PAGE), [2, 2, 1]);
    // Now all of these are dirty: the clean ones come first, though smaller.
    assert_eq!(lengths(3 * PAGE), [1, 1, 1]);
    assert_eq!(lengths(PAGE - 1), [] as [u64; 0]);
    // A read-only look at a free one does not count as one that is taken.
    drop(open(&fixture.node_dir().join(&fixture.names()[0]), false));
    assert_eq!(counts(&pool), [0, 6, 0, 0, 0]);
}

#[test]
fn many_segments_are_told_of_as_one_piece_of_work() {
    let Some(fixture) = Fixture::new(40) else {
        return;
    };
    let told = std::cell::RefCell::new(Vec::new());
    let progress = |nodes: &[NodeProgress]| {
        let sum = |figure: fn(&NodeProgress) -> u64| nodes.iter().map(figure).sum::<u64>();
        told.borrow_mut()
            .push((sum(|node| node.done), sum(|node| node.total)));
    };
    let control = Control {
        progress: Some(&progress),
        ..Control::default()
    };
    let (asked, host) = (request(40 * PAGE, PAGE), Host::probe());
    let (pool, created) =
        Pool::create(&fixture.dir(), &asked, &host, None, &control).expect("pages");
    assert_eq!((created.segments, counts(&pool)), (40, [40, 0, 0, 0, 0]));
    let told = told.into_inner();
    assert!(
        told.is_sorted() && told.iter().all(|(_, all)| *all == 40 * PAGE),
        "{told:?}"
    );
    assert_eq!(told.last(), Some(&(40 * PAGE, 40 * PAGE)));
}

#[test]
fn creates_at_the_same_time_make_what_is_missing_once() {
    let Some(fixture) = Fixture::new(16) else {
        return;
    };
    for _ in 0..10 {
        std::thread::scope(|scope| {
            let create = || fixture.create(4 * SEGMENT, SEGMENT).map(|(_, made)| made);
            let both = [scope.spawn(create), scope.spawn(create)];
            let made = both.map(|one| one.join().expect("no panic").expect("pages are there"));
            assert_eq!(made.map(|made| made.segments).iter().sum::<u64>(), 4);
        });
        let pool = Pool::open(&fixture.dir()).expect("a pool");
        assert_eq!(counts(&pool), [4, 0, 0, 0, 0]);
        pool.destroy().expect("nobody else uses it");
    }
}

#[test]
fn a_create_that_waits_for_another_one_ends_when_it_is_told_to() {
    let Some(fixture) = Fixture::new(4) else {
        return;
    };
    drop(fixture.pool(1));
    let other = open_directory(&fixture.dir());
    other.lock().expect("nobody else has it");
    let control = Control {
        deadline: Some(Instant::now() + Duration::from_millis(50)),
        ..Control::default()
    };
    let request = request(2 * SEGMENT, SEGMENT);
    let error = Pool::create(&fixture.dir(), &request, &Host::probe(), None, &control)
        .expect_err("it is too late");
    assert_eq!(error.class(), Class::Stopped);
    drop(other);
    assert_eq!(counts(&fixture.pool(2)), [2, 0, 0, 0, 0]);
}
