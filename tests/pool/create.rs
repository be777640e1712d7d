//! `prezero pool create`.

use prezero_host::{Host, PageSize};
use prezero_testkit::skip;

use crate::command::{error_of, finish, prezero};
use crate::fixture::{Fixture, PAGE, SEGMENT, size_of};

#[test]
fn what_is_missing_is_added_and_no_more() {
    let Some(fixture) = Fixture::new(8) else {
        return;
    };
    let create = |segments: u64| {
        let ran = fixture.pool("create", &format!("{} --json", size_of(segments)));
        ran.exits_with(0).json()
    };
    let report = create(3);
    assert_eq!(report["schema"], "prezero/pool-create/1");
    assert_eq!(report["added"]["segments"], 3);
    assert_eq!(report["added"]["bytes"], 3 * SEGMENT);
    assert_eq!(report["page_size"], PAGE);
    assert_eq!(report["segment_bytes"], SEGMENT);
    let report = create(4);
    assert_eq!(report["added"]["segments"], 1);
    assert_eq!(report["totals"][0]["clean"]["bytes"], 4 * SEGMENT);
    let report = create(4);
    assert_eq!(report["added"]["segments"], 0);
    assert_eq!(fixture.counts(), [4, 0, 0, 0, 0]);
    assert_eq!(fixture.lies(), 0);
}

#[test]
fn less_than_there_is_is_refused_and_points_to_drain() {
    let Some(fixture) = Fixture::with_pool(2) else {
        return;
    };
    let ran = fixture.pool("create", &size_of(1)).exits_with(2);
    let (message, fix) = ran.error_and_fix();
    assert!(message.contains("8 MiB"), "{message}");
    let dir = fixture.dir().display().to_string();
    let drain = format!("prezero pool drain {dir} --size 4M --segment 4M");
    assert_eq!(fix, drain);
    assert_eq!(fixture.counts(), [2, 0, 0, 0, 0]);
}

#[test]
fn without_a_directory_the_pool_is_on_the_first_mount() {
    let Some(fixture) = Fixture::new(2) else {
        return;
    };
    // The default pool of a host that has one is not for tests.
    let host = Host::probe();
    let first = host.mount_for(PageSize::HUGE_2M).map(|mount| &*mount.path);
    let is_default = host.default_hugepage_size == Some(PageSize::HUGE_2M);
    if first != Some(fixture.mount()) || !is_default {
        skip("default mount", "the host has its own");
        return;
    }
    let report = finish(prezero("pool create --size 4M --json"));
    let report = report.exits_with(0).json();
    let pool = fixture.mount().join("prezero").display().to_string();
    assert_eq!(report["pool"], *pool);
    let status = finish(prezero("pool status --json")).exits_with(0).json();
    assert_eq!(status["pool"], report["pool"]);
    assert_eq!(status["totals"][0]["clean"]["bytes"], SEGMENT);
    finish(prezero("pool destroy")).exits_with(0);
    finish(prezero("pool status")).exits_with(2);
}

#[test]
fn more_than_there_are_pages_is_a_shortage_with_numbers() {
    let Some(fixture) = Fixture::new(4) else {
        return;
    };
    let ran = fixture.pool("create", "--size 1T --json").exits_with(3);
    let report = ran.json();
    let (class, message, fix) = error_of(&report);
    assert_eq!(class, "shortage");
    assert!(message.contains("524288 pages of 2 MiB"), "{message}");
    assert!(fix.is_some());
    // The directory may be there, but no segment is.
    assert_eq!(fixture.counts(), [0; 5]);
}

#[test]
fn several_lengths_live_side_by_side() {
    let Some(fixture) = Fixture::new(6) else {
        return;
    };
    fixture
        .pool("create", "--size 8M --segment 4M")
        .exits_with(0);
    fixture
        .pool("create", "--size 4M --segment 2M")
        .exits_with(0);
    let status = fixture.status();
    let totals = status["totals"].as_array().expect("a list");
    let of = |n: usize| (&totals[n]["segment_bytes"], &totals[n]["clean"]["segments"]);
    assert_eq!(of(0), (&PAGE.into(), &2.into()));
    assert_eq!(of(1), (&SEGMENT.into(), &2.into()));
}
