//! `prezero pool drain`.

use serde_json::json;

use crate::command::error_of;
use crate::fixture::{Fixture, Supervised};

#[test]
fn pages_go_back_to_the_kernel_dirty_ones_first() {
    let Some(fixture) = Fixture::with_pool(3) else {
        return;
    };
    let free = fixture.pages.counters().free;
    crate::command::finish(fixture.exec("--memory 4M", &["true", "{path}"])).exits_with(0);
    assert_eq!(fixture.counts(), [2, 1, 0, 0, 0]);
    let ran = fixture.pool("drain", "--size 1").exits_with(0);
    assert_eq!(ran.stdout, "gave back 4 MiB in 1 segment\n");
    assert_eq!(fixture.counts(), [2, 0, 0, 0, 0]);
    assert_eq!(fixture.pages.counters().free, free + 2);
    let report = fixture.pool("drain", "--json").exits_with(0).json();
    let given_back = json!({ "segments": 2, "bytes": 8 << 20 });
    assert_eq!(report["given_back"], given_back, "{report:#}");
    assert!(report.get("error").is_none(), "{report:#}");
    assert_eq!(fixture.pages.counters().free, free + 6);
}

#[test]
fn a_leased_segment_stays_and_its_holder_is_named() {
    let Some(fixture) = Fixture::with_pool(2) else {
        return;
    };
    let _exec = Supervised::start(&fixture, "--memory 4M", &["sleep", "30"]);
    // Asked for as much as there is, it says how much there was.
    let ran = fixture.pool("drain", "--size 8M").exits_with(3);
    assert!(ran.stdout.starts_with("gave back 4 MiB in 1 segment\n"));
    assert!(ran.stdout.contains("(sleep)"), "{}", ran.stdout);
    assert!(
        ran.error_and_fix()
            .0
            .starts_with("4 MiB of 8 MiB were free")
    );
    // Asked for whatever is free, that is nothing.
    fixture.pool("drain", "").exits_with(0);
    let ran = fixture.pool("drain", "--size 4M --json").exits_with(3);
    let report = ran.json();
    assert_eq!(report["schema"], "prezero/pool-drain/1");
    assert_eq!(error_of(&report).0, "shortage");
    assert_eq!(report["given_back"]["bytes"], 0, "{report:#}");
    assert!(report.get("left").is_none(), "{report:#}");
    let busy = report["busy"].as_array().expect("a list");
    assert_eq!(busy.len(), 1, "{report:#}");
    assert_eq!(busy[0]["path"], fixture.segments()[0].display().to_string());
    let by = busy[0]["holders"].as_array().expect("a list");
    assert!(by.iter().any(|by| by["comm"] == "sleep"), "{report:#}");
    assert_eq!(fixture.counts(), [0, 0, 1, 0, 0]);
}

#[test]
fn only_segments_of_the_length_asked_for_go() {
    let Some(fixture) = Fixture::new(6) else {
        return;
    };
    fixture
        .pool("create", "--size 8M --segment 4M")
        .exits_with(0);
    fixture
        .pool("create", "--size 4M --segment 2M")
        .exits_with(0);
    let ran = fixture.pool("drain", "--segment 2M").exits_with(0);
    assert_eq!(ran.stdout, "gave back 4 MiB in 2 segments\n");
    assert_eq!(fixture.counts(), [2, 0, 0, 0, 0]);
}
