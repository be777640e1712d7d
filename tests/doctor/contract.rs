//! What holds for every document, schema prezero/doctor/1, and for the text that shows the same.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::command::{Ran, finish};

/// The command, its arguments split at spaces.
pub(crate) fn prezero(args: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_prezero"));
    command.args(args.split_whitespace());
    command
}

/// Runs `prezero doctor` to its end.
#[track_caller]
pub(crate) fn doctor(args: &str) -> Ran {
    finish(prezero(&format!("doctor {args}")))
}

/// The document of an examination that ended with `code`, checked.
#[track_caller]
pub(crate) fn examined(ran: Ran, code: i32) -> Value {
    let ran = ran.exits_with(code);
    let report = ran.json();
    assert_eq!(report["schema"], "prezero/doctor/1");
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert!(report.get("host").is_some(), "{report:#}");
    for key in ["findings", "regions", "pools"] {
        assert!(report[key].is_array(), "{key}: {report:#}");
    }
    assert_eq!(report.get("error").is_some(), code != 0, "{report:#}");
    let problems = of_level(&report, "problem");
    for finding in report["findings"].as_array().expect("a list") {
        check(finding);
    }
    match code {
        0 => assert!(problems.is_empty() && ran.stderr.is_empty(), "{ran:#?}"),
        _ => {
            let error = &report["error"];
            let same = |problem: &&Value| {
                ["class", "message", "fix"]
                    .iter()
                    .all(|key| problem[key] == error[key])
            };
            let examined = !report["host"].is_null();
            assert!(!examined || problems.iter().any(same), "{report:#}");
        }
    }
    report
}

#[track_caller]
fn check(finding: &Value) {
    let text = |key: &str| finding[key].as_str();
    for key in ["name", "level", "message"] {
        assert!(
            text(key).is_some_and(|text| !text.is_empty()),
            "{finding:#}"
        );
    }
    assert!(
        !text("message").is_some_and(|text| text.contains('\n')),
        "{finding:#}"
    );
    let (fix, class) = (
        text("fix").is_some_and(|fix| !fix.is_empty()),
        text("class").is_some(),
    );
    match text("level") {
        Some("ok") => assert!(
            finding["fix"].is_null() && finding["class"].is_null(),
            "{finding:#}"
        ),
        Some("warning") => assert!(fix && finding["class"].is_null(), "{finding:#}"),
        Some("problem") => assert!(fix && class, "{finding:#}"),
        other => panic!("{other:?}: {finding:#}"),
    }
}

/// The findings of one level.
pub(crate) fn of_level<'a>(report: &'a Value, level: &str) -> Vec<&'a Value> {
    let findings = report["findings"].as_array().expect("a list").iter();
    findings
        .filter(|finding| finding["level"] == level)
        .collect()
}

/// Level, message and fix of the findings with this name, in order.
pub(crate) fn named<'a>(report: &'a Value, name: &str) -> Vec<(&'a str, &'a str, &'a str)> {
    let findings = report["findings"].as_array().expect("a list").iter();
    let text = |value: &'a Value| value.as_str().unwrap_or_default();
    findings
        .filter(|finding| finding["name"] == name)
        .map(|finding| {
            (
                text(&finding["level"]),
                text(&finding["message"]),
                text(&finding["fix"]),
            )
        })
        .collect()
}

/// The one finding with this name.
#[track_caller]
pub(crate) fn one<'a>(report: &'a Value, name: &str) -> (&'a str, &'a str, &'a str) {
    let found = named(report, name);
    let [only] = found[..] else {
        panic!("{name}: {report:#}")
    };
    only
}

/// A host of tests/fixtures/hosts.
pub(crate) fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/hosts")
        .join(name);
    path.to_str().expect("UTF-8").to_owned()
}

#[test]
fn findings_come_in_their_order_and_within_a_second() {
    let order = [
        "kvm",
        "populate",
        "minor",
        "leases",
        "files",
        "hugepages",
        "mounts",
        "pool",
        "limits",
        "ulimit",
        "cpus",
        "clearing",
        "kernel",
        "held",
        "reserved",
        "balancing",
        "memory",
    ];
    let ran = doctor("--memory size=64M,hugepages=off --json");
    // The contract is one second; a busy machine is given three.
    assert!(ran.took < Duration::from_secs(3), "{:?}", ran.took);
    let report = ran.json();
    let findings = report["findings"].as_array().expect("a list").iter();
    let place = |finding: &Value| order.iter().position(|name| finding["name"] == *name);
    let places: Vec<Option<usize>> = findings.map(place).collect();
    assert!(places.iter().all(Option::is_some), "{report:#}");
    assert!(places.is_sorted(), "{report:#}");
    for name in order
        .iter()
        .filter(|name| !["files", "pool"].contains(name))
    {
        assert!(!named(&report, name).is_empty(), "no {name}: {report:#}");
    }
}

#[test]
fn the_text_has_a_line_for_each_finding_and_a_row_for_each_pool() {
    let host = fixture("two-sockets-uneven");
    let args = format!("--root {host} --memory 1T,hugepages=on");
    let report = examined(doctor(&format!("{args} --json")), 3);
    let ran = doctor(&args).exits_with(3);
    for finding in report["findings"].as_array().expect("a list") {
        let text = |key: &str| finding[key].as_str().unwrap_or_default();
        let line = format!(
            "{:8}{:10}{}\n",
            text("level"),
            text("name"),
            text("message")
        );
        let fix = match text("fix") {
            "" => String::new(),
            fix => format!("  fix: {}\n", fix.replace('\n', "\n       ")),
        };
        assert!(ran.stdout.contains(&(line + &fix)), "{finding:#}\n{ran:#?}");
    }
    let rows = report["pools"].as_array().expect("a list");
    assert!(rows.len() > 2, "{report:#}");
    let table: Vec<&str> = ran
        .stdout
        .lines()
        .skip_while(|line| !line.is_empty())
        .collect();
    assert_eq!(table.len(), rows.len() + 2, "{ran:#?}");
    for (row, line) in rows.iter().zip(&table[2..]) {
        let total = row["total"].to_string();
        assert!(
            line.split_whitespace().any(|word| word == total),
            "{row}: {line}"
        );
    }
    let (error, _) = ran.error_and_fix();
    assert_eq!(report["error"]["message"], error);
}

#[test]
fn available_pages_are_those_that_are_free_and_not_reserved() {
    let report = examined(
        doctor(&format!(
            "--root {} --json",
            fixture("cgroup2-parent-limit")
        )),
        0,
    );
    let rows = report["pools"].as_array().expect("a list");
    let host = rows
        .iter()
        .find(|row| row["node"].is_null() && row["page_size"] == 2 << 20);
    let host = host.expect("the pool of 2 MiB pages");
    assert_eq!(
        (&host["free"], &host["reserved"]),
        (&3584.into(), &128.into()),
        "{host}"
    );
    assert_eq!(host["available"], 3584 - 128, "{host}");
}
