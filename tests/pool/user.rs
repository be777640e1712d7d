//! A pool of an ordinary user's.

use std::process::Command;

use prezero_testkit::skip;

use crate::command::{PublicCopy, Ran, finish};
use crate::fixture::{Fixture, size_of};

/// A user that owns nothing and runs nothing.
const USER: &str = "54321";

/// `prezero pool WHAT` as that user; None where this one may not become it.
fn as_user(copy: &PublicCopy, fixture: &Fixture, what: &str, args: &str) -> Ran {
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", USER, "--regid", USER, "--clear-groups"])
        .arg(copy.binary())
        .args(["pool", what])
        .arg(fixture.dir())
        .args(args.split_whitespace());
    finish(command)
}

/// Types what an error says, as root already.
#[track_caller]
fn typed(fix: &str) {
    let command = fix.strip_prefix("sudo ").expect("it takes root");
    let mut words = command.split(' ');
    let mut command = Command::new(words.next().expect("a command"));
    assert!(command.args(words).status().expect("it starts").success());
}

#[test]
fn what_the_errors_say_to_type_gives_a_user_a_pool_and_takes_it_away() {
    let tried = Command::new("setpriv")
        .args(["--reuid", USER, "--regid", USER, "--clear-groups", "true"])
        .output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        return skip("user", "only root can be another user");
    }
    let Some(fixture) = Fixture::new(2) else {
        return;
    };
    let copy = PublicCopy::new();
    let ran = as_user(&copy, &fixture, "create", &size_of(1)).exits_with(4);
    let (message, fix) = ran.error_and_fix();
    assert!(message.contains("Permission denied"), "{message}");
    typed(fix);
    as_user(&copy, &fixture, "create", &size_of(1)).exits_with(0);
    // Its files go, and the directory is root's to remove.
    let ran = as_user(&copy, &fixture, "destroy", "").exits_with(4);
    let (message, fix) = ran.error_and_fix();
    assert!(message.contains("empty"), "{message}");
    assert_eq!(ran.stdout, "gave back 4 MiB in 1 segment\n");
    typed(fix);
    assert!(!fixture.dir().exists());
    // Another user's pool is nobody's to look into.
    fixture.pool("create", &size_of(1)).exits_with(0);
    let ran = as_user(&copy, &fixture, "status", "").exits_with(4);
    typed(ran.error_and_fix().1);
}
