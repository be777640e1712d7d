//! Real children: shells that speak, hang, end and complain.

use std::os::unix::process::CommandExt;

use super::*;

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::null());
    command.stdout(Stdio::piped());
    command
}

const LONG: Duration = Duration::from_secs(60);

fn started<'a>(script: &str, cancel: &'a Cancel) -> Child<'a> {
    Child::start("sh", &mut shell(script), cancel, LONG).expect("a shell")
}

/// It is stopped, after its time and not long after.
fn is_late(begun: Duration, limit: Duration, failure: &Failure) {
    assert_eq!(failure.class, Class::Stopped, "{}", failure.message);
    assert!(failure.message.contains("0.3 s"), "{}", failure.message);
    let took = clock::now().saturating_sub(begun);
    assert!(took >= limit && took < LONG, "{took:?}");
}

#[test]
fn a_child_that_hangs_is_given_its_time_and_no_more() {
    let (cancel, limit) = (Cancel::new(), Duration::from_millis(300));
    let begun = clock::now();
    // It says something, and not what is waited for; and when it has, it does not end.
    let silent = "echo words >&2; echo one; exec sleep 1000";
    let start = |script: &str| Child::start("sh", &mut shell(script), &cancel, limit);
    let mut child = start(silent).expect("a shell");
    let output = child.process().and_then(|process| process.stdout.take());
    let read = child.read_until(output.expect("a pipe"), |_| false);
    let failure = read.expect_err("it hangs");
    assert!(failure.message.ends_with(": words"), "{}", failure.message);
    is_late(begun, limit, &failure);
    let begun = clock::now();
    let failure = start("exec sleep 1000").expect("a shell").wait();
    is_late(begun, limit, &failure.expect_err("it hangs"));
    assert_eq!(super::limit(16 << 30), Duration::from_secs(60 + 68));
}

#[test]
fn a_cancel_ends_the_waiting_for_its_end() {
    let cancel = Cancel::new();
    let child = started("exec sleep 1000", &cancel);
    cancel.cancel();
    assert_eq!(child.wait().expect_err("cancelled").class, Class::Stopped);
}

#[test]
fn a_child_is_read_until_it_said_enough_and_its_end_is_seen() {
    let cancel = Cancel::new();
    let mut child = started("echo one; echo two", &cancel);
    let output = child.process().and_then(|process| process.stdout.take());
    let (read, at) = child
        .read_until(output.expect("a pipe"), |read| read.ends_with(b"two\n"))
        .expect("it speaks");
    assert_eq!(read, b"one\ntwo\n");
    assert!(at >= child.started());
    let (ended, words) = child.wait().expect("it ends");
    assert!(ended.status.success() && words.is_empty());
}

#[test]
fn a_failure_has_the_last_words_of_the_child() {
    let cancel = Cancel::new();
    let child = started("echo no memory >&2; echo here >&2; exit 3", &cancel);
    let (ended, words) = child.wait().expect("it ends");
    assert_eq!(
        (ended.status.code(), &*words),
        (Some(3), "no memory | here")
    );
}

#[test]
fn of_many_words_the_last_are_repeated_and_none_is_obeyed() {
    let cancel = Cancel::new();
    let script = "head -c 100000 /dev/zero >&2; printf 'no\\033[2J memory\\n' >&2; exit 3";
    let (_, words) = started(script, &cancel).wait().expect("it ends");
    assert_eq!(words, "no[2J memory");
}

#[test]
fn a_child_that_does_not_stop_is_stopped() {
    let cancel = Cancel::new();
    let limit = Duration::from_millis(300);
    for (script, what) in [
        ("exec cat /dev/zero", "it wrote more than 16 MiB"),
        // It may complain for as long as it has time, without a pipe that fills.
        ("exec 3>&1; exec cat /dev/zero >&2", "was given 0.3 s"),
    ] {
        let mut child = Child::start("sh", &mut shell(script), &cancel, limit).expect("a shell");
        let output = child.process().and_then(|process| process.stdout.take());
        let read = child.read_until(output.expect("a pipe"), |_| false);
        let failure = read.expect_err("it does not stop");
        assert!(failure.message.contains(what), "{}", failure.message);
    }
}

#[test]
fn what_a_child_has_started_ends_with_it() {
    let cancel = Cancel::new();
    let start = |script: &str| {
        let mut command = shell(script);
        command.process_group(0);
        let mut child = Child::start("sh", &mut command, &cancel, LONG).expect("a shell");
        let output = child.process().and_then(|process| process.stdout.take());
        let is_line = |read: &[u8]| read.ends_with(b"\n");
        let read = child.read_until(output.expect("a pipe"), is_line);
        let text = String::from_utf8_lossy(&read.expect("it speaks").0)
            .trim()
            .to_owned();
        (child, format!("/proc/{text}/stat"))
    };
    let gone = |stat: &str| {
        let deadline = clock::now() + LONG;
        // It may be waited for a little later, by whoever does that.
        while std::fs::read_to_string(stat).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(clock::now() < deadline, "{stat} is still there");
        }
    };
    let (child, started) = start("sleep 1000 >&- 2>&- & echo $!");
    child.wait().expect("it ends");
    gone(&started);
    let (child, started) = start("sleep 1000 >&- 2>&- & echo $!; wait");
    drop(child);
    gone(&started);
}

#[test]
fn a_cancel_ends_the_reading_and_drop_the_child() {
    let cancel = Cancel::new();
    let mut child = started("exec sleep 1000", &cancel);
    let output = child.process().and_then(|process| process.stdout.take());
    cancel.cancel();
    let failure = child.read_until(output.expect("a pipe"), |_| true);
    assert_eq!(failure.expect_err("cancelled").class, Class::Stopped);
    drop(child);
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let cancel = Cancel::new();
    let program = "/nowhere/monitor";
    let failure = Child::start(program, &mut Command::new(program), &cancel, LONG);
    let failure = failure.expect_err("no such file");
    assert!(failure.message.contains("/nowhere/monitor"));
}
