//! A process that is timed from its exec to something that it says.
//!
//! The parent sleeps in poll(2) meanwhile: what it costs is one small write before the exec, and one
//! wake-up at the end.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::process::{Child as Process, Command, ExitStatus, Stdio};
use std::time::Duration;

use prezero_memory::{Cancel, Class};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::sys;
use crate::clock;
use crate::failure::Failure;

/// How soon a signal is noticed while a child has nothing to say.
const NOTICED: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// The last of what a child wrote that is worth repeating, in bytes.
const WORDS: usize = 400;

/// A running child. It does not outlive this value, nor this process.
#[derive(Debug)]
pub(super) struct Child<'a> {
    name: String,
    process: Option<Process>,
    /// Just before its exec, on the [clock] of all.
    started: Duration,
    /// Its standard error; in memory, so that nobody has to read it meanwhile.
    words: File,
    cancel: &'a Cancel,
}

/// What there is to see when a child has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    /// Of it and its children, in user and kernel mode.
    pub(super) cpu: Duration,
}

impl<'a> Child<'a> {
    /// Starts it. Its standard output is to be set by the caller, and is read with [`Child::read_until`].
    pub(super) fn start(command: &mut Command, cancel: &'a Cancel) -> Result<Self, Failure> {
        let name = command.get_program().display().to_string();
        let failed = |error: &io::Error| Failure {
            class: Class::Internal,
            message: format!("Cannot run {name}: {error}"),
            fix: None,
        };
        let words = memfd_create("words", MemfdFlags::CLOEXEC).map(File::from);
        let words = words.map_err(|errno| failed(&errno.into()))?;
        command.stderr(words.try_clone().map_err(|error| failed(&error))?);
        let (process, started) = sys::spawn(command).map_err(|error| failed(&error))?;
        // The command has its own copies of what it was given: an end of a pipe that stays open here is
        // never at its end.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self {
            name,
            process: Some(process),
            started,
            words,
            cancel,
        })
    }

    /// When it was about to be executed.
    pub(super) fn started(&self) -> Duration {
        self.started
    }

    pub(super) fn process(&mut self) -> Option<&mut Process> {
        self.process.as_mut()
    }

    /// Reads what it writes to `from` until that is `enough`, or at its end: everything read, and when the
    /// last of it came.
    pub(super) fn read_until(
        &self,
        mut from: impl Read + AsFd,
        enough: impl Fn(&[u8]) -> bool,
    ) -> Result<(Vec<u8>, Duration), Failure> {
        let mut read = Vec::new();
        let mut buffer = [0; 16 << 10];
        loop {
            if self.cancel.is_cancelled() {
                return Err(stopped());
            }
            let mut fds = [PollFd::new(&from, PollFlags::IN)];
            match poll(&mut fds, Some(&NOTICED)) {
                Ok(0) | Err(Errno::INTR) => {
                    self.check_alive()?;
                    continue;
                }
                Ok(_) => {}
                Err(errno) => return Err(self.failed(&io::Error::from(errno).to_string())),
            }
            let at = clock::now();
            match from.read(&mut buffer) {
                Ok(0) => return Ok((read, at)),
                Ok(n) => read.extend_from_slice(&buffer[..n]),
                Err(error) if is_passing(error.kind()) => {}
                Err(error) => return Err(self.failed(&error.to_string())),
            }
            if enough(&read) {
                return Ok((read, at));
            }
        }
    }

    /// A named pipe that this process holds open itself does not end with the child.
    fn check_alive(&self) -> Result<(), Failure> {
        let Some(process) = &self.process else {
            return Ok(());
        };
        // Looked at only: it is waited for where its CPU time is read.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(Pid::from_child(process)), options) {
            Ok(Some(_)) => Err(self.failed("it has ended")),
            _ => Ok(()),
        }
    }

    /// Waits for its end.
    pub(super) fn wait(mut self) -> Result<(Ended, String), Failure> {
        let Some(mut process) = self.process.take() else {
            return Err(self.failed("it has ended"));
        };
        let waited = sys::wait(&mut process);
        let (status, cpu) = waited.map_err(|error| self.failed(&error.to_string()))?;
        Ok((Ended { status, cpu }, self.words()))
    }

    /// What it did wrong, with its own last words.
    pub(super) fn failed(&self, what: &str) -> Failure {
        let words = self.words();
        let words = match words.is_empty() {
            true => String::new(),
            false => format!(": {words}"),
        };
        Failure {
            class: Class::Internal,
            message: format!("{}: {what}{words}", self.name),
            fix: None,
        }
    }

    /// The end of what it wrote to its standard error, on one line.
    fn words(&self) -> String {
        let mut words = Vec::new();
        let mut file = &self.words;
        let _ = file.rewind().and_then(|()| file.read_to_end(&mut words));
        let text = String::from_utf8_lossy(&words);
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let text = lines.collect::<Vec<_>>().join(" | ");
        let from = text.len().saturating_sub(WORDS);
        let from = (from..text.len()).find(|n| text.is_char_boundary(*n));
        from.map_or(String::new(), |from| text[from..].to_owned())
    }
}

impl Drop for Child<'_> {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // Its memory is back when it has been waited for.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Whether the next try may go well.
fn is_passing(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}

/// A signal to this process, while a child runs.
pub(super) fn stopped() -> Failure {
    Failure {
        class: Class::Stopped,
        message: "Cancelled by a signal".to_owned(),
        fix: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        command.stdout(Stdio::piped());
        command
    }

    #[test]
    fn a_child_is_read_until_it_said_enough_and_its_end_is_seen() {
        let cancel = Cancel::new();
        let mut child = Child::start(&mut shell("echo one; echo two"), &cancel).expect("a shell");
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
        let child = Child::start(
            &mut shell("echo no memory >&2; echo here >&2; exit 3"),
            &cancel,
        );
        let (ended, words) = child.expect("a shell").wait().expect("it ends");
        assert_eq!(
            (ended.status.code(), &*words),
            (Some(3), "no memory | here")
        );
    }

    #[test]
    fn a_cancel_ends_the_reading_and_drop_the_child() {
        let cancel = Cancel::new();
        let mut child = Child::start(&mut shell("exec sleep 1000"), &cancel).expect("a shell");
        let output = child.process().and_then(|process| process.stdout.take());
        cancel.cancel();
        let failure = child.read_until(output.expect("a pipe"), |_| true);
        assert_eq!(failure.expect_err("cancelled").class, Class::Stopped);
        drop(child);
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let cancel = Cancel::new();
        let failure = Child::start(&mut Command::new("/nowhere/monitor"), &cancel);
        let failure = failure.expect_err("no such file");
        assert!(failure.message.contains("/nowhere/monitor"));
    }
}
