//! The memory that is cleared, and the threads that do it.

#[cfg(test)]
mod tests;

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use prezero_clear::Span;
use prezero_host::{Host, PageSize};
use prezero_memory::{
    Class, ClearExtents, ClearRequest, Control, GuestRam, Layout, MemorySpec, MethodChoice,
    NodeProgress, PlanWarning, Populated, Prealloc, Request, StartError, StoppedBy, WorkerPlan,
    Workers, plan, plan_workers,
};

use super::{Pass, Row, gbps, sys};
use crate::failure::Failure;
use crate::measure::counters::{Counters, Scope, Unavailable};
use crate::measure::cpus::Kept;
use crate::measure::sys::thread_id;

/// What every pass has to clear: not zero, because some CPUs elide stores of zero over zero.
pub(crate) const STAIN: u8 = 0xa5;
/// Populated memory that passes clear in turn. Given back on drop.
pub(crate) struct Memory<'a> {
    /// There, except after a pass that failed.
    ram: Option<GuestRam<Populated>>,
    /// One for each number of threads, the first with all CPUs.
    crews: Vec<Workers>,
    /// The threads with all CPUs.
    plan: Vec<WorkerPlan>,
    /// How many were asked for of each but the first, and how many there are.
    threads: Vec<(usize, usize)>,
    /// The kernel's numbers of all threads.
    thread_ids: Vec<libc::pid_t>,
    /// There where passes are counted.
    counters: Option<Counters>,
    control: Control<'a>,
    bytes: u64,
    page_size: PageSize,
    hugetlb: bool,
    populate_gbps: f64,
    loose: usize,
    warnings: Vec<PlanWarning>,
}

impl<'a> Memory<'a> {
    /// Takes and populates memory, with all CPUs, and makes the threads for each of these numbers.
    /// `progress` is told how many bytes are populated, which takes long on memory new to the machine.
    pub(crate) fn take(
        host: &Host,
        spec: MemorySpec,
        threads: &[usize],
        control: Control<'a>,
        progress: &dyn Fn(u64),
    ) -> Result<Self, Failure> {
        let request = Request {
            zones: vec![spec],
            prealloc: Prealloc::Eager,
            // No guest will see it, so that it needs no hole and is in as few pieces as there can be.
            layout: Some(Layout::new(u8::MAX, Vec::new())),
            ..Request::default()
        };
        let planned = plan(host, &request)?;
        let work = planned.work();
        let (tell, told) = channel();
        let all_cpus = plan_workers(host, &work, None, None);
        let mut crews = vec![start(&all_cpus, &tell)?];
        let mut counts = Vec::new();
        for &asked in threads {
            let workers = plan_workers(host, &work, Some(asked), None);
            counts.push((asked, workers.len()));
            if crews.iter().all(|crew| crew.count() != workers.len()) {
                crews.push(start(&workers, &tell)?);
            }
        }
        let all = crews.iter().map(Workers::count).sum();
        let thread_ids = told.iter().take(all).collect();
        let far = |nodes: &[NodeProgress]| progress(nodes.iter().map(|node| node.done).sum());
        let watched = Control {
            progress: Some(&far),
            ..control
        };
        let populated = GuestRam::reserve(&planned)?.populate(&crews[0], &watched);
        let (ram, report) = populated.map_err(|failed| failed.error)?;
        Ok(Self {
            ram: Some(ram),
            crews,
            plan: all_cpus,
            threads: counts,
            thread_ids,
            counters: None,
            control,
            bytes: planned.bytes(),
            page_size: planned
                .extents()
                .map(|extent| extent.page_size())
                .max()
                .unwrap_or(PageSize::BASE),
            hugetlb: planned
                .extents()
                .all(|extent| extent.backing().is_hugetlb()),
            populate_gbps: gbps(report.bytes, report.time),
            loose: report
                .workers
                .iter()
                .filter(|worker| !worker.pinned)
                .count(),
            warnings: planned.warnings().to_vec(),
        })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn page_size(&self) -> PageSize {
        self.page_size
    }

    pub(crate) fn is_hugetlb(&self) -> bool {
        self.hugetlb
    }

    /// How fast it was populated, with all CPUs.
    pub(crate) fn populate_gbps(&self) -> f64 {
        self.populate_gbps
    }

    /// How many of the threads with all CPUs are not pinned.
    pub(crate) fn loose(&self) -> usize {
        self.loose
    }

    pub(crate) fn warnings(&self) -> &[PlanWarning] {
        &self.warnings
    }

    /// All threads that there can be.
    pub(crate) fn all_threads(&self) -> usize {
        self.crews[0].count()
    }

    /// How many threads there are where `asked` were asked for: each node with memory needs one.
    pub(crate) fn threads(&self, asked: usize) -> usize {
        let mut counts = self.threads.iter();
        let count = counts.find(|(wanted, _)| *wanted == asked);
        count.map_or(asked, |(_, used)| *used)
    }

    /// Counts what the threads do in each pass from now on.
    pub(crate) fn count(&mut self) -> Result<(), Unavailable> {
        self.counters = Some(Counters::open(&self.thread_ids, Scope::User)?);
        Ok(())
    }

    /// Fills the memory with [`STAIN`], then clears it: how long the clearing took.
    pub(crate) fn pass(&mut self, row: &Row) -> Result<Pass, Failure> {
        let dirty = self.dirty()?;
        let counters = self.counters.take();
        let before = counters.as_ref().and_then(|counters| counters.read().ok());
        let time = self.clear(dirty, row);
        let counts = counters.as_ref().zip(before);
        let counts = counts.and_then(|(counters, before)| counters.since(&before));
        self.counters = counters;
        Ok(Pass {
            time: time?,
            counts,
        })
    }

    /// All of it after it was filled with [`STAIN`], for threads of the caller's.
    pub(crate) fn dirty_spans(&mut self) -> Result<Vec<Span<'_>>, Failure> {
        let dirty = self.dirty()?;
        Ok(sys::spans(self.ram.insert(dirty)))
    }

