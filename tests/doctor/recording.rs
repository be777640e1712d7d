//! `--record`: a copy of this host's facts for others to plan with.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::command::{Ran, error_of, finish};
use crate::contract::{doctor, examined, prezero};

#[track_caller]
fn recorded(dir: &Path) -> (Ran, Value) {
    let ran = doctor(&format!("--json --record {}", dir.display()));
    let report = ran.json();
    (ran, report)
}

#[test]
fn a_recording_is_planned_for_as_the_host_is() {
    let dir = tempfile::tempdir().expect("temporary directory");
    // A new directory is made.
    let host = dir.path().join("host");
    let (_, report) = recorded(&host);
    let files = report["recorded"].as_array().expect("a list");
    assert!(
        files.iter().any(|file| file == "proc/meminfo"),
        "{report:#}"
    );
    for file in files {
        assert!(host.join(file.as_str().expect("text")).is_file(), "{file}");
    }
    let memory = "--memory 64M,hugepages=off --prealloc --json";
    let root = host.display();
    let there = finish(prezero(&format!("plan --root {root} {memory}")))
        .exits_with(0)
        .json();
    let here = finish(prezero(&format!("plan {memory}")))
        .exits_with(0)
        .json();
    for key in ["regions", "slots", "workers"] {
        assert_eq!(there[key], here[key], "{key}");
    }
    assert_eq!(there["host"]["kernel"], here["host"]["kernel"]);
    let again = examined(doctor(&format!("--root {root} {memory}")), 0);
    assert_eq!(again["regions"], here["regions"]);
}

#[test]
fn the_files_are_listed_and_said_to_be_anonymous() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let ran = doctor(&format!("--record {}", dir.path().display()));
    assert!(
        ran.stdout.contains("no names") && ran.stdout.contains("no ids"),
        "{ran:#?}"
    );
    assert!(ran.stdout.contains("\n  proc/meminfo\n"), "{ran:#?}");
    let hostname = fs::read_to_string("/proc/sys/kernel/hostname").expect("readable");
    let hostname = hostname.trim();
    assert!(!dir.path().join("proc/sys/kernel/hostname").exists());
    // A name such as "vm" may be part of a word that has to be there.
    if hostname.len() > 4 {
        let mut dirs = vec![dir.path().to_owned()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).expect("readable") {
                let path = entry.expect("readable").path();
                match path.is_dir() {
                    true => dirs.push(path),
                    false => {
                        let text = fs::read_to_string(&path).expect("readable");
                        assert!(!text.contains(hostname), "{path:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_directory_with_something_in_it_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().expect("temporary directory");
    fs::write(dir.path().join("mine"), "mine").expect("written");
    let (ran, report) = recorded(dir.path());
    ran.exits_with(2);
    let (class, message, fix) = error_of(&report);
    assert_eq!(class, "usage");
    let shown = dir.path().display().to_string();
    assert!(message.contains(&shown), "{message}");
    assert_eq!(fs::read_dir(dir.path()).expect("readable").count(), 1);
    // What the fix says works.
    let fix = fix.expect("a fix");
    let ran = doctor(&format!("{fix} --json"));
    assert!(ran.json()["recorded"].is_array(), "{ran:#?}");
}

#[test]
fn a_file_in_place_of_a_directory_is_refused() {
    let file = tempfile::NamedTempFile::new().expect("temporary file");
    let (ran, report) = recorded(file.path());
    ran.exits_with(2);
    assert!(error_of(&report).2.is_some(), "{report:#}");
}
