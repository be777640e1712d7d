//! Ignored tests of this binary, run again in a process that a shell has limited before.

use std::env;
use std::path::Path;
use std::process::{Command, Output};

const CHILD: &str = "PREZERO_TEST_CHILD";

/// Runs the ignored `test` after `setup`, shell commands with `$dir` as their argument.
pub(crate) fn run_after(setup: &str, dir: &Path, test: &str) -> Output {
    let run = "exec \"$program\" \"$test\" --exact --ignored --nocapture --test-threads=1";
    Command::new("sh")
        .args(["-c", &format!("set -e; {setup}; {run}")])
        .env("program", env::current_exe().expect("path of this binary"))
        .env("test", test)
        .env("dir", dir)
        .env(CHILD, dir)
        .output()
        .expect("sh starts")
}

/// Whether this is a process of [`run_after`]; else the ignored test has nothing to do.
pub(crate) fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// Fails with what the child printed unless it ran its one test and that passed.
#[track_caller]
pub(crate) fn assert_passed(output: &Output) {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let passed = output.status.success() && stdout.contains("1 passed");
    assert!(
        passed,
        "{}\n{stdout}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}
