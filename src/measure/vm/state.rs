//! What a measurement of machines keeps between two of them: the memory that the next one needs, made so untimed.

use prezero_memory::{Class, Method};

use super::prezero::{Clear, Run};
use super::recycled::{self, Segments};
use super::{Bench, Row, Sample, Way, child, no_pool, prezero};
use crate::failure::Failure;
use crate::measure::cpus::Kept;

/// What the kernel's clearing loop covers with one string instruction, in bytes.
const BASE_PAGE: u64 = 4 << 10;

/// What is between two passes.
pub(super) struct State<'a> {
    bench: &'a Bench<'a>,
    segments: Option<Segments>,
    uncached: Option<Method>,
}

impl<'a> State<'a> {
    pub(super) fn new(bench: &'a Bench<'a>) -> Self {
        Self {
            bench,
            segments: None,
            uncached: None,
        }
    }

    /// Gives all memory back: the fastest uncached stores, if they were looked for.
    pub(super) fn end(self) -> Option<Method> {
        self.uncached
    }

    /// Makes one machine, of memory that is what the row needs.
    pub(super) fn pass(&mut self, row: &Row) -> Result<Sample, Failure> {
        let cancel = self.bench.cancel;
        if cancel.is_cancelled() {
            return Err(child::stopped());
        }
        self.prepare(row)?;
        // What is started here is on the memory's node, as prezero's workers are: only the ways differ.
        let of_peer = row.way.peer().is_some() && self.bench.pages.node.is_some();
        let _kept = of_peer.then(|| Kept::among(&self.bench.cpus));
        let (bytes, pages) = (row.bytes, self.bench.pages);
        let workers = row.workers.unwrap_or(1);
        let clear = |method, chunk| Some(Clear { method, chunk });
        let run = |clear| {
            let pool = self
                .bench
                .place
                .pool()
                .ok()
                .filter(|_| self.segments.is_some());
            let run = Run {
                bytes,
                pages,
                workers,
                pool,
                origin: row.way.origin(),
                clear,
            };
            prezero::run(&run, cancel)
        };
        let sample = match row.way {
            Way::Fresh | Way::RecycledClean => run(None),
            Way::RecycledCached => run(clear(recycled::kernels_stores(), Some(BASE_PAGE))),
            // With the fewest workers only the stores are others; with all it is as a run does it.
            Way::RecycledUncached => {
                let method = self.uncached.unwrap_or_else(Method::cached);
                run(clear(method, row.is_least.then_some(BASE_PAGE)))
            }
            Way::QemuOneThread | Way::QemuThreads => {
                // One thread is left to the kernel, on the memory's node.
                let cpus = (row.way == Way::QemuThreads).then_some(&self.bench.cpus);
                let qemu = self.bench.qemu.as_ref().ok_or_else(absent)?;
                qemu.run(bytes, pages, workers, cpus, cancel)
            }
            Way::CloudHypervisor => {
                let peer = self.bench.cloud_hypervisor.as_ref().ok_or_else(absent)?;
                peer.run(bytes, pages, cancel)
            }
        };
        if let Some(segments) = &mut self.segments {
            segments.used();
        }
        sample
    }

    fn make(&self, row: &Row) -> Result<Segments, Failure> {
        let Bench {
            place,
            pages,
            cancel,
            ..
        } = self.bench;
        let pool = place.pool().map_err(no_pool)?;
        Segments::make(pool, row.bytes, *pages, cancel)
    }

    /// Makes memory what the row needs.
    fn prepare(&mut self, row: &Row) -> Result<(), Failure> {
        let cancel = self.bench.cancel;
        let recycles = matches!(
            row.way,
            Way::RecycledCached | Way::RecycledUncached | Way::RecycledClean
        );
        if !recycles {
            // The kernel is to clear bytes that are not zero: some CPUs clear what is zero faster.
            let there = self.segments.take();
            return match there.filter(|there| there.bytes() == row.bytes) {
                Some(mut segments) => segments.dirty(cancel),
                None => recycled::dirty_fresh(row.bytes, self.bench.pages, cancel),
            };
        }
        // Fresh segments are clean, and faster made than those at hand are scrubbed: that has to wait for
        // idle CPUs.
        let clean = row.way == Way::RecycledClean;
        let fits = |there: &&Segments| there.bytes() == row.bytes && (there.is_clean() || !clean);
        if self.segments.as_ref().filter(fits).is_none() {
            self.segments = None;
        }
        if self.segments.is_none() {
            self.segments = Some(self.make(row)?);
        }
        let Some(segments) = &mut self.segments else {
            return Ok(());
        };
        if clean {
            return Ok(());
        }
        if row.way == Way::RecycledUncached && self.uncached.is_none() {
            self.uncached = recycled::fastest_uncached(&segments.trials(cancel)?);
        }
        segments.dirty(cancel)
    }
}

/// A row of a monitor that is not there; nobody makes one.
fn absent() -> Failure {
    Failure {
        class: Class::Internal,
        message: "The other monitor is not there".to_owned(),
        fix: None,
    }
}
