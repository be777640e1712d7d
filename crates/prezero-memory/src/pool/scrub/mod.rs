//! Clearing free dirty segments, off the critical path.

mod exchange;
mod on_demand;
mod rate;
mod report;
mod request;

use std::collections::{BTreeMap, VecDeque};
use std::thread::Builder;
use std::time::Instant;

use prezero_host::Host;

use self::rate::Pace;
pub use self::report::{Left, NotScrubbed, ScrubReport};
use self::report::{refused, stopped_by};
use self::request::Priority;
pub use self::request::ScrubRequest;
use super::Pool;
use super::error::PoolError;
use super::lock::{Locked, NotLocked};
use super::mapped::{Mapped, Piece, Resident, clear_pieces};
use super::name::State;
use super::scan::Listed;
use super::stages::Stages;
use super::sys::run_this_thread_when_idle;
use crate::clear::{ClearError, ClearRequest};
use crate::control::Control;
use crate::plan::{NodeWork, plan_workers};
use crate::workers::{ThreadBody, Workers};

impl Pool {
    /// Clears every free dirty segment, one of each node at a time, on the workers of their nodes, which
    /// run only where nothing else wants the CPU (`SCHED_IDLE`). A segment is renamed to clean after all of
    /// it was cleared and fenced, if nobody else has it open then; until that it is dirty, whatever happens.
    ///
    /// With `exchange`, fresh pages are populated and published clean, and the old segment is removed after
    /// that: for a moment there is one segment more. Where the kernel has no pages for that, the old
    /// segment's go back first; if they cannot be had again, somebody else took them, the segment is gone
    /// [`Left::Lost`] says so, and the pass ends. Fresh pages are charged to this process's cgroup.
    ///
    /// # Errors
    ///
    /// If the directories cannot be read, threads cannot be made, or workers fail. Being stopped is none.
    pub fn scrub(
        &self,
        host: &Host,
        request: &ScrubRequest,
        control: &Control<'_>,
    ) -> Result<ScrubReport, PoolError> {
        let start = Instant::now();
        let scan = self.scan()?;
        let mut report = ScrubReport {
            problems: scan.problems,
            ..ScrubReport::default()
        };
        let mut dirty = scan.segments;
        let locked = self.locked_inodes();
        dirty.retain(|listed| {
            let is_dirty = listed.name.state == State::Dirty;
            // Opening it would tell everybody who waits for a release that there was one.
            let leased = is_dirty && locked.contains(&listed.inode);
            report.busy.extend(leased.then_some(listed.name));
            is_dirty && !leased
        });
        if !dirty.is_empty() {
            let work = dirty
                .iter()
                .map(|listed| (listed.dir.node, listed.name.bytes));
            let mut pass = Pass::new(self, host, request, work, Priority::Idle)?;
            pass.run(dirty, control, &mut report)?;
        }
        report.time = start.elapsed();
        Ok(report)
    }
}

/// One pass over the dirty segments.
struct Pass<'a> {
    pool: &'a Pool,
    host: &'a Host,
    workers: Workers,
    request: &'a ScrubRequest,
    clear: ClearRequest,
    pace: Option<Pace>,
    stages: Stages,
}

impl<'a> Pass<'a> {
    fn new(
        pool: &'a Pool,
        host: &'a Host,
        request: &'a ScrubRequest,
        segments: impl IntoIterator<Item = (u32, u64)>,
        priority: Priority,
    ) -> Result<Self, PoolError> {
        let mut work: BTreeMap<u32, u64> = BTreeMap::new();
        for (node, bytes) in segments {
            *work.entry(node).or_default() += bytes;
        }
        let work = work.into_iter().map(|(node, bytes)| NodeWork {
            node,
            bytes,
            pages: bytes >> pool.page_size().shift(),
        });
        let work: Vec<NodeWork> = work.collect();
        let plan = plan_workers(host, &work, request.threads, None);
        let workers = Workers::start_with(&plan, &|builder: Builder, body: ThreadBody| {
            builder.spawn(move || {
                if priority == Priority::Idle {
                    // Refused, it costs the guests some CPU time, and nothing else.
                    let _ = run_this_thread_when_idle();
                }
                body();
            })
        })?;
        Ok(Self {
            pool,
            host,
            workers,
            request,
            clear: request.clearing(),
            pace: request.rate.map(Pace::new),
            stages: Stages::new(work.iter().map(|work| (work.node, work.bytes))),
        })
    }

    fn run(
        &mut self,
        dirty: Vec<Listed>,
        control: &Control<'_>,
        report: &mut ScrubReport,
    ) -> Result<(), PoolError> {
        let mut queues: BTreeMap<u32, VecDeque<Listed>> = BTreeMap::new();
        for listed in dirty {
            queues.entry(listed.dir.node).or_default().push_back(listed);
        }
        loop {
            report.stopped = control.stopped_by();
            if report.stopped.is_some() {
                return Ok(());
            }
            let round = queues
                .values_mut()
                .filter_map(|queue| self.lock_next(queue, report));
            let round: Vec<Locked> = round.collect();
            if round.is_empty() {
                return Ok(());
            }
            let done = match self.request.exchange {
                true => round
                    .into_iter()
                    .try_for_each(|old| self.exchange(old, control, report)),
                // Unlocked at once.
                false => self.clear(round, control, report).map(drop),
            };
            match done {
                Err(error) if stopped_by(&error).is_some() => report.stopped = stopped_by(&error),
                done => done?,
            }
            // Whoever has its pages would have the next ones too.
            if report.lost() {
                return Ok(());
            }
        }
    }

