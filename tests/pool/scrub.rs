//! `prezero pool scrub`.

use crate::command::{Running, finish};
use crate::fixture::{Fixture, SEGMENT, Supervised, eventually};

#[test]
fn dirty_segments_become_clean_and_zero() {
    let Some(fixture) = Fixture::with_pool(3) else {
        return;
    };
    for options in [
        "",
        "--threads 1",
        "--rate 1G",
        "--exchange",
        "--method cached",
    ] {
        fixture.stain_all();
        assert_eq!(fixture.counts(), [0, 3, 0, 0, 0]);
        let ran = fixture
            .pool("scrub", &format!("{options} --json"))
            .exits_with(0);
        let report = ran.json();
        assert_eq!(report["schema"], "prezero/pool-scrub/1");
        assert_eq!(report["cleaned"]["bytes"], 3 * SEGMENT, "{options}");
        assert_eq!(report["exchange"], options == "--exchange");
        assert_eq!(fixture.counts(), [3, 0, 0, 0, 0]);
        assert_eq!(fixture.lies(), 0, "{options}");
    }
}

#[test]
fn a_leased_segment_is_not_scrubbed_until_it_is_free() {
    let Some(fixture) = Fixture::with_pool(2) else {
        return;
    };
    fixture.stain_all();
    let exec = Supervised::start(&fixture, "--memory 4M", &["sleep", "30"]);
    let report = fixture.pool("scrub", "--json").exits_with(0).json();
    assert_eq!(
        (&report["busy"], &report["cleaned"]["segments"]),
        (&1.into(), &1.into())
    );
    assert_eq!(fixture.counts(), [1, 0, 1, 0, 0]);
    // A watch does it as soon as it can.
    let mut watch = Running::start(fixture.command("scrub", "--watch"));
    drop(exec);
    eventually("clean", || fixture.counts() == [2, 0, 0, 0, 0]);
    assert!(!watch.has_ended());
    drop(watch);
    assert_eq!(fixture.lies(), 0);
}

#[test]
fn what_is_broken_is_mentioned_and_left_alone() {
    let Some(fixture) = Fixture::with_pool(2) else {
        return;
    };
    fixture.stain_all();
    let cut = fixture.segments().remove(0);
    let file = std::fs::File::options()
        .write(true)
        .open(&cut)
        .expect("a segment");
    file.set_len(SEGMENT / 2).expect("hugetlbfs can be cut");
    drop(file);
    let ran = fixture.pool("scrub", "").exits_with(0);
    assert!(
        ran.stderr.contains("is 2 MiB long: it is left alone"),
        "{ran:#?}"
    );
    assert_eq!(fixture.counts(), [1, 0, 0, 0, 1]);
    let ran = finish(fixture.exec("--memory 4M", &["true", "{path}"]));
    ran.exits_with(0);
    assert!(cut.exists());
}
