//! Populating: the kernel's clear of fresh pages, on every CPU of the right node at once.
//!
//! Works on plain targets, so that a monitor with mappings of its own can use it as it is;
//! [`crate::GuestRam`] is its first user. Each worker prefaults chunks of its node's targets with
//! `MADV_POPULATE_WRITE`, which reports as an error what a store would report as SIGBUS. No store of
//! ours reaches the memory.

mod error;
#[cfg(test)]
mod tests;

use std::io;
use std::time::Duration;

pub use self::error::PopulateError;
use crate::control::Control;
use crate::sys;
use crate::work::{Chunk, Job, Share, Target, WorkerReport, large_first};
use crate::workers::Workers;

/// What populating did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PopulateReport {
    /// Bytes populated.
    pub bytes: u64,
    /// From the barrier to the last worker's last page.
    pub time: Duration,
    /// Every worker.
    pub workers: Vec<WorkerReport>,
}

/// Populates all targets on the workers of their nodes, and returns when every page is there.
///
/// ```no_run
/// use prezero_memory::{
///     Control, Host, NodeWork, Origin, PageBytes, PageSize, Target, Workers, plan_workers,
///     populate,
/// };
///
/// # fn populate_my_mapping(addr: u64, bytes: u64) -> Result<(), Box<dyn std::error::Error>> {
/// let len = PageBytes::new(bytes, PageSize::HUGE_2M).ok_or("not whole pages")?;
/// let work = NodeWork { node: 0, bytes, pages: len.pages() };
/// let workers = Workers::start(&plan_workers(&Host::probe(), &[work], None, None))?;
/// let target = Target { addr, len, node: 0, origin: Origin::Fresh };
/// let report = populate(&workers, &[target], &Control::default())?;
/// println!("{} bytes in {:?}", report.bytes, report.time);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// The first refusal of the kernel, or [`PopulateError::Stopped`] within one chunk of a cancel or
/// deadline. Pages populated by then stay in the mappings; contents are unchanged in every case.
pub fn populate(
    workers: &Workers,
    targets: &[Target],
    control: &Control<'_>,
) -> Result<PopulateReport, PopulateError> {
    let job = Job::new(workers, &large_first(targets), 0, control)?;
    let finished = job.run(workers, control, work)?;
    let reports = finished
        .workers
        .into_iter()
        .map(|(report, bytes)| WorkerReport {
            populated_bytes: bytes,
            ..report
        });
    Ok(PopulateReport {
        bytes: finished.bytes,
        time: finished.time,
        workers: reports.collect(),
    })
}

/// One worker's share, and the bytes it populated. Nothing here allocates or maps.
fn work(share: &Share<'_, PopulateError>) -> u64 {
    let mut populated = 0;
    while let Some(chunk) = share.claim() {
        if let Err(source) = populate_chunk(share, chunk) {
            refuse(share, chunk, source);
            break;
        }
        populated += chunk.len;
        share.done(chunk.len);
    }
    populated
}

fn populate_chunk(share: &Share<'_, PopulateError>, chunk: Chunk<'_>) -> io::Result<()> {
    loop {
        match sys::populate_write(chunk.addr, chunk.len) {
            // A signal's handler ran on this thread; what is populated is populated.
            Err(error) if error.kind() == io::ErrorKind::Interrupted && !share.stopping() => {}
            result => return result,
        }
    }
}

fn refuse(share: &Share<'_, PopulateError>, chunk: Chunk<'_>, source: io::Error) {
    if share.stopping() && source.kind() == io::ErrorKind::Interrupted {
        return share.stop();
    }
    share.fail(|done, total| PopulateError::Refused {
        addr: chunk.addr,
        page: chunk.target.len.page_size(),
        node: chunk.target.node,
        done,
        total,
        cause: None,
        source,
    });
}
