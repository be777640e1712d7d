//! Planning needs little, and says what is too little for a run.

use crate::command::{Ran, error_of, finish, prezero};

#[track_caller]
fn plan_after(setup: &str, args: &str) -> Ran {
    let mut command = std::process::Command::new("bash");
    let script = format!("{setup} exec \"$0\" plan {args}");
    command.args(["-c", &script]);
    command.arg(prezero("").get_program());
    finish(command)
}

#[test]
fn a_plan_maps_and_opens_next_to_nothing() {
    let args = "--memory size=64G,hugepages=off --json";
    let all = finish(prezero(&format!("plan {args}")))
        .exits_with(0)
        .json();
    for setup in ["ulimit -n 8;", "ulimit -f 0;", "ulimit -u 1;"] {
        // Results of a pipe are no file, so a limit of none is no matter.
        let ran = plan_after(setup, args).exits_with(0);
        assert_eq!(ran.json()["slots"], all["slots"], "{setup}");
    }
}

#[test]
fn a_limit_on_address_space_is_seen_before_a_run_meets_it() {
    let args = "--memory size=64G,hugepages=off --json";
    let report = plan_after("ulimit -v 200000;", args).exits_with(3).json();
    let (class, message, fix) = error_of(&report);
    assert_eq!(class, "shortage");
    assert!(message.contains("RLIMIT_AS"), "{message}");
    assert!(fix.is_some_and(|fix| fix.contains("ulimit -v")));
}

#[test]
fn a_limit_on_file_sizes_is_seen_before_a_run_meets_it() {
    let Some(pages) = prezero_testkit::Hugepages::take(2 << 20, 32) else {
        return;
    };
    let args = "--memory size=64M,hugepages=on,hugepage_size=2M --json";
    let report = plan_after("ulimit -f 1000;", args).exits_with(3).json();
    let (class, message, fix) = error_of(&report);
    assert_eq!((class, fix), ("shortage", Some("ulimit -f unlimited")));
    assert!(
        message.contains("1000 KiB") && message.contains("64 MiB"),
        "{message}"
    );
    pages.assert_clean();
}
