//! Fresh pages for a dirty segment, within its file.
//!
//! A piece at a time, pages are punched out of the file and fresh ones populated in their place. The file keeps
//! its name, which says dirty, all the while. So whoever is killed at it leaves a segment that is dirty and
//! whole, or one that is *torn*: as long as its name says, with pages missing. Nobody uses a torn one, because
//! every use begins with counting its blocks; the next scrub fills it up. There is never a segment less, and
//! never one more.
//!
//! A page that somebody still has pinned leaves the file as well, but does not become free: the kernel keeps it
//! for the pin, and what is populated in its place is another page. That is what exchanging is for. Until the pin
//! is gone the kernel has a page less to give, and without a spare one its segment stays torn.

use std::cell::Cell;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate, fstat};

use super::super::error::PoolError;
use super::super::lock::Locked;
use super::super::mapped::Mapped;
use super::report::refused;
use super::{Left, Pass, ScrubReport, finish};
use crate::control::{Control, Stall};
use crate::plan::Origin;
use crate::populate::{PopulateError, populate};
use crate::size::PageBytes;

/// Bytes for each worker that are exchanged at a time: a chunk of populating. It is what somebody else could
/// take between punching and mapping, and what a cancel waits for.
const PIECE: u64 = 32 << 20;

/// Which pages of a segment are populated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refill {
    /// All, after they were given back.
    All,
    /// Those that are missing.
    Missing,
}

/// Why a segment was not refilled.
#[derive(Debug)]
pub(super) enum NotRefilled {
    Left(Left),
    /// The pass ends.
    Stopped(PoolError),
}

impl Pass<'_> {
    /// Returns the segment, clean by now and still locked, or notes why it is not.
    pub(super) fn exchange(
        &mut self,
        locked: Locked,
        control: &Control<'_>,
        report: &mut ScrubReport,
    ) -> Result<Option<Locked>, PoolError> {
        let whole = locked.check_whole(self.pool.owned).is_ok();
        // A poisoned page stays where it is: punched, it would be counted as free and never be had again.
        let checked = match whole {
            true => self
                .pool
                .resident(&locked)
                .map(drop)
                .map_err(NotRefilled::Left),
            false => Ok(()),
        };
        self.start_pace();
        let refilled = checked.and_then(|()| self.refill(&locked, Refill::All, control, report));
        let resident =
            refilled.and_then(|()| self.pool.resident(&locked).map_err(NotRefilled::Left));
        let finished = match resident {
            Ok(resident) => finish(locked, resident, self.pool.owned),
            Err(NotRefilled::Left(left)) => Err((locked, left)),
            Err(NotRefilled::Stopped(error)) => return Err(error),
        };
        match finished {
            Ok(locked) => {
                report.segments += 1;
                report.bytes += locked.len().bytes();
                Ok(Some(locked))
            }
            Err((locked, left)) => {
                // Whoever has its pages would have the next ones, too.
                self.give_up |= whole && matches!(left, Left::Incomplete { .. });
                report.leave(locked, left);
                Ok(None)
            }
        }
    }

    /// Has all pages of a segment there. Stopped between two pieces, it leaves the segment whole if it was.
    pub(super) fn refill(
        &mut self,
        locked: &Locked,
        which: Refill,
        control: &Control<'_>,
        report: &mut ScrubReport,
    ) -> Result<(), NotRefilled> {
        let (start, page) = (Instant::now(), locked.page_size());
        let workers = self.workers.count() as u64;
        let at_once = workers.saturating_mul(PIECE.max(page.bytes()));
        let piece = match &self.pace {
            Some(pace) => pace.piece(page).min(at_once),
            None => at_once,
        };
        // Clearing comes after it, and is what is told of then.
        let progress = control.progress.filter(|_| which == Refill::All);
        // A piece is not stopped half-way, but who watches has to know that it was asked for.
        let asked: Cell<Option<Instant>> = Cell::new(None);
        let stalled = |stall: &Stall| {
            if control.stopped_by().is_some() && asked.get().is_none() {
                asked.set(Some(Instant::now()));
            }
            if let Some(tell) = control.stalled {
                tell(&Stall {
                    stopping: asked.get().map(|asked| asked.elapsed()),
                    ..stall.clone()
                });
            }
        };
        let to_its_end = Control {
            progress,
            stalled: Some(&stalled),
            ..Control::default()
        };
        let mut offset = 0;
        while offset < locked.len().bytes() {
            if let Some(by) = control.stopped_by() {
                let (nodes, elapsed) = (self.stages.so_far(), start.elapsed());
                let stopped = PopulateError::Stopped { by, nodes, elapsed };
                return Err(NotRefilled::Stopped(stopped.into()));
            }
            let len = piece.min(locked.len().bytes() - offset);
            let Some(part) = PageBytes::new(len, page) else {
                return Err(NotRefilled::Left(Left::Refused {
                    errno: libc::EINVAL,
                }));
            };
            if which == Refill::All {
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(locked.file(), punch, offset, len)
                    .map_err(|errno| NotRefilled::Left(refused(&errno.into())))?;
            }
            let populated = self.populate_part(locked, offset, part, &to_its_end);
            report.work_time +=
                populated.map_err(|error| self.incomplete(locked, which, &error))?;
            if which == Refill::All {
                self.stages.finish(locked.node(), len);
                self.paced(len, control);
            }
            offset += len;
        }
        Ok(())
    }

    fn populate_part(
        &self,
        locked: &Locked,
        offset: u64,
        len: PageBytes,
        control: &Control<'_>,
    ) -> Result<Duration, PoolError> {
        let missing = locked.len().bytes().saturating_sub(present(locked));
        let short = PageBytes::new(missing.min(len.bytes()), len.page_size()).unwrap_or(len);
        // One node's pages are all there are: no call that a container might refuse.
        let bound = self.host.nodes.len() > 1;
        let mapped = Mapped::new(locked.file(), offset, len, locked.node(), bound);
        let mapped = mapped.map_err(|(step, source)| {
            PoolError::of_mapping(&locked.dir().path, locked.node(), short, step, source)
        })?;
        let target = [mapped.target(Origin::Dirty)];
        let populated = self
            .stages
            .during(control, |control| populate(&self.workers, &target, control))?;
        Ok(populated.time)
    }

    fn incomplete(&mut self, locked: &Locked, which: Refill, error: &PoolError) -> NotRefilled {
        if which == Refill::All {
            // A limit of this process's would be in the way of the next one, too.
            self.give_up |= !matches!(error, PoolError::Short(_));
        } else if let Err(poisoned @ Left::Poisoned { .. }) = self.pool.resident(locked) {
            return NotRefilled::Left(poisoned);
        }
        NotRefilled::Left(Left::Incomplete {
            present: present(locked),
            why: error.to_string(),
            fix: error.fix(),
        })
    }
}

/// Bytes of a segment that are there.
fn present(locked: &Locked) -> u64 {
    let blocks = fstat(locked.file()).map_or(0, |facts| facts.st_blocks);
    u64::try_from(blocks).unwrap_or(0).saturating_mul(512)
}
