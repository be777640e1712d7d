//! One loop: all threads map and touch at the same time, and the memory is given back afterwards.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use prezero_host::Host;
use prezero_memory::{ByteSize, Class};

use super::sys::Fresh;
use super::{Function, Loop, Work, check};
use crate::failure::Failure;
use crate::measure::counters::{Counters, Counts, Scope, Unavailable};
use crate::measure::cpus;

/// A thread looks whether to go on after so many bytes, or one page.
const STRIDE: u64 = 32 << 20;

pub(super) struct Pass {
    pub(super) timed: Loop,
    pub(super) loose: usize,
    pub(super) uncounted: Option<Unavailable>,
}

/// What one thread did.
struct Done {
    /// Unmapped when all are done.
    _memory: Option<Fresh>,
    start: Instant,
    end: Instant,
    pinned: bool,
    counts: Result<Option<Counts>, Unavailable>,
}

/// A loop that maps nothing if there is no function: what is left of it is the instrument's. `None` if it was
/// cancelled.
pub(super) fn run(work: &Work<'_>, function: Option<Function>) -> Result<Option<Pass>, Failure> {
    let done: Vec<Done> = thread::scope(|scope| {
        let (ready, all_ready) = channel();
        let mut threads = Vec::new();
        let mut starts: Vec<Sender<()>> = Vec::new();
        for (n, cpu) in work.cpus.iter().enumerate() {
            let ready = ready.clone();
            let (start, started) = channel();
            let body = move || one(work, function, *cpu, &ready, &started);
            let builder = Builder::new().name(format!("prezero-m{n}"));
            // Those that wait already see that nobody is left to start them.
            let thread = builder
                .spawn_scoped(scope, body)
                .map_err(|error| no_thread(&error))?;
            threads.push(thread);
            starts.push(start);
        }
        all_ready.iter().take(threads.len()).for_each(drop);
        for start in &starts {
            let _ = start.send(());
        }
        let results = threads.into_iter().map(|thread| thread.join());
        // All are joined before the first error is looked at, and so before anything is unmapped.
        let results: Vec<_> = results.collect();
        let done = results.into_iter().map(|result| match result {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => Err(refused(work, &error)),
            Err(_) => Err(lost()),
        });
        done.collect::<Result<_, Failure>>()
    })?;
    if work.cancel.is_cancelled() {
        return Ok(None);
    }
    let start = done.iter().map(|one| one.start).min();
    let end = done.iter().map(|one| one.end).max();
    let all = start.zip(end).map(|(start, end)| end - start);
    let mut counts = Vec::new();
    let mut uncounted = None;
    for one in &done {
        match &one.counts {
            Ok(counted) => counts.push(*counted),
            Err(unavailable) => uncounted = Some(unavailable.clone()),
        }
    }
    let counts: Option<Vec<Counts>> = match uncounted {
        None => counts.into_iter().collect(),
        Some(_) => None,
    };
    Ok(Some(Pass {
        timed: Loop {
            times: done.iter().map(|one| one.end - one.start).collect(),
            all: all.unwrap_or(Duration::ZERO),
            counts: counts.and_then(|counts| counts.into_iter().reduce(Counts::and)),
        },
        loose: done.iter().filter(|one| !one.pinned).count(),
        uncounted,
    }))
}

/// One thread's share.
fn one(
    work: &Work<'_>,
    function: Option<Function>,
    cpu: Option<u32>,
    ready: &Sender<()>,
    started: &Receiver<()>,
) -> io::Result<Done> {
    let pinned = cpus::pin(cpu);
    // Most of the work is the kernel's.
    let counters = Counters::open(&[0], Scope::All);
    let _ = ready.send(());
    started.recv().map_err(io::Error::other)?;
    let before = counters
        .as_ref()
        .ok()
        .and_then(|counters| counters.read().ok());

    let start = Instant::now();
    let memory = function.map(|function| fresh(work, function)).transpose()?;
    let end = Instant::now();

    let counts = counters.map(|counters| counters.since(&before?));
    Ok(Done {
        _memory: memory,
        start,
        end,
        pinned,
        counts,
    })
}

/// Memory that this function has made be there, or a part of it if it was cancelled.
fn fresh(work: &Work<'_>, function: Function) -> io::Result<Fresh> {
    let len = usize::try_from(work.bytes).map_err(io::Error::other)?;
    let mut memory = Fresh::map(len, work.page, function == Function::Populate)?;
    let pages = work.bytes >> work.page.shift();
    let stride = (STRIDE >> work.page.shift()).max(1);
    let mut page = 0;
    while page < pages && !work.cancel.is_cancelled() {
        let next = pages.min(page + stride);
        let numbers = usize::try_from(page).and_then(|page| Ok(page..usize::try_from(next)?));
        memory.touch(work.page, numbers.map_err(io::Error::other)?);
        page = next;
    }
    Ok(memory)
}

/// mmap(2) failed: with numbers, if they are still those that it failed for.
fn refused(work: &Work<'_>, error: &io::Error) -> Failure {
    if let Err(failure) = check(&Host::probe(), work) {
        return failure;
    }
    let size = ByteSize(work.bytes);
    Failure {
        class: Class::Shortage,
        message: format!("Mapping {size} on {} pages: {error}", work.page),
        fix: Some("a smaller -s, or fewer threads with -t".to_owned()),
    }
}

fn no_thread(error: &io::Error) -> Failure {
    Failure::new(
        Class::Shortage,
        error,
        Some("-t 1; or raise what is short: ulimit -u, pids.max of the cgroup".to_owned()),
    )
}

fn lost() -> Failure {
    Failure {
        class: Class::Internal,
        message: "A thread of the measurement ended without a result".to_owned(),
        fix: None,
    }
}
