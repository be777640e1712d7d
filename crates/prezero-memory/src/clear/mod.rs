//! Clearing: our own stores of zeros to memory whose contents are not known to be zero.
//!
//! Fresh memory is not cleared here: the kernel did that when the page was faulted in, and doing it
//! twice would only cost. Nor are recycled segments that were scrubbed. Each worker clears chunks of its
//! node's targets with the method chosen for the node ([`MethodChoice`]), fences its own stores once (and
//! once for each piece that it tried a candidate on), and brings back a receipt for every span.
//! The receipts are checked against what was to be cleared before the memory counts as zero.

mod choice;
mod error;
mod hot;
mod spans;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use prezero_clear::{Clearing, Coherent, Incoherent, Method, Span, account};

pub use self::choice::{Calibration, ChosenMethod, MethodChoice, Reason, Trial};
use self::choice::{Choosing, Tried};
pub use self::error::ClearError;
use self::spans::Spans;
use crate::control::Control;
use crate::plan::ClearExtents;
use crate::work::{Job, Share, Target, WorkerReport};
use crate::workers::Workers;

/// The most that one string instruction or loop may be told to cover.
const MAX_CHUNK: u64 = 1 << 30;

/// What is cleared, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClearRequest {
    /// Which memory.
    pub extents: ClearExtents,
    /// With which method.
    pub choice: MethodChoice,
    /// How much one string instruction or loop covers, in bytes, a multiple of 4096 up to 1 GiB; as much as a
    /// worker claims at once (at most 32 MiB, or a page) if `None`. A worker claims at least this much,
    /// so cancelling waits for it.
    pub chunk: Option<u64>,
    /// Addresses that will be used next: guest-physical for [`crate::GuestRam::clear`], of this process
    /// for [`clear`]. The page of each is cleared last, its five base pages around the address last of
    /// all and with cached stores, so that they are in the cache when they are used. One in each page;
    /// others are ignored.
    pub used_next: Vec<u64>,
    /// Whether `used_next` counts in pages of 1 GiB and more, which are otherwise cleared straight
    /// through.
    pub used_next_in_gigantic: bool,
}

/// What clearing did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClearReport {
    /// Bytes cleared.
    pub bytes: u64,
    /// From the barrier to the last worker's fence.
    pub time: Duration,
    /// The part of it that went into choosing the methods, if they were measured.
    pub calibrating: Option<Calibrating>,
    /// What was chosen for each node with memory to clear, and why.
    pub choices: Vec<ChosenMethod>,
    /// Every worker; none where nothing was to be cleared.
    pub workers: Vec<WorkerReport>,
}

/// What measuring the methods took. What it cleared is cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calibrating {
    /// How long a worker was at it, on average.
    pub time: Duration,
    /// Bytes cleared meanwhile, by trying.
    pub bytes: u64,
}

/// Clears the targets (the dirty ones, or all) on the workers of their nodes, and returns when every
/// byte is zero and visible to every thread.
///
/// # Errors
///
/// A request that cannot be, or [`ClearError::Stopped`] within one chunk of a cancel or deadline; some
/// of the memory may be cleared then, and none of it counts as zero.
///
/// # Safety
///
/// Every target is memory that the process has mapped writable, outside of what Rust allocates, and
/// populated ([`crate::populate`]), and nobody else reads or writes it during the call.
pub unsafe fn clear(
    workers: &Workers,
    targets: &[Target],
    request: &ClearRequest,
    control: &Control<'_>,
) -> Result<ClearReport, ClearError> {
    let targets = to_clear(targets, request)?;
    let (cut, used_next) = hot::pages_last(&targets, request);
    let job = Job::new(workers, &cut, request.chunk.unwrap_or(0), control)?;
    if targets.is_empty() {
        return Ok(ClearReport::default());
    }
    let how = How::new(&job, workers, request, &targets, used_next)?;
    let finished = job.run(workers, control, |share| {
        // SAFETY: handed on; neither spans nor receipts outlive this call.
        how.work(share, unsafe { Spans::new(share) })
    })?;

    let mut receipts = Vec::new();
    let mut report = ClearReport {
        bytes: finished.bytes,
        time: finished.time,
        ..ClearReport::default()
    };
    let (mut crew, mut tried) = (0, (Duration::ZERO, 0));
    for (worker, share) in finished.workers {
        report.workers.push(WorkerReport {
            cleared_bytes: share.receipts.iter().map(|r| r.len() as u64).sum(),
            ..worker
        });
        receipts.extend(share.receipts);
        if let Some((time, bytes)) = share.tried {
            tried = (tried.0 + time, tried.1 + bytes);
            crew += 1;
        }
    }
    // Not until the last one was done: a worker that starts late would be charged to it.
    report.calibrating = tried.0.checked_div(crew).map(|time| Calibrating {
        time,
        bytes: tried.1,
    });
    report.choices = how
        .nodes
        .into_iter()
        .flatten()
        .map(Choosing::chosen)
        .collect();
    account(&wanted(&targets), receipts)?;
    Ok(report)
}

