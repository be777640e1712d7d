//! Segments of a pool for a run: locked before the memory is planned, leased when it is mapped.

use std::path::{Path, PathBuf};

use prezero_host::Host;
use prezero_memory::pool::{Lease, Locked};
use prezero_memory::{Origin, Plan, Recycled, Request};

use crate::cli::RunArgs;
use crate::commands::segments::{for_each_zone, in_use, pool_for, unexchanged};
use crate::failure::Failure;
use crate::output;
use crate::report::facts::PoolUse;
use crate::report::run::Report;

/// Segments that nobody else has, and that are not changed yet.
#[derive(Default)]
pub(super) struct Segments {
    locked: Vec<Locked>,
    dir: Option<PathBuf>,
}

impl Segments {
    /// Locks what suits the zones.
    pub(super) fn lock(
        args: &RunArgs,
        host: &Host,
        request: &Request,
        report: &mut Report,
    ) -> Result<Self, Failure> {
        let mut warn = |warning| report.warn(warning);
        let Some(pool) = pool_for(&args.segments.pool, host, request, &mut warn)? else {
            return Ok(Self::default());
        };
        let mut locked: Vec<Locked> = Vec::new();
        for_each_zone(request, |wanted| {
            let found = pool.lock(wanted)?;
            let bytes = found.bytes();
            // Those of this run's other zones are in use by itself.
            let busy = found.busy.saturating_sub(locked.len() as u64);
            let short = wanted.max_bytes - bytes;
            in_use(busy, short).map(&mut warn);
            unexchanged(found.unexchanged, short, pool.path()).map(&mut warn);
            for problem in &found.problems {
                warn(output::pool::left_alone(&problem.into()));
            }
            locked.extend(found.locked);
            Ok(bytes)
        })?;
        let dir = Some(pool.path().to_owned());
        Ok(Self { locked, dir })
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

    /// The pool that they are of.
    pub(super) fn dir(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    /// Leases what the plan uses, which is dirty by name from then on, and lets go of the rest.
    pub(super) fn lease(
        self,
        planned: &Plan,
        report: &mut Report,
    ) -> Result<Vec<Option<Lease>>, Failure> {
        report.pool = self.dir.and_then(|dir| PoolUse::of(planned, &dir));
        let used = |n: usize| {
            let mut extents = planned.extents();
            extents.any(|extent| extent.segment().is_some_and(|(segment, _)| segment == n))
        };
        let locked = self.locked.into_iter().enumerate();
        let leases = locked.map(|(n, locked)| match used(n) {
            true => locked.lease().map(Some),
            false => Ok(None),
        });
        Ok(leases.collect::<Result<_, _>>()?)
    }
}