    /// A pass that clears nothing: how long it takes to have the threads of this row share the memory out.
    pub(crate) fn empty_pass(&mut self, row: &Row) -> Result<Duration, Failure> {
        let ram = self.ram.as_ref().ok_or_else(lost)?;
        let rehearsed = ram.rehearse_clear(self.crew(row), &how(row), &self.control);
        Ok(rehearsed?)
    }

    fn dirty(&mut self) -> Result<GuestRam<Populated>, Failure> {
        let ram = self.ram.take().ok_or_else(lost)?;
        let stained = ram.stain(&self.crews[0], STAIN, &self.control);
        Ok(stained.map_err(|failed| failed.error)?)
    }

    fn clear(&mut self, dirty: GuestRam<Populated>, row: &Row) -> Result<Duration, Failure> {
        let cleared = dirty.clear(self.crew(row), &how(row), &self.control);
        let (ram, report) = cleared.map_err(|failed| failed.error)?;
        self.ram = Some(ram.into_unknown());
        Ok(report.time)
    }

    fn crew(&self, row: &Row) -> &Workers {
        let crew = self.crews.iter().find(|crew| crew.count() == row.threads);
        crew.unwrap_or(&self.crews[0])
    }

    /// The largest piece of it, for measurements of a part by this thread alone.
    pub(super) fn piece(&mut self) -> Result<Span<'_>, Failure> {
        self.check()?;
        let ram = self.ram.as_mut().ok_or_else(lost)?;
        let pieces = sys::spans(ram).into_iter();
        pieces.max_by_key(Span::len).ok_or_else(lost)
    }

    /// Keeps this thread on a CPU of the node of that piece, as the threads of a row are on theirs.
    pub(crate) fn keep_this_thread(&self) -> Kept {
        let pieces = self.ram.iter().flat_map(GuestRam::extents);
        let largest = pieces.max_by_key(|extent| extent.plan().len().bytes());
        let node = largest.map(|extent| extent.plan().node());
        let mut threads = self.plan.iter();
        let thread = threads.find(|thread| Some(thread.node()) == node);
        Kept::on(thread.and_then(WorkerPlan::cpu))
    }

    fn check(&self) -> Result<(), Failure> {
        let by = match self.control.stopped_by() {
            None => return Ok(()),
            Some(StoppedBy::Cancel) => "Cancelled by a signal",
            Some(StoppedBy::Deadline) => "Deadline passed",
        };
        Err(Failure {
            class: Class::Stopped,
            message: format!("{by} while measuring"),
            fix: None,
        })
    }
}

fn how(row: &Row) -> ClearRequest {
    ClearRequest {
        extents: ClearExtents::All,
        choice: (row.method.method()).map_or(MethodChoice::Measured, MethodChoice::Fixed),
        chunk: row.chunk,
        ..ClearRequest::default()
    }
}

/// Starts threads that tell the kernel's numbers of themselves first.
fn start(plan: &[WorkerPlan], tell: &Sender<libc::pid_t>) -> Result<Workers, StartError> {
    Workers::start_with(plan, &|builder, body| {
        let tell = tell.clone();
        builder.spawn(move || {
            // Nobody listens any more if another thread could not be made.
            let _ = tell.send(thread_id());
            body();
        })
    })
}

/// A pass after one that failed; nobody asks for it.
fn lost() -> Failure {
    Failure {
        class: Class::Internal,
        message: "The memory of the measurement is gone".to_owned(),
        fix: None,
    }
}
