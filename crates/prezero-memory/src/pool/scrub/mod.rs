//! Clearing free dirty segments, off the critical path.

mod clear;
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
pub(super) use self::report::refused;
use self::report::stopped_by;
pub use self::report::{Left, NotScrubbed, ScrubReport};
use self::request::Priority;
pub use self::request::ScrubRequest;
use super::Pool;
use super::error::PoolError;
use super::lock::{Locked, NotLocked};
use super::mapped::Resident;
use super::name::State;
use super::problem::{Owned, Problem};
use super::scan::Listed;
use super::stages::Stages;
use super::sys::run_this_thread_when_idle;
use crate::clear::ClearRequest;
use crate::control::Control;
use crate::plan::{NodeWork, plan_workers};
use crate::workers::{ThreadBody, Workers};

impl Pool {
    /// Clears every free dirty segment, one of each node at a time, on the workers of their nodes, which
    /// run only where nothing else wants the CPU (`SCHED_IDLE`). A segment is renamed to clean after all of
    /// it was cleared and fenced, if nobody else has it open then; until that it is dirty, whatever happens.
    ///
    /// With `exchange`, and of a pool that is [exchange-only](Pool::is_exchange_only), the pages of a segment
    /// go back to the kernel and fresh ones take their place in its file, a piece at a time. Pages that cannot
    /// be had again were taken by somebody else, or are pinned: [`Left::Incomplete`] says so in numbers, and
    /// the pass ends. Fresh pages are charged to this process's cgroup.
    ///
    /// A free dirty segment of which pages are missing is filled up with fresh ones first: a guest's balloon
    /// gave them back, or an exchange was killed.
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
        let exchange = request.exchange || self.is_exchange_only()?;
        let scan = self.scan()?;
        let mut report = ScrubReport {
            exchange,
            problems: scan.problems,
            ..ScrubReport::default()
        };
        // Torn ones first: an exchange that has to give up leaves the others whole.
        let mut dirty = scan.torn;
        // What becomes of them is told of otherwise.
        let is_torn = |problem: &Problem| dirty.iter().any(|torn| torn.path() == problem.path);
        report.problems.retain(|problem| !is_torn(problem));
        dirty.extend(scan.segments);
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
    clear: ClearRequest,
    pace: Option<Pace>,
    stages: Stages,
    /// Set where going on would only tear more segments.
    give_up: bool,
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
            clear: request.clearing(),
            pace: request.rate.map(Pace::new),
            stages: Stages::new(work.iter().map(|work| (work.node, work.bytes))),
            give_up: false,
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
            let done = match report.exchange {
                true => self.exchange_all(round, control, report),
                // Unlocked at once.
                false => self.clear(round, control, report).map(drop),
            };
            match done {
                Err(error) if stopped_by(&error).is_some() => report.stopped = stopped_by(&error),
                done => done?,
            }
            if self.give_up {
                return Ok(());
            }
        }
    }

    fn exchange_all(
        &mut self,
        round: Vec<Locked>,
        control: &Control<'_>,
        report: &mut ScrubReport,
    ) -> Result<(), PoolError> {
        for locked in round {
            self.exchange(locked, control, report)?;
            if self.give_up {
                break;
            }
        }
        Ok(())
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
fn finish(mut locked: Locked, resident: Resident, owned: Owned) -> Result<Locked, (Locked, Left)> {
    // Where asking is refused, nothing says that they are elsewhere.
    let elsewhere = resident.elsewhere().ok().flatten();
    drop(resident);
    if let Some(found) = elsewhere {
        return Err((locked, found.into()));
    }
    // Whoever opened it since it was locked may write to it after it was cleared.
    if !locked.is_exclusive() || locked.check_whole(owned).is_err() {
        return Err((locked, Left::Opened));
    }
    match locked.set_state(State::Clean) {
        Ok(()) => Ok(locked),
        Err(source) => Err((locked, refused(&source))),
    }
}
