//! A dirty segment of which pages are missing: never used, never removed, and made whole by a scrub.

use prezero_memory::pool::{Left, Pool, Problem, ProblemKind, ScrubRequest, State};

use crate::fixture::{
    Fixture, PAGE, SEGMENT, View, assert_clean_is_zero, counts, punch, scrub, scrub_as, stain,
    take, take_only, up_to,
};
use crate::pin::Pin;

/// Everybody but a scrub leaves it as it is, and says so.
#[track_caller]
fn assert_unused(fixture: &Fixture, pool: &Pool, present: u64) {
    let path = fixture.only(State::Dirty);
    let problem = Problem {
        path: path.clone(),
        kind: ProblemKind::Holes {
            bytes: SEGMENT,
            present,
        },
    };
    assert_eq!(counts(pool), [0, 0, 0, 0, 1]);
    let told = std::slice::from_ref(&problem);
    assert_eq!(pool.status().expect("readable").problems, told);
    let found = pool.lock(&up_to(u64::MAX)).expect("readable");
    assert_eq!((found.locked.len(), &*found.problems), (0, told));
    let error = pool.take_one(SEGMENT, None).expect_err("it is not whole");
    let text = error.to_string();
    let told_of = "; it has none, and 1 of that length with pages missing";
    assert!(text.ends_with(told_of), "{text}");
    let fix = format!("prezero pool scrub {}", fixture.dir().display());
    assert_eq!(error.fix(), Some(fix));
    let drained = pool.drain(None, None).expect("readable");
    assert_eq!((drained.segments, &*drained.problems), (0, told));
    let again = Pool::open(&fixture.dir()).expect("a pool");
    let destroyed = again.destroy().expect("readable");
    assert_eq!(destroyed.drained.segments, 0);
    assert!(path.exists());
}

#[test]
fn a_punched_segment_is_filled_up() {
    let Some(fixture) = Fixture::new(2) else {
        return;
    };
    let pool = fixture.pool(1);
    for exchange in [false, true] {
        stain(&take_only(&pool));
        punch(&fixture.only(State::Dirty), PAGE, PAGE);
        assert_unused(&fixture, &pool, PAGE);
        let request = ScrubRequest {
            exchange,
            ..ScrubRequest::default()
        };
        let report = scrub_as(&pool, &request);
        assert_eq!(report.segments, 1, "{report:?}");
        assert_eq!((report.left.len(), report.problems.len()), (0, 0));
        assert_eq!(counts(&pool), [1, 0, 0, 0, 0]);
        assert_clean_is_zero(&pool);
    }
}

#[test]
fn it_says_what_is_missing() {
    let Some(fixture) = Fixture::new(2) else {
        return;
    };
    let pool = fixture.pool(1);
    drop(take_only(&pool));
    let path = fixture.only(State::Dirty);
    punch(&path, 0, PAGE);
    let problems = pool.status().expect("readable").problems;
    assert_eq!(
        problems[0].to_string(),
        format!(
            "{} has 2 MiB of its 4 MiB: pages were given back",
            path.display()
        )
    );
}

#[test]
fn a_balloon_in_a_leased_segment_is_its_holders_business() {
    let Some(fixture) = Fixture::new(2) else {
        return;
    };
    let pool = fixture.pool(1);
    let lease = take_only(&pool);
    punch(lease.path(), 0, PAGE);
    assert_eq!(counts(&pool), [0, 0, 1, 0, 0]);
    assert_eq!(pool.status().expect("readable").problems, []);
    let report = scrub(&pool);
    assert_eq!((report.busy.len(), report.problems.len()), (1, 0));
    let found = pool.lock(&up_to(u64::MAX)).expect("readable");
    assert_eq!((found.busy, found.problems.len()), (1, 0));
    drop(lease);
    assert_eq!(counts(&pool), [0, 0, 0, 0, 1]);
    assert_eq!(scrub(&pool).segments, 1);
}

#[test]
fn without_a_spare_page_a_pinned_one_tears_its_segment_until_it_is_free() {
    let Some(fixture) = Fixture::exactly(4) else {
        return;
    };
    let pool = fixture.pool(2);
    let leases = take(&pool, u64::MAX);
    leases.iter().for_each(stain);
    let pin = Pin::on(&View::of(leases[0].file(), SEGMENT));
    let pinned = leases[0].path().to_owned();
    drop(leases);
    let exchange = ScrubRequest {
        exchange: true,
        ..ScrubRequest::default()
    };
    // The other one may have its turn before or, in another pass, after it.
    let mut report = scrub_as(&pool, &exchange);
    assert_eq!(report.left.len(), 1, "{report:?}");
    let left = report.left.remove(0);
    let Left::Incomplete {
        present: 0,
        why,
        fix,
    } = &left.left
    else {
        panic!("{left:?}");
    };
    assert_eq!(left.path, pinned);
    assert!(
        why.contains("needs 2 pages of 2 MiB, has 1 free, short by 1 (2 MiB)"),
        "{why}"
    );
    assert!(fix.as_ref().is_some_and(|fix| fix.contains("nr_hugepages")));
    let told = format!(
        "{} has 0 bytes of its 4 MiB until the next scrub: ",
        pinned.display()
    );
    assert!(left.to_string().starts_with(&told), "{left}");
    let report = scrub_as(&pool, &exchange);
    assert_eq!((report.left.len(), counts(&pool)), (1, [1, 0, 0, 0, 1]));
    let found = pool.lock(&up_to(u64::MAX)).expect("readable");
    assert_eq!((found.bytes(), found.problems.len()), (SEGMENT, 1));
    drop(found);
    let (_, created) = fixture.create(2 * SEGMENT, SEGMENT).expect("it is there");
    assert_eq!(created.segments, 0);
    assert_eq!(pin.sees(), 0xa5);
    assert_eq!(scrub_as(&pool, &exchange).segments, 1);
    assert_eq!(counts(&pool), [2, 0, 0, 0, 0]);
    assert_clean_is_zero(&pool);
}
