//! The guest's console on its way to a file or a terminal that may take nothing, for ever: a thread of its own waits for
//! it, and the run goes on without that thread when it is told to stop.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A guest that writes faster than it is shown waits when so much is due here.
const DUE_MAX: usize = 64 << 10;
/// How long nothing may be taken after the run was told to stop.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often a waiting run looks whether it was told to stop.
const TICK: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
struct State {
    /// What is not written yet. The thread has a copy of its beginning.
    due: Vec<u8>,
    /// Nothing more is to be written.
    ended: bool,
    failed: Option<io::Error>,
}

impl State {
    /// Nothing more can be written.
    fn fail(&mut self, error: io::Error) {
        self.failed = Some(error);
        self.due.clear();
        self.ended = true;
    }
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, TICK);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Writes what is due, until that is the end.
    fn write_to(&self, mut to: impl Write + AsFd) {
        let mut state = self.state();
        while !state.ended {
            if state.due.is_empty() {
                // Whoever changes that says so.
                let waited = self.changed.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let part = state.due[..state.due.len().min(4096)].to_vec();
            drop(state);
            let written = to.write(&part);
            state = self.state();
            match written {
                // What is not taken now never will be.
                Ok(0) => state.fail(ErrorKind::WriteZero.into()),
                // What was given up meanwhile is not due any more.
                Ok(len) => {
                    let len = len.min(state.due.len());
                    state.due.drain(..len);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Whoever opened it wants no write to wait (O_NONBLOCK), which is theirs and stays.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    drop(state);
                    wait_for_room(&to);
                    state = self.state();
                }
                Err(error) => state.fail(error),
            }
            self.changed.notify_all();
        }
    }
}

/// Until something can be written, for a tick at most: the run may give up meanwhile.
fn wait_for_room(to: &impl AsFd) {
    let tick = Timespec::try_from(TICK).ok();
    // What is wrong with it is what the next write says.
    let _ = poll(&mut [PollFd::new(to, PollFlags::OUT)], tick.as_ref());
}

/// Output of the guest. What cannot be written is lost: the guest goes on, and the user is told at the end.
#[derive(Debug)]
pub(super) struct Written {
    /// The file's name.
    name: String,
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
    cancel: Arc<AtomicBool>,
    /// Whether the last line is to be ended.
    ends_lines: bool,
    open_line: bool,
    /// Bytes that nobody took in time; the rest is then not even tried.
    lost: usize,
}

/// What the user should know of a console in the end.
#[derive(Debug)]
pub(super) struct Unwritten {
    pub(super) warning: String,
    /// Whether nobody took it, and may take nothing else either.
    pub(super) stalled: bool,
}

impl Written {
    pub(super) fn start(
        name: String,
        to: File,
        ends_lines: bool,
        cancel: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name("prezero-console".to_owned());
        let thread = thread.spawn(move || of_thread.write_to(to))?;
        Ok(Self {
            name,
            shared,
            thread,
            cancel,
            ends_lines,
            open_line: false,
            lost: 0,
        })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        let Some(last) = bytes.last() else {
            return;
        };
        self.open_line = *last != b'\n';
        let mut state = self.shared.state();
        if self.lost > 0 {
            self.lost += bytes.len();
        } else if !state.ended {
            state.due.extend_from_slice(bytes);
            self.shared.changed.notify_all();
            drop(state);
            self.wait_until_due(DUE_MAX);
        }
    }

    /// Waits until no more than that is due, or until nobody takes it and the run is to stop.
    fn wait_until_due(&mut self, most: usize) {
        let mut state = self.shared.state();
        let (mut last, mut since) = (state.due.len(), Instant::now());
        while state.due.len() > most {
            state = self.shared.wait(state);
            let due = state.due.len();
            if due != last || !self.cancel.load(Ordering::Relaxed) {
                (last, since) = (due, Instant::now());
            } else if since.elapsed() >= PATIENCE {
                self.lost = due;
                state.due.clear();
                state.ended = true;
            }
        }
    }

