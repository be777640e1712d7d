//! The exit code is the one that `run` ends with, and so is the error.

use std::fs;
use std::path::Path;

use prezero_testkit::{Hugepages, require_kvm};

use crate::command::{PublicCopy, Ran, error_of, finish};
use crate::contract::{doctor, examined, named, one, prezero};
use crate::private_dev::{self, USER, as_user, kvm_of_group};

/// Both have to end alike.
#[track_caller]
fn ends_like_run(args: &str, code: i32) {
    let run = finish(prezero(&format!("run {args} --json")))
        .exits_with(code)
        .json();
    let report = examined(doctor(&format!("{args} --json")), code);
    if code != 0 {
        assert_eq!(report["error"], run["error"], "{args}");
    }
    assert_eq!(
        report["regions"].as_array().map(Vec::is_empty),
        Some(code != 0),
        "{report:#}"
    );
}

#[test]
fn a_request_that_fits_is_code_0() {
    if !require_kvm() {
        return;
    }
    ends_like_run("--memory size=64M,hugepages=off", 0);
    ends_like_run("--memory size=64M,hugepages=off --prealloc", 0);
}

#[test]
fn nothing_asked_for_is_code_0() {
    if !require_kvm() {
        return;
    }
    let report = examined(doctor("--json"), 0);
    assert_eq!(named(&report, "memory"), []);
    assert_eq!(report["regions"], serde_json::json!([]));
    let (level, message, _) = one(&report, "kvm");
    assert_eq!(level, "ok");
    assert!(
        message.contains("vCPUs") && message.contains("memory slots"),
        "{message}"
    );
}

#[test]
fn a_shortage_is_code_3_with_the_same_fix() {
    let Some(pages) = Hugepages::exactly(2 << 20, 8) else {
        return;
    };
    ends_like_run(
        "--memory size=64M,hugepages=on,hugepage_size=2M --prealloc",
        3,
    );
    pages.assert_clean();
}

#[test]
fn what_can_be_had_from_the_pool_is_code_0() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::take(2 << 20, 32) else {
        return;
    };
    ends_like_run(
        "--memory size=64M,hugepages=on,hugepage_size=2M --prealloc",
        0,
    );
    pages.assert_clean();
}

#[test]
fn a_request_that_no_host_could_meet_is_code_2() {
    for args in [
        "--memory 1X",
        "--memory 64M,huge=on",
        "--memory 19M,hugepages=on,hugepage_size=2M",
        "--memory 64M,hugepages=off,host_numa_node=99",
        "--memory 64M,hugepages=off --prealloc --threads 0",
    ] {
        ends_like_run(args, 2);
    }
}

#[test]
fn command_lines_that_cannot_be_read_are_answered_in_json() {
    for args in [
        "--json --unknown",
        "--json --prealloc=lazy",
        "--json --record",
        "--json stray",
    ] {
        let report = examined(doctor(args), 2);
        let (class, message, fix) = error_of(&report);
        assert_eq!(
            (class, fix),
            ("usage", Some("prezero doctor --help")),
            "{message}"
        );
    }
}

/// `doctor` and `run` in a /dev of their own.
#[track_caller]
fn in_private_dev(setup: &str, user: &str, binary: &Path, args: &str) -> Option<(Ran, Ran)> {
    let start = |command: &str| {
        let args = format!("{command} {args} --json");
        private_dev::prezero(setup, user, binary, &args).map(finish)
    };
    Some((start("doctor")?, start("run")?))
}

#[test]
fn kvm_that_is_absent_forbidden_or_something_else_is_code_4() {
    let copy = PublicCopy::new();
    let forbidden = kvm_of_group(0, "600");
    for (setup, user, what) in [
        ("", String::new(), "is absent"),
        (
            "mknod /dev/kvm c 1 3 &&",
            String::new(),
            "is not a KVM device",
        ),
        (forbidden.as_str(), as_user(USER), "may not be opened"),
    ] {
        let memory = "--memory size=64M,hugepages=off";
        let Some((doctor, run)) = in_private_dev(setup, &user, &copy.binary(), memory) else {
            return;
        };
        let report = examined(doctor, 4);
        let (level, message, fix) = one(&report, "kvm");
        assert_eq!(level, "problem");
        assert!(message.contains(what), "{message}");
        let run = run.exits_with(4).json();
        assert_eq!(report["error"], run["error"]);
        assert_eq!(error_of(&run), ("host", message, Some(fix)));
        // The plan is fine all the same.
        assert_eq!(one(&report, "memory").0, "ok");
    }
}

#[test]
fn kvm_counts_without_a_request_too() {
    let binary = Path::new(env!("CARGO_BIN_EXE_prezero"));
    let Some(command) = private_dev::prezero("", "", binary, "doctor --json") else {
        return;
    };
    examined(finish(command), 4);
}

#[test]
fn a_request_that_is_wrong_comes_before_kvm_as_in_run() {
    let binary = Path::new(env!("CARGO_BIN_EXE_prezero"));
    let memory = "--memory size=64M,hugepages=off,host_numa_node=99";
    let Some((doctor, run)) = in_private_dev("", "", binary, memory) else {
        return;
    };
    let report = examined(doctor, 2);
    assert_eq!(report["error"], run.exits_with(2).json()["error"]);
    assert_eq!(one(&report, "kvm").0, "problem");
}

#[test]
fn a_result_that_cannot_be_written_is_code_1() {
    let Ok(full) = fs::OpenOptions::new().write(true).open("/dev/full") else {
        return;
    };
    let mut command = prezero(&format!(
        "doctor --json --root {}",
        crate::contract::fixture("one-node")
    ));
    command.stdout(full);
    crate::command::Running::start_with_stdout_as_set(command)
        .finish_within(std::time::Duration::from_secs(10))
        .exits_with(1);
}
