//! `prezero pool status`.

use std::fs;

use crate::fixture::{Fixture, PAGE, SEGMENT, Supervised};

#[test]
fn the_document_says_who_has_what_and_what_is_left_alone() {
    let Some(fixture) = Fixture::with_pool(2) else {
        return;
    };
    let node = fixture.segments()[0].parent().expect("a node's").to_owned();
    fs::write(node.join("notes"), "").expect("a new file");
    let _exec = Supervised::start(&fixture, "--memory 4M", &["sleep", "30"]);
    let status = fixture.status();
    assert_eq!(status["schema"], "prezero/pool-status/1");
    assert_eq!(status["page_size"], PAGE);
    assert_eq!(status["totals"][0]["leased"]["bytes"], SEGMENT);
    let segments = status["segments"].as_array().expect("a list");
    let leased = segments.iter().find(|segment| segment["leased"] == true);
    let leased = leased.expect("one is");
    assert_eq!(leased["state"], "dirty");
    let holders = leased["holders"].as_array().expect("a list");
    let comm = |holder: &serde_json::Value| holder["comm"].as_str().expect("text").to_owned();
    let comms: Vec<String> = holders.iter().map(comm).collect();
    assert!(comms.iter().any(|comm| comm == "sleep"), "{comms:?}");
    let problems = status["problems"].as_array().expect("a list");
    assert_eq!(problems.len(), 1, "{status:#}");
    assert_eq!(problems[0]["kind"], "unknown-name");
    // In text, too.
    let text = fixture.pool("status", "").exits_with(0).stdout;
    for part in ["1 = 4 MiB", "(sleep)", "notes is not a name of a pool's"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
