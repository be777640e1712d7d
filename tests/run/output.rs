//! What people see: text on stdout, everything else on stderr, and neither where nobody listens.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::time::Duration;

use prezero_testkit::require_kvm;

use crate::command::{Ran, Running, finish, prezero_run, prezero_run_after, run};

const MEMORY: &str = "--memory 64M,hugepages=off";

#[test]
fn success_is_told_on_stdout_only_and_without_control_characters() {
    if !require_kvm() {
        return;
    }
    let ran = run(&format!("{MEMORY} --prealloc --verify")).exits_with(0);
    assert_eq!(ran.stderr, "", "progress is for terminals");
    for part in [
        "64 MiB",
        "populate",
        "created",
        "first instruction",
        "every byte is zero",
    ] {
        assert!(ran.stdout.contains(part), "no '{part}': {ran:#?}");
    }
    let control = |c: char| c.is_control() && c != '\n';
    assert!(!ran.stdout.contains(control), "{ran:#?}");
}

#[test]
fn what_was_not_done_is_not_claimed() {
    if !require_kvm() {
        return;
    }
    let ran = run(MEMORY).exits_with(0);
    assert!(!ran.stdout.contains("populate"), "{ran:#?}");
    assert!(!ran.stdout.contains("is zero"), "{ran:#?}");
}

#[test]
fn failure_is_told_on_stderr_only() {
    let ran = run("--memory 1.5G").exits_with(2);
    assert_eq!(ran.stdout, "");
    assert_eq!(ran.stderr.lines().count(), 2, "{ran:#?}");
    ran.error_and_fix();
    let ran = run("--memory 64M --no-such-option").exits_with(2);
    assert_eq!(ran.stdout, "");
    assert!(
        ran.stderr.starts_with("error: ") && ran.stderr.contains("--help"),
        "{ran:#?}"
    );
}

#[test]
fn words_that_are_not_text_are_refused() {
    for mode in ["", "--json"] {
        let mut command = prezero_run(&format!("{mode} --memory"));
        command.arg(OsStr::from_bytes(b"64M\xff"));
        let ran = finish(command).exits_with(2);
        assert!(ran.stderr.contains("invalid UTF-8"), "{ran:#?}");
    }
}

#[test]
fn help_is_a_result_and_lists_the_exit_codes() {
    let ran = run("--help").exits_with(0);
    assert_eq!(ran.stderr, "");
    for code in 0..=6 {
        assert!(ran.stdout.contains(&format!("\n  {code} ")), "{ran:#?}");
    }
    let mut version = Command::new(env!("CARGO_BIN_EXE_prezero"));
    version.arg("--version");
    let ran = finish(version).exits_with(0);
    assert_eq!(
        ran.stdout,
        format!("prezero {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn closed_outputs_are_nobodys_loss() {
    if !require_kvm() {
        return;
    }
    for (closed, mode) in [
        (">&-", ""),
        (">&-", "--json"),
        ("2>&-", ""),
        (">&- 2>&-", "--json"),
    ] {
        let ran = finish(prezero_run_after(
            &format!("exec {closed};"),
            &format!("{MEMORY} {mode}"),
        ));
        ran.exits_with(0);
    }
    let refused = finish(prezero_run_after("exec >&- 2>&-;", "--memory 1.5G --json"));
    refused.exits_with(2);
}

/// Runs it with a stdout that fails.
fn run_into(stdout: impl Into<std::process::Stdio>, args: &str) -> Ran {
    let mut command = prezero_run(args);
    command.stdout(stdout);
    Running::start_with_stdout_as_set(command).finish_within(Duration::from_secs(60))
}

#[test]
fn a_result_that_cannot_be_written_is_an_error() {
    if !require_kvm() {
        return;
    }
    for mode in ["", "--json"] {
        let args = format!("{MEMORY} {mode}");
        let full = OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .expect("every Linux has it");
        let ran = run_into(full, &args).exits_with(1);
        assert!(
            ran.stderr
                .starts_with("error: Writing the result to stdout: No space"),
            "{ran:#?}"
        );
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let ran = run_into(writer, &args).exits_with(1);
        assert!(ran.stderr.contains("Broken pipe"), "{ran:#?}");
    }
    // What went wrong first decides the exit code.
    let full = OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .expect("every Linux has it");
    run_into(full, "--memory 1.5G --json").exits_with(2);
}

#[test]
fn a_document_waits_for_room_where_no_write_waits() {
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
    let mut options = OpenOptions::new();
    let opened = options
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path);
    let mut full = opened.expect("another end");
    drop(writer);
    while full.write(&[b'-'; 4096]).is_ok() {}
    let mut command = Command::new(env!("CARGO_BIN_EXE_prezero"));
    command.args(["plan", "--memory", "64M,hugepages=off", "--json"]);
    let mut child = command.stdout(full).spawn().expect("prezero");
    drop(command);
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().expect("waited for").is_none());
    let mut text = String::new();
    reader.read_to_string(&mut text).expect("text");
    let document: serde_json::Value =
        serde_json::from_str(text.trim_start_matches('-')).expect("a document");
    assert_eq!(document["schema"], "prezero/plan/1");
    assert!(child.wait().expect("waited for").success());
}
