//! The work of `perf bench mem mmap` (Linux 6.18, tools/perf/bench/mem-functions.c): fresh memory is
//! mapped and each page touched, in one loop after another.
//!
//! As there, the time of a loop covers mmap(2) and the touching, with both functions, and not munmap(2);
//! and each of several threads, as perf has them since 2026, maps as much for itself. Here they are
//! pinned and begin each loop together, and nothing is unmapped before all are done.

mod pass;
mod sys;
#[cfg(test)]
mod tests;

use std::time::Duration;

use prezero_host::{Host, PageSize};
use prezero_memory::{
    ByteSize, Cancel, Class, Hugepages, Layout, MemorySpec, PlanError, Prealloc, Request, plan,
};

use super::clear::gbps;
use super::counters::{Counts, Unavailable};
use super::own_cost::OwnCost;
use super::rounds::interleave;
use super::stats::Summary;
use crate::failure::Failure;

/// How the pages come to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    /// By the first touch of each.
    Demand,
    /// By `MAP_POPULATE`, before they are touched.
    Populate,
}

impl Function {
    pub(crate) const ALL: [Self; 2] = [Self::Demand, Self::Populate];

    /// perf's name for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Demand => "demand",
            Self::Populate => "populate",
        }
    }
}

/// What each loop does.
#[derive(Debug)]
pub(crate) struct Work<'a> {
    pub(crate) page: PageSize,
    /// For each thread.
    pub(crate) bytes: u64,
    /// One for each thread.
    pub(crate) cpus: Vec<Option<u32>>,
    pub(crate) cancel: &'a Cancel,
}

impl Work<'_> {
    /// Of all threads.
    pub(crate) fn all_bytes(&self) -> u64 {
        self.bytes.saturating_mul(self.cpus.len() as u64)
    }
}

/// What came of one loop.
#[derive(Clone, Debug)]
struct Loop {
    /// Of each thread.
    times: Vec<Duration>,
    /// From the first one's start to the last one's end.
    all: Duration,
    counts: Option<Counts>,
}

/// A function and what came of it.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) function: Function,
    /// Of each thread, of each loop.
    pub(crate) times: Vec<Vec<Duration>>,
    /// All threads together, one for each loop, in GB/s.
    pub(crate) gbps: Vec<f64>,
    pub(crate) summary: Summary,
    pub(crate) perf: PerfRate,
    /// What a loop came to on average.
    pub(crate) counts: Option<Counts>,
}

/// The figure that perf prints.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PerfRate {
    /// Bytes a second of one thread: all of its bytes by all of its time, on average of the threads.
    pub(crate) bytes_per_second: f64,
    /// The standard error of the threads' times, in percent; `None` for one thread.
    pub(crate) error_percent: Option<f64>,
}

impl PerfRate {
    /// From the times of each thread in each loop.
    #[allow(clippy::cast_precision_loss)] // measured figures
    fn of(bytes: u64, loops: &[Vec<Duration>]) -> Option<Self> {
        let threads = loops.first()?.len();
        let times = (0..threads).map(|n| loops.iter().map(|times| times[n].as_secs_f64()).sum());
        let times = Summary::of(&times.collect::<Vec<f64>>())?;
        let error = |stdev: f64| stdev / (threads as f64).sqrt() / times.mean * 100.0;
        Some(Self {
            bytes_per_second: bytes as f64 * loops.len() as f64 / times.mean.max(1e-9),
            error_percent: times.stdev.map(error),
        })
    }
}

impl Measured {
    fn new(function: Function, work: &Work<'_>, loops: Vec<Loop>) -> Option<Self> {
        let rates = loops.iter().map(|one| gbps(work.all_bytes(), one.all));
        let gbps: Vec<f64> = rates.collect();
        let counts: Vec<_> = loops.iter().map(|one| one.counts).collect();
        let times: Vec<_> = loops.into_iter().map(|one| one.times).collect();
        Some(Self {
            function,
            summary: Summary::of(&gbps)?,
            gbps,
            perf: PerfRate::of(work.bytes, &times)?,
            times,
            counts: Counts::mean(&counts),
        })
    }
}

/// Figures, and what a reader should know about how they were taken.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) measured: Vec<Measured>,
    /// How many threads could not be pinned.
    pub(crate) loose: usize,
    pub(crate) uncounted: Option<Unavailable>,
    /// What a loop takes without mapping anything, and the shortest loop.
    pub(crate) own: (OwnCost, Duration),
}

