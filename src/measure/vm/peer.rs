//! What other monitors have in common: how they are asked what they are, and what is seen of them from outside.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use prezero_host::{Host, PageSize};
use prezero_memory::{Cancel, Class};

use super::child::{Child, Ended};
use crate::failure::Failure;
use crate::printable::printable;

/// How long a program may take to say what it is.
const ANSWERS: Duration = Duration::from_secs(10);

/// The most that it may say, in bytes.
const ANSWER: usize = 64 << 10;

/// The most of its first line that is repeated, in characters.
const LINE: usize = 200;

/// A command for a monitor: it and what it starts are a process group.
pub(super) fn command(program: &OsStr) -> Command {
    let mut command = Command::new(program);
    command.process_group(0);
    command
}

/// The first line that a program says when asked for its version; or what is the matter with it.
pub(super) fn version_of(program: &OsStr, cancel: &Cancel) -> Result<String, String> {
    asked(program, cancel, ANSWERS)
}

fn asked(program: &OsStr, cancel: &Cancel, limit: Duration) -> Result<String, String> {
    let mut command = command(program);
    command.arg("--version");
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut ask = || {
        let mut child = Child::start(program.display(), &mut command, cancel, limit)?;
        let output = child.process().and_then(|process| process.stdout.take());
        let output = output.ok_or_else(|| child.failed("it has no output"))?;
        let (read, _) = child.read_until(output, |read| read.len() > ANSWER)?;
        Ok((child.wait()?.0.status, read))
    };
    let silent = || "is not installed, or does not answer --version".to_owned();
    let (status, read) = ask().map_err(|failure: Failure| match failure.class {
        _ if cancel.is_cancelled() => "was not waited for".to_owned(),
        Class::Stopped => format!("has not answered --version for {} s", limit.as_secs_f64()),
        Class::Shortage => format!("was not asked for its version: {}", failure.message),
        _ => silent(),
    })?;
    let text = String::from_utf8_lossy(&read);
    let line = text.lines().next().filter(|_| status.success());
    let line = line.map(|line| printable(line).chars().take(LINE).collect());
    line.ok_or_else(silent)
}

/// A monitor that ended as it should not have.
pub(super) fn failed(program: &OsStr, ended: &Ended, words: &str) -> Failure {
    Failure {
        class: Class::Internal,
        message: format!("{} ended with {}: {words}", program.display(), ended.status),
        fix: None,
    }
}

/// Bytes in hugepages of this size that are in use on the whole host, if it has such pages.
pub(super) fn in_use(page: PageSize) -> Option<u64> {
    let host = Host::probe();
    let pool = host.pool(page)?;
    Some(
        pool.total
            .saturating_sub(pool.free)
            .saturating_mul(page.bytes()),
    )
}

/// How many more there are than before.
pub(super) fn taken_since(before: Option<u64>, page: PageSize) -> Option<u64> {
    Some(in_use(page)?.saturating_sub(before?))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_in_use_is_known_of_pages_that_there_are() {
        assert!(in_use(PageSize::HUGE_2M).is_none_or(|bytes| bytes % (2 << 20) == 0));
        let none = PageSize::new(1 << 62).expect("a power of two");
        assert_eq!(in_use(none), None);
    }

    #[test]
    fn a_program_that_hangs_when_asked_what_it_is_is_left_out_with_the_time_it_was_given() {
        let dir = tempfile::tempdir().expect("a directory");
        let program = dir.path().join("monitor");
        let ask = |script: &str, limit: u64| {
            fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("a directory");
            let open = fs::Permissions::from_mode(0o755);
            fs::set_permissions(&program, open).expect("it is ours");
            let limit = Duration::from_millis(limit);
            asked(program.as_os_str(), &Cancel::new(), limit)
        };
        assert_eq!(ask("echo one; echo two", 60_000), Ok("one".to_owned()));
        for hangs in ["exec sleep 1000", "echo one; exec >&- sleep 1000"] {
            let why = ask(hangs, 200).expect_err("it hangs");
            assert_eq!(why, "has not answered --version for 0.2 s");
        }
        let loud = ask("printf 'one\\033[2J\\n'", 60_000);
        assert_eq!(loud, Ok("one[2J".to_owned()));
        for silent in ["exec yes", "exit 0", "echo one; exit 1"] {
            let why = ask(silent, 60_000).expect_err("no answer");
            assert!(why.contains("does not answer --version"), "{why}");
        }
        let why = version_of(OsStr::new("/nowhere/monitor"), &Cancel::new());
        assert!(why.expect_err("no such file").contains("not installed"));
    }
}