/// How long the workers are at it if they claim everything as [`clear`] would have them, and store nothing:
/// what of [`ClearReport::time`] is not clearing.
///
/// # Errors
///
/// As [`clear`].
pub(crate) fn rehearse(
    workers: &Workers,
    targets: &[Target],
    request: &ClearRequest,
    control: &Control<'_>,
) -> Result<Duration, ClearError> {
    let targets = to_clear(targets, request)?;
    let (cut, used_next) = hot::pages_last(&targets, request);
    let job = Job::new(workers, &cut, request.chunk.unwrap_or(0), control)?;
    if targets.is_empty() {
        return Ok(Duration::ZERO);
    }
    let how = How::new(&job, workers, request, &targets, used_next)?;
    let finished = job.run(workers, control, |share: &Share<'_, ClearError>| {
        let mut claimed = Vec::new();
        while let Some(chunk) = share.claim() {
            share.done(chunk.len);
            claimed.push((chunk.addr, how.clearing(Method::cached())));
        }
        claimed.len()
    })?;
    Ok(finished.time)
}

/// The targets that are cleared, in the order of their addresses.
fn to_clear(targets: &[Target], request: &ClearRequest) -> Result<Vec<Target>, ClearError> {
    let cleared = |target: &&Target| {
        target.len.bytes() > 0 && (request.extents == ClearExtents::All || !target.origin.is_zero())
    };
    let mut targets: Vec<Target> = targets.iter().filter(cleared).copied().collect();
    targets.sort_unstable_by_key(|target| target.addr);
    check_apart(&targets)?;
    Ok(targets)
}

/// Fills the targets with a byte, on the workers of their nodes.
///
/// # Errors
///
/// As [`clear`]; whatever is returned, the contents are unknown afterwards.
///
/// # Safety
///
/// As [`clear`].
pub(crate) unsafe fn stain(
    workers: &Workers,
    targets: &[Target],
    byte: u8,
    control: &Control<'_>,
) -> Result<(), ClearError> {
    let job = Job::new(workers, targets, 0, control)?;
    let work = |share: &Share<'_, ClearError>| {
        // SAFETY: handed on; no span outlives this call.
        let mut spans = unsafe { Spans::new(share) };
        while let Some(span) = spans.next() {
            let len = span.len();
            let _ = span.stain(byte);
            share.done(len as u64);
        }
    };
    job.run(workers, control, work)?;
    Ok(())
}

/// Two workers must never have the same memory. `targets` are in the order of their addresses.
fn check_apart(targets: &[Target]) -> Result<(), ClearError> {
    let end = |target: &Target| target.addr.checked_add(target.len.bytes());
    let mut pairs = targets.windows(2);
    let met = pairs.find(|pair| end(&pair[0]).is_none_or(|end| end > pair[1].addr));
    let past = targets.last().filter(|last| end(last).is_none());
    match met.map(|pair| pair[1].addr).or(past.map(|last| last.addr)) {
        Some(addr) => Err(ClearError::Overlap { addr }),
        None => Ok(()),
    }
}

/// The address ranges to be cleared. On the platforms of this crate an address fits in `usize`.
#[allow(clippy::cast_possible_truncation)]
fn wanted(targets: &[Target]) -> Vec<(usize, usize)> {
    let ranges = targets.iter();
    ranges
        .map(|target| (target.addr as usize, target.len.bytes() as usize))
        .collect()
}