    /// The next segment of a node that can be had.
    fn lock_next(&self, queue: &mut VecDeque<Listed>, report: &mut ScrubReport) -> Option<Locked> {
        while let Some(listed) = queue.pop_front() {
            match self.pool.lock_segment(&listed) {
                Ok(locked) => return Some(locked),
                Err(NotLocked::Busy) => report.busy.push(listed.name),
                Err(NotLocked::Gone) => {}
                Err(NotLocked::Problem(problem)) => report.problems.push(problem),
            }
        }
        None
    }

    /// Returns those that are clean by now, still locked.
    fn clear(
        &mut self,
        round: Vec<Locked>,
        control: &Control<'_>,
        report: &mut ScrubReport,
    ) -> Result<Vec<Locked>, PoolError> {
        let mut ready: Vec<(Locked, Resident)> = Vec::new();
        for locked in round {
            match self.resident(&locked) {
                Ok(resident) => ready.push((locked, resident)),
                Err(left) => {
                    self.stages.finish(locked.node(), locked.len().bytes());
                    report.leave(locked, left);
                }
            }
        }
        self.clear_all(&ready, control, report)?;
        let mut clean = Vec::new();
        for (locked, resident) in ready {
            match finish(locked, resident) {
                Ok(locked) => {
                    report.segments += 1;
                    report.bytes += locked.len().bytes();
                    clean.push(locked);
                }
                Err((locked, left)) => report.leave(locked, left),
            }
        }
        Ok(clean)
    }

    /// Maps a segment and sees that all of its pages can be written to.
    fn resident(&self, locked: &Locked) -> Result<Resident, Left> {
        let mapped = Mapped::new(locked.file(), locked.len(), locked.node(), false);
        let mapped = mapped.map_err(|(_, source)| refused(&source))?;
        mapped.touched(self.pool.touch).map_err(|bad| {
            let (offset, errno) = (bad.offset, bad.source.raw_os_error().unwrap_or(0));
            match errno {
                libc::EHWPOISON => Left::Poisoned { offset },
                _ => Left::Untouchable { offset, errno },
            }
        })
    }

    fn clear_all(
        &mut self,
        ready: &[(Locked, Resident)],
        control: &Control<'_>,
        report: &mut ScrubReport,
    ) -> Result<(), ClearError> {
        let Some(pace) = &mut self.pace else {
            let all = ready
                .iter()
                .flat_map(|(_, resident)| resident.pieces(u64::MAX));
            let all: Vec<Piece<'_>> = all.collect();
            let cleared = self.stages.during(control, |control| {
                clear_pieces(&self.workers, &all, &self.clear, control)
            })?;
            report.work_time += cleared.time;
            report.choices = cleared.choices;
            for (locked, _) in ready {
                self.stages.finish(locked.node(), locked.len().bytes());
            }
            return Ok(());
        };
        let piece = pace.piece(self.pool.page_size());
        for (locked, resident) in ready {
            for piece in resident.pieces(piece) {
                pace.start();
                let cleared = self.stages.during(control, |control| {
                    clear_pieces(&self.workers, &[piece], &self.clear, control)
                })?;
                self.stages.finish(locked.node(), piece.bytes());
                report.work_time += cleared.time;
                report.choices = cleared.choices;
                pace.done(piece.bytes(), control);
            }
        }
        Ok(())
    }

    /// Waits until so many bytes were due, if there is a rate.
    fn paced(&mut self, bytes: u64, control: &Control<'_>) {
        if let Some(pace) = &mut self.pace {
            pace.done(bytes, control);
        }
    }

    fn start_pace(&mut self) {
        if let Some(pace) = &mut self.pace {
            pace.start();
        }
    }
}

/// Names a cleared segment clean, if nothing speaks against it.
fn finish(mut locked: Locked, resident: Resident) -> Result<Locked, (Locked, Left)> {
    // Where asking is refused, nothing says that they are elsewhere.
    let elsewhere = resident.elsewhere().ok().flatten();
    drop(resident);
    if let Some(found) = elsewhere {
        let (offset, found) = (found.offset, found.found);
        return Err((locked, Left::Elsewhere { offset, found }));
    }
    // Whoever opened it since it was locked may write to it after it was cleared.
    if !locked.is_exclusive() {
        return Err((locked, Left::Opened));
    }
    match locked.set_state(State::Clean) {
        Ok(()) => Ok(locked),
        Err(source) => Err((locked, refused(&source))),
    }
}
