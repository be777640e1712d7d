//! `prezero pool destroy`.

use std::fs;

use serde_json::json;

use crate::command::error_of;
use crate::fixture::{Fixture, Supervised};

#[test]
fn nothing_is_left_of_a_pool_that_is_free() {
    let Some(fixture) = Fixture::with_pool(2) else {
        return;
    };
    let report = fixture.pool("destroy", "--json").exits_with(0).json();
    assert_eq!(report["given_back"]["segments"], 2, "{report:#}");
    assert_eq!(report["left"], json!([]), "{report:#}");
    assert!(!fixture.dir().exists());
    fixture.pages.assert_clean();
}

#[test]
fn a_leased_segment_keeps_the_pool() {
    let Some(fixture) = Fixture::with_pool(2) else {
        return;
    };
    let _exec = Supervised::start(&fixture, "--memory 4M", &["sleep", "30"]);
    let ran = fixture.pool("destroy", "").exits_with(3);
    assert!(ran.stdout.contains("(sleep)"), "{}", ran.stdout);
    assert_eq!(fixture.counts(), [0, 0, 1, 0, 0]);
}

#[test]
fn what_is_not_the_pools_stays() {
    let Some(fixture) = Fixture::with_pool(1) else {
        return;
    };
    let note = fixture.dir().join("note");
    fs::write(&note, "").expect("a new file");
    let ran = fixture.pool("destroy", "--json").exits_with(4);
    assert!(ran.stderr.contains("is not a name of a pool's"), "{ran:#?}");
    let report = ran.json();
    assert_eq!(report["schema"], "prezero/pool-destroy/1");
    assert_eq!(error_of(&report).0, "host");
    assert_eq!(report["given_back"]["segments"], 1);
    assert_eq!(report["left"], json!([fixture.dir()]), "{report:#}");
    assert_eq!(report["problems"][0]["kind"], "unknown-name");
    assert!(note.exists());
    assert_eq!(fixture.counts(), [0; 5]);
}
