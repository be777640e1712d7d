//! Clearing: our own stores of zeros to memory whose contents are not known to be zero.
//!
//! Fresh memory is not cleared here: the kernel did that when the page was faulted in, and doing it
//! twice would only cost. Each worker clears chunks of its node's targets with the method chosen for
//! the node ([`MethodChoice`]), fences its own stores once, and brings back a receipt for every span.
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
use crate::plan::{ClearExtents, Origin};
use crate::work::{Job, Share, Target, WorkerReport};
use crate::workers::Workers;

/// What is cleared, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClearRequest {
    /// Which memory.
    pub extents: ClearExtents,
    /// With which method.
    pub choice: MethodChoice,
    /// How much one string instruction or loop covers, in bytes, a multiple of 4096; as much as a
    /// worker claims at once (at most 32 MiB, or a page) if `None`. A worker claims at least this much,
    /// so cancelling waits for it.
    pub chunk: Option<u64>,
    /// Addresses that will be used next: guest-physical for [`crate::GuestRam::clear`], of this process
    /// for [`clear`]. The page of each is cleared last, its five base pages around the address last of
    /// all and with cached stores, so that they are in the cache when they are used.
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
    /// How much of `time` went by before the last worker had tried its candidates, and the bytes that
    /// were cleared by trying: they need not be cleared again.
    pub calibration: Option<(Duration, u64)>,
    /// What was chosen for each node with memory to clear, and why.
    pub choices: Vec<ChosenMethod>,
    /// Every worker; none where nothing was to be cleared.
    pub workers: Vec<WorkerReport>,
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
/// Every target is mapped writable and populated ([`crate::populate`]), and nobody else reads or
/// writes it during the call.
pub unsafe fn clear(
    workers: &Workers,
    targets: &[Target],
    request: &ClearRequest,
    control: &Control<'_>,
) -> Result<ClearReport, ClearError> {
    let cleared =
        |target: &&Target| request.extents == ClearExtents::All || target.origin != Origin::Fresh;
    let targets: Vec<Target> = targets.iter().filter(cleared).copied().collect();
    let (cut, used_next) = hot::pages_last(&targets, request);
    let job = Job::new(workers, &cut, request.chunk.unwrap_or(0), control)?;
    if targets.is_empty() {
        return Ok(ClearReport::default());
    }
    let how = How::new(&job, workers, request, used_next)?;
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
    let mut tried_until = None;
    let mut tried_bytes = 0;
    for (worker, share) in finished.workers {
        report.workers.push(WorkerReport {
            cleared_bytes: share.receipts.iter().map(|r| r.len() as u64).sum(),
            ..worker
        });
        receipts.extend(share.receipts);
        if let Some((until, bytes)) = share.tried {
            tried_until = tried_until.max(Some(until));
            tried_bytes += bytes;
        }
    }
    report.calibration = finished
        .start
        .zip(tried_until)
        .map(|(start, until)| (until - start, tried_bytes));
    report.choices = how
        .nodes
        .into_iter()
        .flatten()
        .map(Choosing::chosen)
        .collect();
    account(&wanted(&targets), receipts)?;
    Ok(report)
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

/// The address ranges to be cleared. On the platforms of this crate an address fits in `usize`.
#[allow(clippy::cast_possible_truncation)]
fn wanted(targets: &[Target]) -> Vec<(usize, usize)> {
    let ranges = targets.iter();
    ranges
        .map(|target| (target.addr as usize, target.len.bytes() as usize))
        .collect()
}

/// How the workers clear: the choice of each node, and the chunk.
struct How {
    nodes: Vec<Option<Choosing>>,
    chunk: Option<usize>,
    /// Addresses that will be used next, each in a target of its own.
    used_next: Vec<usize>,
}

/// What a worker brings back: a receipt for every span, and when it had tried its candidates on how
/// many bytes.
struct Cleared<'r> {
    receipts: Vec<Coherent<'r>>,
    tried: Option<(Instant, u64)>,
}

impl How {
    fn new(
        job: &Job<'_, ClearError>,
        workers: &Workers,
        request: &ClearRequest,
        used_next: Vec<usize>,
    ) -> Result<Self, ClearError> {
        let chunk = request.chunk.map(|chunk| {
            let bytes = usize::try_from(chunk).unwrap_or(usize::MAX);
            let checked = Clearing::new(Method::cached()).in_chunks(bytes);
            checked.map(|_| bytes).map_err(ClearError::Chunk)
        });
        let choosing = job.queues().iter().map(|queue| {
            let share = queue.total() / workers.count_on(queue.node).max(1);
            (queue.total() > 0).then(|| Choosing::new(queue.node, share, &request.choice))
        });
        Ok(Self {
            nodes: choosing.collect(),
            chunk: chunk.transpose()?,
            used_next,
        })
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
                let time = start.elapsed();
                // The last piece of a chunk is shorter, and no measure.
                if receipt.len() as u64 == piece {
                    tried.record(time);
                }
                bytes += receipt.len() as u64;
                share.done(receipt.len() as u64);
                cleared.receipts.push(receipt);
            }
            choosing.settle(&tried);
            cleared.tried = Some((Instant::now(), bytes));
        }
        let mut unfenced: Vec<Incoherent<'r>> = Vec::new();
        while let Some(span) = spans.next() {
            let len = span.len();
            let span = match self.used_next(&span) {
                Some(addr) => span.used_next(addr),
                None => span,
            };
            unfenced.push(span.clear(&self.clearing(choosing.method())));
            share.done(len as u64);
        }
        cleared.receipts.extend(Incoherent::fence_all(unfenced));
        cleared
    }
}