    /// Ends the guest's last line, so that what comes next has one of its own, and waits until all is written.
    pub(super) fn end(mut self) -> Option<Unwritten> {
        if self.open_line && self.ends_lines && self.lost == 0 {
            self.write(b"\n");
        }
        self.wait_until_due(0);
        let failed = {
            let mut state = self.shared.state();
            state.ended = true;
            self.shared.changed.notify_all();
            state.failed.take()
        };
        if self.lost == 0 {
            // It has nothing left to do. Where it stands still it ends with the process.
            let _ = self.thread.join();
        }
        let name = &self.name;
        let (warning, stalled) = match (failed, self.lost) {
            (None, 0) => return None,
            (Some(error), _) => (
                format!("Writing the guest's console to {name}: {error}"),
                false,
            ),
            (None, lost) => (
                format!(
                    "The last {lost} bytes of the guest's console are lost: nothing was read from {name} for {} s after the run was told to stop",
                    PATIENCE.as_secs()
                ),
                true,
            ),
        };
        Some(Unwritten { warning, stalled })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, pipe};
    use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
    use std::os::unix::fs::OpenOptionsExt;

    use rustix::fs::OFlags;

    use super::*;

    fn written(cancelled: bool) -> (io::PipeReader, Written) {
        let (reader, writer) = pipe().expect("a pipe");
        let to = File::from(OwnedFd::from(writer));
        (reader, written_to(to, cancelled))
    }

    /// The same pipe, on which no write waits.
    fn written_at_once(cancelled: bool) -> (io::PipeReader, Written) {
        let (reader, writer) = pipe().expect("a pipe");
        let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
        let options = OFlags::NONBLOCK.bits().cast_signed();
        let to = File::options().write(true).custom_flags(options).open(path);
        (reader, written_to(to.expect("another end"), cancelled))
    }

    fn written_to(to: File, cancelled: bool) -> Written {
        let cancel = Arc::new(AtomicBool::new(cancelled));
        let written = Written::start("stdout".to_owned(), to, true, cancel);
        written.expect("a thread")
    }

    #[test]
    fn everything_is_written_in_order_however_slowly_it_is_taken() {
        // Also after a cancel, as long as somebody reads, and where no write waits.
        for start in [written, written_at_once] {
            for cancelled in [false, true] {
                is_written_in_order(start(cancelled));
            }
        }
    }

    #[track_caller]
    fn is_written_in_order((mut reader, mut written): (io::PipeReader, Written)) {
        let bytes: Vec<u8> = (0..=250).cycle().take(300_000).collect();
        let read = thread::spawn(move || {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).expect("read");
            all
        });
        bytes.chunks(7000).for_each(|chunk| written.write(chunk));
        assert!(written.end().is_none());
        let read = read.join().expect("it reads");
        assert_eq!(
            (&read[..300_000], &read[300_000..]),
            (&bytes[..], &b"\n"[..])
        );
    }

    #[test]
    fn what_nobody_takes_is_given_up_once_the_run_is_to_stop() {
        for start in [written, written_at_once] {
            is_given_up(start(true));
        }
    }

    #[track_caller]
    fn is_given_up((reader, mut written): (io::PipeReader, Written)) {
        let start = Instant::now();
        // A pipe takes 64 KiB, and as much may be due.
        for _ in 0..4 {
            written.write(&[b'-'; 100_000]);
        }
        let unwritten = written.end().expect("not all was taken");
        assert!(unwritten.stalled);
        assert!(
            unwritten.warning.contains("The last 334464 bytes"),
            "{}",
            unwritten.warning
        );
        assert!(start.elapsed() < 3 * PATIENCE, "it waits once");
        drop(reader);
    }

    /// A file that writes to it come back from without an error, and without a byte.
    struct Nothing;

    impl Write for Nothing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Ok(0)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl AsFd for Nothing {
        fn as_fd(&self) -> BorrowedFd<'_> {
            rustix::stdio::stdout()
        }
    }

    #[test]
    fn a_file_that_takes_nothing_more_is_an_error() {
        let mut state = State::default();
        state.due.push(b'-');
        let shared = Shared {
            state: Mutex::new(state),
            ..Shared::default()
        };
        shared.write_to(Nothing);
        let failed = shared.state().failed.take().expect("it is told");
        assert_eq!(failed.kind(), ErrorKind::WriteZero);
    }

    #[test]
    fn a_reader_that_is_gone_is_an_error_that_is_told_once() {
        let (reader, mut written) = written(false);
        drop(reader);
        for _ in 0..4 {
            written.write(&[b'-'; 100_000]);
        }
        let unwritten = written.end().expect("nobody was there");
        assert!(!unwritten.stalled);
        assert!(unwritten.warning.contains("Broken pipe"), "{unwritten:?}");
    }
}
