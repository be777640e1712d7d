//! A process that is timed from its exec to something that it says.
//!
//! The parent sleeps in poll(2) meanwhile: what it costs is one small write before the exec, and a wake-up at the end and
//! whenever the child complains.

mod words;

use std::cell::RefCell;
use std::fmt;
use std::io::{self, PipeWriter, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Child as Process, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use prezero_memory::{ByteSize, Cancel, Class};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};

use self::words::Words;
use super::sys;
use crate::clock;
use crate::failure::{Failure, MORE_FILES};

/// How soon a signal, and a child that is late, is noticed while the child has nothing to say.
const NOTICED: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// How slow a machine's memory may come, in bytes a second: a tenth of what one thread of an old host
/// clears, since the first touch of memory that a hypervisor has to find is up to twenty times slower.
const SLOWEST: u64 = 250_000_000;

/// What all else may take.
const BESIDES: Duration = Duration::from_secs(60);

/// How long a child that makes a machine of this size may say nothing, and take to end.
pub(super) fn limit(bytes: u64) -> Duration {
    BESIDES + Duration::from_secs(bytes / SLOWEST)
}

/// How often it is looked whether a child has ended where that cannot be waited for.
const NAP: Duration = Duration::from_millis(10);

const AT_ONCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// The most that a child may write, in bytes: a document of a machine with a thousand workers is a tenth of it.
const MOST: u64 = 16 << 20;

/// A running child. It does not outlive this value, nor this process; nor do those of its own, if it leads a
/// process group and this process is not killed.
#[derive(Debug)]
pub(super) struct Child<'a> {
    name: String,
    process: Option<Process>,
    /// Just before its exec, on the [clock] of all.
    started: Duration,
    words: RefCell<Words>,
    cancel: &'a Cancel,
    /// How long it may take to say what is waited for, and again to end.
    limit: Duration,
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
    /// What it is called is for errors.
    pub(super) fn start(
        name: impl fmt::Display,
        command: &mut Command,
        cancel: &'a Cancel,
        limit: Duration,
    ) -> Result<Self, Failure> {
        Self::start_with(name, command, cancel, limit, None)
    }

    /// The same; what comes between the moment that counts as its exec and the exec is over at the time that
    /// is written to `begun`.
    pub(super) fn start_with(
        name: impl fmt::Display,
        command: &mut Command,
        cancel: &'a Cancel,
        limit: Duration,
        begun: Option<PipeWriter>,
    ) -> Result<Self, Failure> {
        let name = name.to_string();
        let failed = |error: &io::Error| {
            let full = error.raw_os_error() == Some(Errno::MFILE.raw_os_error());
            Failure {
                class: if full {
                    Class::Shortage
                } else {
                    Class::Internal
                },
                message: format!("Cannot run {name}: {error}"),
                fix: full.then(|| MORE_FILES.to_owned()),
            }
        };
        let (words, theirs) = Words::new().map_err(|error| failed(&error))?;
        command.stderr(theirs);
        let (process, started) = sys::spawn(command, begun).map_err(|error| failed(&error))?;
        // The command has its own copies of what it was given: an end of a pipe that stays open here is
        // never at its end.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self {
            name,
            process: Some(process),
            started,
            words: RefCell::new(words),
            cancel,
            limit,
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
    /// last of it came. One that takes longer than it may is a failure of class [`Class::Stopped`].
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
            self.check(self.started, "say what was waited for")?;
            match self.wait_for(from.as_fd(), NOTICED) {
                Ok(true) => {}
                Ok(false) => {
                    // What it wrote before its end is there by then.
                    if self.has_ended() && self.wait_for(from.as_fd(), AT_ONCE) == Ok(false) {
                        return Err(self.failed("it has ended"));
                    }
                    continue;
                }
                Err(errno) => return Err(self.failed(&io::Error::from(errno).to_string())),
            }
            let at = clock::now();
            match from.read(&mut buffer) {
                Ok(0) => return Ok((read, at)),
                Ok(n) if (read.len() + n) as u64 > MOST => {
                    return Err(self.failed(&format!("it wrote more than {}", ByteSize(MOST))));
                }
                Ok(n) => read.extend_from_slice(&buffer[..n]),
                Err(error) if is_passing(error.kind()) => {}
                Err(error) => return Err(self.failed(&error.to_string())),
            }
            if enough(&read) {
                return Ok((read, at));
            }
        }
    }

    /// Whether something comes from there within this time; what it complains of meanwhile is kept. A signal ends the
    /// waiting.
    fn wait_for(&self, from: BorrowedFd<'_>, within: Timespec) -> Result<bool, Errno> {
        let mut words = self.words.borrow_mut();
        let mut fds = [from, words.fd().unwrap_or(from)]
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        match poll(&mut fds, Some(&within)) {
            Err(Errno::INTR) => return Ok(false),
            polled => polled?,
        };
        let [come, complains] = fds.map(|fd| !fd.revents().is_empty());
        if complains {
            words.read();
        }
        Ok(come)
    }

    /// A named pipe that this process holds open itself does not end with the child.
    fn has_ended(&self) -> bool {
        let Some(process) = &self.process else {
            return false;
        };
        // Looked at only: it is waited for where its CPU time is read.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        matches!(
            waitid(WaitId::Pid(Pid::from_child(process)), options),
            Ok(Some(_))
        )
    }

    /// A child that hangs would be waited for without an end.
    fn check(&self, since: Duration, to: &str) -> Result<(), Failure> {
        if clock::now().saturating_sub(since) < self.limit {
            return Ok(());
        }
        let what = format!("it was given {} s to {to}", self.limit.as_secs_f64());
        Err(Failure {
            class: Class::Stopped,
            fix: Some(
                "end what else runs here (top), or make smaller machines (--memory)".to_owned(),
            ),
            ..self.failed(&what)
        })
    }

    /// Waits for its end.
    pub(super) fn wait(mut self) -> Result<(Ended, String), Failure> {
        // A child that reads its input to the end would wait for us.
        drop(self.process.as_mut().and_then(|child| child.stdin.take()));
        self.wait_until_it_has_ended()?;
        // What it has started and left behind: as long as it is not waited for, its number is nobody else's.
        self.end_group();
        let Some(process) = self.process.take() else {
            return Err(self.failed("it has ended"));
        };
        let waited = sys::wait(&process);
        let (status, cpu) = waited.map_err(|error| self.failed(&error.to_string()))?;
        Ok((Ended { status, cpu }, self.words()))
    }

    fn wait_until_it_has_ended(&self) -> Result<(), Failure> {
        let Some(process) = &self.process else {
            return Ok(());
        };
        let since = clock::now();
        let ending = pidfd_open(Pid::from_child(process), PidfdFlags::empty());
        loop {
            if self.cancel.is_cancelled() {
                return Err(stopped());
            }
            self.check(since, "end")?;
            let ended = match &ending {
                Ok(ending) => self.wait_for(ending.as_fd(), NOTICED),
                // A seccomp filter that does not know the call.
                Err(_) => {
                    thread::sleep(NAP);
                    self.words.borrow_mut().read();
                    Ok(self.has_ended())
                }
            };
            match ended {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(errno) => return Err(self.failed(&io::Error::from(errno).to_string())),
            }
        }
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
        let mut words = self.words.borrow_mut();
        words.read();
        words.line()
    }

    /// Kills its process group, if it leads one.
    fn end_group(&self) {
        if let Some(process) = &self.process {
            let _ = kill_process_group(Pid::from_child(process), Signal::KILL);
        }
    }
}

impl Drop for Child<'_> {
    fn drop(&mut self) {
        self.end_group();
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
mod tests;
