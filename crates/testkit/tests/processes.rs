//! What holds between processes: the tests start this test binary again, as a child, for one of its ignored tests.

use std::env;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use prezero_testkit::{
    Hugepages, MachineLock, maps_containing_of, open_fds, open_fds_of, skip, thread_names,
    thread_names_of,
};

const PATIENCE_MS: &str = "PREZERO_TESTKIT_PATIENCE_MS";

fn child(test: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("path of this binary"));
    command
        .args([test, "--exact", "--ignored", "--nocapture"])
        .env_remove("PREZERO_REQUIRE");
    command
}

fn run(mut command: Command) -> Output {
    command.output().expect("the child starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
#[ignore = "run as a child by the tests of skip"]
fn child_skips() {
    skip("hugepages", "none here");
}

#[test]
fn skip_passes_and_says_what_is_missing() {
    let output = run(child("child_skips"));
    assert!(output.status.success());
    assert!(
        stderr(&output).contains("skipped: hugepages: none here\n"),
        "{output:?}"
    );
}

#[test]
fn skip_is_seen_past_the_harness_that_captures_output() {
    let mut command = Command::new(env::current_exe().expect("path of this binary"));
    command
        .args(["child_skips", "--exact", "--ignored"])
        .env_remove("PREZERO_REQUIRE");
    let output = run(command);
    assert!(
        stderr(&output).contains("skipped: hugepages: none here\n"),
        "{output:?}"
    );
}

#[test]
fn skip_fails_where_the_capability_is_required() {
    let mut command = child("child_skips");
    command.env("PREZERO_REQUIRE", "kvm, hugepages");
    assert!(!run(command).status.success());
}

#[test]
fn skip_passes_where_another_capability_is_required() {
    let mut command = child("child_skips");
    command.env("PREZERO_REQUIRE", "kvm,hugetlbfs");
    assert!(run(command).status.success());
}

#[test]
#[ignore = "run as a child by a_page_size_that_the_machine_lacks_is_never_required"]
fn child_takes_a_page_of_a_pebibyte() {
    assert!(Hugepages::take(1 << 50, 1).is_none());
}

#[test]
fn a_page_size_that_the_machine_lacks_is_never_required() {
    let mut command = child("child_takes_a_page_of_a_pebibyte");
    command.env("PREZERO_REQUIRE", "hugepages");
    let output = run(command);
    assert!(output.status.success(), "{output:?}");
    assert!(
        stderr(&output).contains("skipped: hugepages: This machine has no pages of"),
        "{output:?}"
    );
}

#[test]
#[ignore = "run as a child by the tests of the lock"]
fn child_takes_the_lock() {
    let patience = env::var(PATIENCE_MS)
        .expect("set by the parent")
        .parse()
        .expect("milliseconds");
    assert!(
        MachineLock::acquire_within(Duration::from_millis(patience)).is_some(),
        "not in time"
    );
}

#[test]
fn processes_exclude_each_other() {
    let mut impatient = child("child_takes_the_lock");
    impatient.env(PATIENCE_MS, "100");
    let lock = MachineLock::acquire();
    let output = run(impatient);
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("not in time"),
        "{output:?}"
    );
    drop(lock);

    let mut patient = child("child_takes_the_lock");
    patient.env(PATIENCE_MS, "600000");
    assert!(run(patient).status.success());
}

#[test]
fn another_user_takes_the_lock_too() {
    drop(MachineLock::acquire());
    let mut other = child("child_takes_the_lock");
    other
        .env(PATIENCE_MS, "600000")
        .uid(65534)
        .gid(65534)
        .current_dir("/");
    match other.output() {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(error) => eprintln!(
            "cannot run {:?} as another user: {error}",
            env::current_exe()
        ),
    }
}

#[test]
#[ignore = "run as a child by another_process_is_looked_into"]
fn child_waits_for_its_input() {
    std::io::stdin()
        .read_line(&mut String::new())
        .expect("a line or the end");
}

#[test]
fn another_process_is_looked_into() {
    let mut command = child("child_waits_for_its_input");
    let mut process = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("starts");
    let pid = process.id();
    // The harness runs the test on a thread of its name, cut to 15 bytes.
    let mut found = false;
    for _ in 0..500 {
        found = thread_names_of(pid)
            .iter()
            .any(|name| name == "child_waits_for");
        if found {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let (maps, fds) = (maps_containing_of(pid, "[stack]"), open_fds_of(pid));
    drop(process.stdin.take());
    assert!(process.wait().expect("ends").success());
    assert!(found, "the thread is seen by its name");
    assert_eq!(maps.len(), 1);
    assert!(fds >= 3, "{fds}");
}

#[test]
fn an_open_file_and_a_running_thread_are_counted() {
    // In a child, because this process's other tests open files and start threads.
    let output = run(child("child_counts_itself"));
    assert!(output.status.success(), "{output:?}");
}

#[test]
#[ignore = "run as a child by an_open_file_and_a_running_thread_are_counted"]
fn child_counts_itself() {
    let before = open_fds();
    let file = File::open("/dev/null").expect("opens");
    assert_eq!(open_fds(), before + 1);
    drop(file);
    assert_eq!(open_fds(), before);

    let thread = std::thread::Builder::new()
        .name("counted".to_owned())
        .spawn(|| assert!(thread_names().contains(&"counted".to_owned())))
        .expect("starts");
    thread.join().expect("sees itself");
}
