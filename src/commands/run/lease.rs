//! Segments of a pool for a run: locked before the memory is planned, leased when it is mapped.

use std::path::{Path, PathBuf};

use prezero_host::{Host, PageSize};
use prezero_memory::pool::{Lease, Locked, Pool, TakeRequest};
use prezero_memory::{Hugepages, MemorySpec, Origin, Plan, Policy, Recycled, Request};

use crate::cli::RunArgs;
use crate::commands::pool_place::default_dir;
use crate::failure::Failure;
use crate::output;
use crate::report::run::{PoolUse, Report};

/// Segments that nobody else has, and that are not changed yet.
#[derive(Default)]
pub(super) struct Segments {
    locked: Vec<Locked>,
    dir: Option<PathBuf>,
}

impl Segments {
    /// Locks what suits the zones. A pool at the default place that cannot be used is a warning; one that
    /// was named is an error.
    pub(super) fn lock(
        args: &RunArgs,
        host: &Host,
        request: &Request,
        report: &mut Report,
    ) -> Result<Self, Failure> {
        let mut zones = request.zones.iter().filter(|zone| wants(zone)).peekable();
        if args.pool.as_os_str() == "none" || zones.peek().is_none() {
            return Ok(Self::default());
        }
        let pool = match args.pool.as_os_str() == "auto" {
            true => at_default_place(host, zones.clone(), report),
            false => Some(Pool::open(&args.pool)?),
        };
        let Some(pool) = pool else {
            return Ok(Self::default());
        };
        let mut segments = Self {
            locked: Vec::new(),
            dir: Some(pool.path().to_owned()),
        };
        for zone in zones {
            segments.lock_for(zone, &pool, report)?;
        }
        Ok(segments)
    }

    fn lock_for(
        &mut self,
        zone: &MemorySpec,
        pool: &Pool,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let mut left = zone.bytes;
        let nodes = zone.nodes.as_ref().map(|choice| &choice.nodes);
        let nodes: Vec<Option<u32>> = match nodes.filter(|nodes| !nodes.is_empty()) {
            Some(nodes) => nodes.iter().map(Some).collect(),
            None => vec![None],
        };
        for node in nodes {
            let found = pool.lock(&TakeRequest {
                node,
                max_bytes: left,
                exact: None,
            })?;
            left -= found.bytes();
            // Those of this run's other zones are in use by itself.
            let busy = found.busy.saturating_sub(self.locked.len() as u64);
            if busy > 0 && left > 0 {
                report.warn(format!(
                    "{busy} segments of the pool that would fit are in use (prezero pool status shows by whom)"
                ));
            }
            for problem in &found.problems {
                report.warn(output::pool::left_alone(problem));
            }
            self.locked.extend(found.locked);
        }
        Ok(())
    }

    /// What the planner may use, in the order of [`Segments::lease`].
    pub(super) fn recycled(&self) -> Vec<Recycled> {
        let locked = self.locked.iter();
        locked
            .map(|locked| Recycled {
                len: locked.len(),
                node: locked.node(),
                origin: locked.name().state.origin().unwrap_or(Origin::Dirty),
            })
            .collect()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.locked.iter().map(|locked| locked.len().bytes()).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.locked.is_empty()
    }

    /// Leases what the plan uses, which is dirty by name from then on, and lets go of the rest.
    pub(super) fn lease(
        self,
        planned: &Plan,
        report: &mut Report,
    ) -> Result<Vec<Option<Lease>>, Failure> {
        let used = |n: usize| {
            let mut extents = planned.extents();
            extents.any(|extent| extent.segment().is_some_and(|(segment, _)| segment == n))
        };
        let mut leases = Vec::with_capacity(self.locked.len());
        for (n, locked) in self.locked.into_iter().enumerate() {
            leases.push(match used(n) {
                true => Some(locked.lease()?),
                false => None,
            });
        }
        let of = |origin: Origin| {
            let leased = leases.iter().flatten();
            leased.filter(|lease| lease.origin() == origin).count() as u64
        };
        let (clean, dirty) = (of(Origin::Clean), of(Origin::Dirty));
        report.pool = self.dir.filter(|_| clean + dirty > 0).map(|dir| PoolUse {
            dir: dir.display().to_string(),
            clean_segments: clean,
            dirty_segments: dirty,
        });
        Ok(leases)
    }
}

/// Whether a zone may be made of segments: not one with a file of its own, nor ordinary memory, nor
/// pages that take turns among nodes.
fn wants(zone: &MemorySpec) -> bool {
    let interleaved = zone.nodes.as_ref();
    let interleaved = interleaved.is_some_and(|choice| choice.policy == Policy::Interleave);
    zone.hugepages != Hugepages::Off && zone.path.is_none() && !interleaved
}

/// The pool that an operator has made there, for the first page size of the zones that has one.
fn at_default_place<'a>(
    host: &Host,
    zones: impl Iterator<Item = &'a MemorySpec>,
    report: &mut Report,
) -> Option<Pool> {
    let default = host.default_hugepage_size.unwrap_or(PageSize::HUGE_2M);
    let mut pages: Vec<PageSize> = zones
        .map(|zone| zone.hugepage_size.unwrap_or(default))
        .collect();
    pages.dedup();
    let dirs = pages.into_iter().filter_map(|page| default_dir(host, page));
    let dir = dirs.into_iter().find(|dir| is_dir(dir))?;
    match Pool::open(&dir) {
        Ok(pool) => Some(pool),
        Err(error) => {
            let failure = Failure::from(error);
            report.warn(format!("The pool is not used: {}", failure.message));
            None
        }
    }
}

fn is_dir(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|data| data.is_dir())
}