/// How the workers clear: the choice of each node, and the chunk.
struct How<'t> {
    nodes: Vec<Option<Choosing>>,
    /// What is cleared, in the order of addresses.
    targets: &'t [Target],
    chunk: Option<usize>,
    /// Addresses that will be used next, each in a target of its own.
    used_next: Vec<usize>,
}

/// What a worker brings back: a receipt for every span, and how long it tried candidates on how many
/// bytes.
struct Cleared<'r> {
    receipts: Vec<Coherent<'r>>,
    tried: Option<(Duration, u64)>,
}

impl<'t> How<'t> {
    fn new(
        job: &Job<'_, ClearError>,
        workers: &Workers,
        request: &ClearRequest,
        targets: &'t [Target],
        used_next: Vec<usize>,
    ) -> Result<Self, ClearError> {
        let chunk = request.chunk.map(|chunk| {
            let whole = Clearing::new(Method::cached());
            let bytes = usize::try_from(chunk.min(MAX_CHUNK + 1)).unwrap_or(0);
            match whole.in_chunks(bytes) {
                Ok(_) => Ok(bytes),
                Err(_) => Err(ClearError::Chunk { bytes: chunk }),
            }
        });
        let choosing = job.queues().iter().map(|queue| {
            let share = queue.total() / workers.count_on(queue.node).max(1);
            let of_node = targets.iter().filter(|target| target.node == queue.node);
            let largest = of_node.map(|target| target.len.bytes()).max()?;
            Some(Choosing::new(queue.node, share, largest, &request.choice))
        });
        Ok(Self {
            nodes: choosing.collect(),
            targets,
            chunk: chunk.transpose()?,
            used_next,
        })
    }

    /// The length of the extent that a span is part of.
    fn extent_len(&self, span: &Span<'_>) -> u64 {
        let above = self
            .targets
            .partition_point(|target| target.addr <= span.addr() as u64);
        let extent = above.checked_sub(1).and_then(|n| self.targets.get(n));
        extent.map_or(0, |extent| extent.len.bytes())
    }

    /// The address in a span that will be used next, if any.
    fn used_next(&self, span: &Span<'_>) -> Option<usize> {
        let inside = |addr: &usize| addr.wrapping_sub(span.addr()) < span.len();
        self.used_next.iter().copied().find(inside)
    }

    fn clearing(&self, method: Method) -> Clearing {
        let whole = Clearing::new(method);
        // The chunk was checked before the work began.
        self.chunk
            .and_then(|bytes| whole.in_chunks(bytes).ok())
            .unwrap_or(whole)
    }

    /// One worker's share.
    fn work<'r>(&self, share: &Share<'_, ClearError>, mut spans: Spans<'_, '_, 'r>) -> Cleared<'r> {
        let mut cleared = Cleared {
            receipts: Vec::new(),
            tried: None,
        };
        let choosing = share.node_index().and_then(|n| self.nodes.get(n)?.as_ref());
        let Some(choosing) = choosing else {
            return cleared;
        };
        if let Some(piece) = choosing.piece() {
            let mut tried = Tried::new(choosing);
            let mut bytes = 0;
            while let Some(candidate) = tried.candidate() {
                let Some(span) = spans.take(piece) else {
                    break;
                };
                let clearing = self.clearing(candidate);
                let start = Instant::now();
                let receipt = span.clear(&clearing).fence();
                let (time, len) = (start.elapsed(), receipt.len() as u64);
                tried.record(len, time);
                bytes += len;
                share.done(len);
                cleared.receipts.push(receipt);
            }
            choosing.settle(&tried);
            cleared.tried = Some((tried.spent(), bytes));
        }
        let mut unfenced: Vec<Incoherent<'r>> = Vec::new();
        while let Some(span) = spans.next() {
            let len = span.len();
            let span = match self.used_next(&span) {
                Some(addr) => span.used_next(addr),
                None => span,
            };
            let method = choosing.method(self.extent_len(&span));
            unfenced.push(span.clear(&self.clearing(method)));
            share.done(len as u64);
        }
        cleared.receipts.extend(Incoherent::fence_all(unfenced));
        cleared
    }
}