/// Refuses what the host has no pages or memory for, with numbers.
pub(crate) fn check(host: &Host, work: &Work<'_>) -> Result<(), Failure> {
    let page = work.page;
    let spec = MemorySpec {
        hugepages: match page > PageSize::BASE {
            true => Hugepages::On,
            false => Hugepages::Off,
        },
        hugepage_size: (page > PageSize::BASE).then_some(page),
        // The planner of guests makes ordinary memory of whole hugepages.
        ..MemorySpec::new(match page > PageSize::BASE {
            true => work.all_bytes(),
            false => work.all_bytes().next_multiple_of(PageSize::HUGE_2M.bytes()),
        })
    };
    let request = Request {
        zones: vec![spec],
        prealloc: Prealloc::Eager,
        layout: Some(Layout::new(u8::MAX, Vec::new())),
        ..Request::default()
    };
    // There is no file, so no limit on its size.
    let mut host = host.clone();
    host.limits.file_size = None;
    plan(&host, &request).map(drop).map_err(|error| {
        if matches!(error, PlanError::Layout(_)) {
            return beyond_any_host(work);
        }
        let failure = Failure::from(error.clone());
        match advice(&host, work, &error) {
            None => failure,
            fix => Failure { fix, ..failure },
        }
    })
}

/// The planner speaks of a guest's addresses then.
fn beyond_any_host(work: &Work<'_>) -> Failure {
    let (each, threads) = (ByteSize(work.bytes), work.cpus.len());
    Failure {
        class: Class::Usage,
        message: format!("{each} for each of {threads} threads is more than a CPU can address"),
        fix: Some("-s 4G -t 1".to_owned()),
    }
}

/// What to type in place of what the planner advises, which are options of other commands.
fn advice(host: &Host, work: &Work<'_>, error: &PlanError) -> Option<String> {
    let fits = |page: PageSize, bytes: u64| {
        let each = page.round_down(bytes / work.cpus.len().max(1) as u64);
        Some(match each {
            0 => "fewer threads with -t, or smaller pages with -p".to_owned(),
            each => format!("-s {} or less", ByteSize(each).to_spec()),
        })
    };
    match error {
        PlanError::ShortOfMemory { available, .. } => fits(PageSize::HUGE_2M, *available),
        PlanError::Short(short) => {
            let missing = short.short().saturating_mul(short.page.bytes());
            let memory = short.memory.filter(|memory| missing > *memory)?;
            let pools = short.available.saturating_mul(short.page.bytes());
            fits(short.page, pools.saturating_add(memory))
        }
        PlanError::PageSizeMissing { .. } | PlanError::NoHugepages => {
            let pools = host.pools.iter().map(|pool| pool.page_size);
            let sizes = [PageSize::BASE].into_iter().chain(pools);
            let sizes = sizes.map(|size| format!("-p {}", ByteSize(size.bytes()).to_spec()));
            Some(sizes.collect::<Vec<_>>().join(" or "))
        }
        _ => None,
    }
}

/// Runs one loop of each function that is not counted, and then `loops` of each. `progress` is told how
/// many bytes were mapped.
pub(crate) fn measure(
    work: &Work<'_>,
    functions: &[Function],
    loops: usize,
    progress: &dyn Fn(u64),
) -> Result<Outcome, Failure> {
    let _without_thp = (work.page == PageSize::BASE).then(WithoutThp::new);
    let (mut done, mut passes) = (0, 0);
    let (mut loose, mut uncounted) = (0, None);
    let all = functions.len() * (loops + 1);
    let samples = interleave(functions.len(), loops, |n| {
        if work.cancel.is_cancelled() {
            return Err(stopped(passes, all));
        }
        let pass = pass::run(work, Some(functions[n]))?;
        let pass = pass.ok_or_else(|| stopped(passes, all))?;
        passes += 1;
        done += work.all_bytes();
        progress(done);
        (loose, uncounted) = (pass.loose, pass.uncounted);
        Ok(pass.timed)
    })?;
    let own = OwnCost::measure(|| {
        let empty = pass::run(work, None)?.ok_or_else(|| stopped(passes, all))?;
        Ok::<_, Failure>(empty.timed.all)
    })?;
    let shortest = samples.iter().flatten().map(|one| one.all).min();
    let functions = functions.iter().zip(samples);
    Ok(Outcome {
        measured: functions
            .filter_map(|(function, loops)| Measured::new(*function, work, loops))
            .collect(),
        loose,
        uncounted,
        own: (own, shortest.unwrap_or(Duration::ZERO)),
    })
}

fn stopped(loops: usize, of: usize) -> Failure {
    Failure {
        class: Class::Stopped,
        message: format!("Cancelled after {loops} of {of} loops; nothing of them is shown"),
        fix: None,
    }
}

/// As long as it lives, this process gets no transparent hugepages: base pages are to be measured, also
/// where hugepages are given without being asked for.
struct WithoutThp {
    before: bool,
}

impl WithoutThp {
    fn new() -> Self {
        let before = sys::thp_disabled();
        // No kernel of the last ten years refuses it.
        let _ = sys::set_thp_disabled(true);
        Self { before }
    }
}

impl Drop for WithoutThp {
    fn drop(&mut self) {
        let _ = sys::set_thp_disabled(self.before);
    }
}
