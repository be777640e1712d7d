//! A process that is timed from its exec to something that it says.
//!
//! The parent sleeps in poll(2) meanwhile: what it costs is one small write before the exec, and a wake-up at the end and
//! whenever the child complains.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Child as Process, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use prezero_memory::{Cancel, Class};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};

use super::sys;
use crate::clock;
use crate::failure::Failure;
use crate::printable::printable;

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

/// The last of what a child wrote that is worth repeating, in bytes.
const WORDS: usize = 400;

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
                fix: full.then(|| "ulimit -n 1024".to_owned()),
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
            self.check(self.started, "get so far")?;
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
                    return Err(self.failed("it does not stop writing"));
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

/// The standard error of a child, of which the last is kept.
#[derive(Debug)]
struct Words {
    /// None at its end.
    from: Option<PipeReader>,
    last: Vec<u8>,
}

impl Words {
    /// And the end to write to.
    fn new() -> io::Result<(Self, PipeWriter)> {
        let (from, to) = io::pipe()?;
        ioctl_fionbio(&from, true)?;
        let last = Vec::new();
        let from = Some(from);
        Ok((Self { from, last }, to))
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.from.as_ref().map(AsFd::as_fd)
    }

    /// Takes what is there, as much as a pipe holds: more may come as fast as it is read.
    fn read(&mut self) {
        // Characters have at most four bytes, and what goes with them is left out.
        const KEPT: usize = 8 * WORDS;
        let mut buffer = [0; 64 << 10];
        let Some(from) = &mut self.from else {
            return;
        };
        match from.read(&mut buffer) {
            Ok(0) => self.from = None,
            Ok(n) => {
                self.last.extend_from_slice(&buffer[..n]);
                let old = self.last.len().saturating_sub(KEPT);
                self.last.drain(..old);
            }
            Err(error) if is_passing(error.kind()) => {}
            Err(_) => self.from = None,
        }
    }

    fn line(&self) -> String {
        let text = String::from_utf8_lossy(&self.last);
        let lines = text.lines().map(|line| printable(line).trim().to_owned());
        let lines: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
        let text = lines.join(" | ");
        let from = text.len().saturating_sub(WORDS);
        let from = (from..text.len()).find(|n| text.is_char_boundary(*n));
        from.map_or(String::new(), |from| text[from..].to_owned())
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
            ("exec cat /dev/zero", "does not stop writing"),
            // It may complain for as long as it has time, without a pipe that fills.
            ("exec 3>&1; exec cat /dev/zero >&2", "was given 0.3 s"),
        ] {
            let mut child =
                Child::start("sh", &mut shell(script), &cancel, limit).expect("a shell");
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
}
