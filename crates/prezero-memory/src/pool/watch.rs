//! Waiting for segments to be released.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use prezero_host::Host;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::Pool;
use super::error::PoolError;
use super::name::{SegmentName, State};
use super::scrub::{ScrubReport, ScrubRequest};
use crate::control::Control;

/// How long a wait lasts before the caller's wish to stop is seen.
const NAP: Duration = Duration::from_millis(100);
/// The kernel tells of a close a moment before the lock is free: the first pass after it may be too early,
/// and is repeated after this, then after four times as much, and so on.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LAST_PAUSE: Duration = Duration::from_secs(2);
/// Without any news. An event can be lost where a queue overflows or a node's directory is new.
const QUIET: Duration = Duration::from_secs(30);

/// Tells when a segment may have been released, from the moment it was made.
#[derive(Debug)]
pub struct Watch {
    inotify: OwnedFd,
}

/// What was closed.
#[derive(Debug, Default)]
struct Closed {
    names: Vec<SegmentName>,
    /// There were more events than the kernel keeps, or a directory is gone: nobody knows what was closed.
    unknown: bool,
}

impl Pool {
    /// Watches the directories of all nodes.
    ///
    /// # Errors
    ///
    /// If there are no more inotify instances (`fs.inotify.max_user_instances`), or a directory cannot be
    /// read.
    pub fn watch(&self) -> Result<Watch, PoolError> {
        let made = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
        let failed = PoolError::io("watch", &self.path);
        let watch = Watch {
            inotify: made.map_err(|errno| failed(errno.into()))?,
        };
        self.follow(&watch)?;
        Ok(watch)
    }

    /// Watches directories that were made since; those that are watched stay so.
    fn follow(&self, watch: &Watch) -> Result<(), PoolError> {
        let closes = WatchFlags::CLOSE_WRITE | WatchFlags::CLOSE_NOWRITE | WatchFlags::ONLYDIR;
        for dir in self.node_dirs()?.0 {
            let itself = format!("/proc/self/fd/{}", dir.fd.as_raw_fd());
            inotify::add_watch(&watch.inotify, itself, closes)
                .map_err(|errno| PoolError::io("watch", &dir.path)(errno.into()))?;
        }
        Ok(())
    }

    /// Scrubs, waits until a segment is released, and so on until it is stopped. `each` sees the report of
    /// every pass that did something or was the first.
    ///
    /// # Errors
    ///
    /// As [`Pool::scrub`] and [`Pool::watch`]; [`PoolError::Missing`] when the pool is destroyed. Being stopped is
    /// none.
    pub fn scrub_on_release(
        &self,
        host: &Host,
        request: &ScrubRequest,
        control: &Control<'_>,
        each: &mut dyn FnMut(&ScrubReport),
    ) -> Result<(), PoolError> {
        // Before the first pass, so that no release falls between the two.
        let watch = self.watch()?;
        let mut pause = FIRST_PAUSE;
        let mut first = true;
        loop {
            if self.is_removed()? {
                // One that was made in its place is another pool.
                return Err(PoolError::Missing(self.path.clone()));
            }
            self.follow(&watch)?;
            let report = self.scrub(host, request, control)?;
            let useful = report.segments > 0 || !report.left.is_empty();
            if useful || first {
                each(&report);
            }
            if report.stopped.is_some() || control.stopped_by().is_some() {
                return Ok(());
            }
            first = false;
            pause = match report.segments > 0 {
                true => FIRST_PAUSE,
                false => pause.saturating_mul(4).min(LAST_PAUSE),
            };
            pause = self.wait_for_news(&watch, &report.tried(), pause, control)?;
            if control.stopped_by().is_some() {
                return Ok(());
            }
        }
    }

    /// Returns when another pass is worth it, with the pause that is to follow it if it is not.
    fn wait_for_news(
        &self,
        watch: &Watch,
        tried: &[SegmentName],
        pause: Duration,
        control: &Control<'_>,
    ) -> Result<Duration, PoolError> {
        let failed = PoolError::io("watch", &self.path);
        let start = Instant::now();
        let mut again = if pause < LAST_PAUSE { pause } else { QUIET };
        loop {
            let left = again.saturating_sub(start.elapsed());
            let closed = watch.closed(control, left).map_err(&failed)?;
            if left.is_zero() || control.stopped_by().is_some() {
                return Ok(pause);
            }
            let dirty = closed
                .names
                .iter()
                .filter(|name| name.state == State::Dirty);
            if closed.unknown || dirty.clone().any(|name| !tried.contains(name)) {
                return Ok(FIRST_PAUSE);
            }
            // The pass has opened and closed these itself; or else it was somebody else just now.
            if dirty.count() > 0 {
                again = again.min(LAST_PAUSE);
            }
        }
    }
}

impl ScrubReport {
    /// The segments that the pass has opened and left as they were.
    fn tried(&self) -> Vec<SegmentName> {
        let left = self.left.iter().map(|left| &left.path);
        let paths = left.chain(self.problems.iter().map(|problem| &problem.path));
        let names = paths.filter_map(|path| path.file_name()?.to_str()?.parse().ok());
        names.chain(self.busy.iter().copied()).collect()
    }
}

impl Watch {
    /// Waits until a segment is closed by anybody, this process included, `timeout` at most; true if one
    /// was. It may be locked for a moment longer, and it may be taken again by then: try it.
    ///
    /// # Errors
    ///
    /// Of poll(2) and read(2).
    pub fn wait(&self, control: &Control<'_>, timeout: Duration) -> io::Result<bool> {
        let closed = self.closed(control, timeout)?;
        Ok(closed.unknown || !closed.names.is_empty())
    }

    fn closed(&self, control: &Control<'_>, timeout: Duration) -> io::Result<Closed> {
        let start = Instant::now();
        loop {
            let closed = self.read()?;
            let left = timeout.saturating_sub(start.elapsed());
            let told = closed.unknown || !closed.names.is_empty();
            if told || left.is_zero() || control.stopped_by().is_some() {
                return Ok(closed);
            }
            let mut fds = [PollFd::from_borrowed_fd(
                self.inotify.as_fd(),
                PollFlags::IN,
            )];
            let nap = Timespec::try_from(left.min(NAP)).ok();
            match poll(&mut fds, nap.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn read(&self) -> io::Result<Closed> {
        let mut closed = Closed::default();
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => {
                    let unknown = ReadFlags::QUEUE_OVERFLOW | ReadFlags::IGNORED;
                    closed.unknown |= event.events().intersects(unknown);
                    let name = event.file_name().and_then(|name| name.to_str().ok());
                    closed
                        .names
                        .extend(name.and_then(|name| name.parse::<SegmentName>().ok()));
                }
                Err(Errno::AGAIN | Errno::INTR) => return Ok(closed),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}
