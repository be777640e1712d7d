//! `--calibrate`: how fast each method clears memory here, and what a run would choose.

use prezero_clear::{Method, Stores};
use prezero_testkit::Hugepages;
use serde_json::Value;

use crate::command::error_of;
use crate::contract::{doctor, fixture, one};

const PAGE: u64 = 2 << 20;

#[track_caller]
fn calibrated() -> Value {
    let ran = doctor("--calibrate --json");
    let report = ran.json();
    let calibration = &report["calibration"];
    assert!(calibration.is_object(), "{ran:#?}");
    calibration.clone()
}

#[track_caller]
fn names(calibration: &Value) -> Vec<(String, u64)> {
    let rows = calibration["rows"].as_array().expect("rows").iter();
    rows.map(|row| {
        assert!(
            row["gbps_mean"].as_f64().is_some_and(|rate| rate > 0.0),
            "{row:#}"
        );
        assert!(row["chunk"].is_null(), "{row:#}");
        (
            row["method"].as_str().expect("a name").to_owned(),
            row["threads"].as_u64().expect("a number"),
        )
    })
    .collect()
}

#[test]
fn free_hugepages_are_used_and_given_back() {
    let Some(pages) = Hugepages::exactly(PAGE, 40) else {
        return;
    };
    let calibration = calibrated();
    pages.assert_clean();
    assert_eq!(calibration["hugepages"], true, "{calibration:#}");
    assert_eq!(
        (&calibration["page_size"], &calibration["bytes"]),
        (&PAGE.into(), &(40 * PAGE).into())
    );
    let names = names(&calibration);
    for method in Method::available() {
        assert!(
            names.contains(&(method.name().to_owned(), 1)),
            "{calibration:#}"
        );
    }
    let most = names
        .iter()
        .map(|(_, threads)| *threads)
        .max()
        .expect("rows");
    assert_eq!(
        names.iter().filter(|(_, threads)| *threads == most).count(),
        Method::available().count()
    );

    // What is chosen is the fastest with all threads, and the reason fits.
    let chosen = calibration["chosen"]["method"].as_str().expect("a name");
    let rate = |row: &&Value| row["gbps_mean"].as_f64().expect("a number");
    let rows = calibration["rows"].as_array().expect("rows").iter();
    let tried = rows.filter(|row| row["threads"] == most && row["method"] != "portable");
    let best = tried
        .max_by(|a, b| rate(a).total_cmp(&rate(b)))
        .expect("rows");
    assert_eq!(best["method"], chosen, "{calibration:#}");
    let why = calibration["chosen"]["why"].as_str().expect("a reason");
    let uncached = Method::named(chosen).expect("it was measured").stores() == Stores::Uncached;
    assert_eq!(why.starts_with("uncached stores"), uncached, "{why}");
}

#[test]
fn without_free_hugepages_ordinary_memory_is_cleared_and_the_text_says_so() {
    let Some(pages) = Hugepages::exactly(PAGE, 3) else {
        return;
    };
    let ran = doctor("--calibrate");
    pages.assert_clean();
    let pools = doctor("--json").json()["pools"].clone();
    let mut pools = pools.as_array().expect("a list").iter();
    if pools.any(|pool| pool["page_size"] != PAGE && pool["free"] != 0) {
        return eprintln!("skipped: there are free hugepages of another size");
    }
    assert!(
        ran.stdout
            .contains("ordinary memory, because too few hugepages are free"),
        "{ran:#?}"
    );
    for method in Method::available().map(Method::name) {
        assert!(
            ran.stdout
                .lines()
                .any(|line| line.trim_start().starts_with(method)),
            "{method}: {ran:#?}"
        );
    }
    assert!(
        ran.stdout
            .lines()
            .any(|line| line.starts_with("chosen    ")),
        "{ran:#?}"
    );
}

#[test]
fn a_plain_examination_measures_nothing_and_mentions_it() {
    let report = doctor("--json").json();
    assert!(report.get("calibration").is_none(), "{report:#}");
    let (level, message, _) = one(&report, "clearing");
    assert_eq!(level, "ok");
    for method in Method::available().filter(|method| method.stores() == Stores::Uncached) {
        assert!(
            message.contains(method.name()) && message.contains("--calibrate"),
            "{message}"
        );
    }
}

#[test]
fn a_recorded_host_cannot_be_calibrated() {
    let args = format!(
        "--calibrate --json --root {}",
        fixture("two-sockets-uneven")
    );
    let report = doctor(&args).exits_with(2).json();
    assert_eq!(error_of(&report).0, "usage");
}
