//! Which segments of a pool a request may be made of: `run` locks them, `plan` and `doctor` only look.

use std::path::Path;

use prezero_host::{Host, PageSize};
use prezero_memory::pool::{Pool, Status, TakeRequest};
use prezero_memory::{Class, Hugepages, MemorySpec, Policy, Request};

use super::pool_place::default_dir;
use crate::failure::Failure;
use crate::output;

/// The pool that `--pool` means for this request. One at the default place that cannot be used is a
/// warning; one that was named is an error.
pub(crate) fn pool_for(
    choice: &Path,
    host: &Host,
    request: &Request,
    warn: &mut dyn FnMut(String),
) -> Result<Option<Pool>, Failure> {
    if choice.as_os_str() == "none" || !may_have_segments(request) {
        return Ok(None);
    }
    if choice.as_os_str() != "auto" {
        return Ok(Some(Pool::open(choice)?));
    }
    let default = host.default_hugepage_size.unwrap_or(PageSize::HUGE_2M);
    let zones = request.zones.iter().filter(|zone| wants(zone));
    let mut pages: Vec<PageSize> = zones
        .map(|zone| zone.hugepage_size.unwrap_or(default))
        .collect();
    pages.dedup();
    // The first page size of the zones that has one.
    let dirs = pages.into_iter().filter_map(|page| default_dir(host, page));
    let Some(dir) = dirs.into_iter().find(|dir| is_dir(dir)) else {
        return Ok(None);
    };
    match Pool::open(&dir) {
        Ok(pool) => Ok(Some(pool)),
        Err(error) => {
            let failure = Failure::from(error);
            warn(format!("The pool is not used: {}", failure.message));
            Ok(None)
        }
    }
}

/// Asks for segments, zone by zone and node by node. `take` says how many bytes of them it found.
pub(crate) fn for_each_zone(
    request: &Request,
    mut take: impl FnMut(&TakeRequest) -> Result<u64, Failure>,
) -> Result<(), Failure> {
    for zone in request.zones.iter().filter(|zone| wants(zone)) {
        let mut left = zone.bytes;
        let nodes = zone.nodes.as_ref().map(|choice| &choice.nodes);
        let nodes: Vec<Option<u32>> = match nodes.filter(|nodes| !nodes.is_empty()) {
            Some(nodes) => nodes.iter().map(Some).collect(),
            None => vec![None],
        };
        for node in nodes {
            left = left.saturating_sub(take(&TakeRequest {
                node,
                max_bytes: left,
                exact: None,
            })?);
        }
    }
    Ok(())
}

/// Tells a request of what a run would find in its pool, without a lock on anything.
pub(crate) fn foresee(
    status: &Status,
    request: &mut Request,
    warn: &mut dyn FnMut(String),
) -> Result<(), Failure> {
    let mut forecast = status.forecast();
    let mut segments = Vec::new();
    for problem in &status.problems {
        warn(output::pool::left_alone(&problem.into()));
    }
    for_each_zone(request, |wanted| {
        let mut found = forecast.lock(wanted);
        let bytes = found.bytes();
        if let Some(warning) = in_use(found.busy, wanted.max_bytes - bytes) {
            warn(warning);
        }
        segments.append(&mut found.segments);
        Ok(bytes)
    })?;
    request.recycled = segments;
    Ok(())
}

/// What is said of segments in use, where there is something that they would have been for.
pub(crate) fn in_use(segments: u64, short: u64) -> Option<String> {
    (segments > 0 && short > 0).then(|| {
        format!(
            "{segments} segments of the pool that would fit are in use (prezero pool status shows by whom)"
        )
    })
}

/// What is said of dirty segments that only an exchange makes clean.
pub(crate) fn unexchanged(segments: u64, short: u64, pool: &Path) -> Option<String> {
    (segments > 0 && short > 0).then(|| {
        format!(
            "Dirty segments of the pool, which is exchange-only, wait to be exchanged: {segments} (prezero pool scrub {})",
            pool.display()
        )
    })
}

/// Refuses a pool that was named along with a recorded host, which has none.
pub(crate) fn check_recorded(choice: &Path, root: &Path) -> Result<(), Failure> {
    let named = !["auto", "none"]
        .iter()
        .any(|word| choice.as_os_str() == *word);
    if root == Path::new("/") || !named {
        return Ok(());
    }
    Err(Failure {
        class: Class::Usage,
        message: format!(
            "The host recorded in {} has no pool that could be looked at, {} was named",
            root.display(),
            choice.display()
        ),
        fix: Some("--pool none, or no --root".to_owned()),
    })
}

/// Whether any of its zones may be made of segments.
pub(crate) fn may_have_segments(request: &Request) -> bool {
    request.zones.iter().any(wants)
}

/// Whether a zone may be made of segments: not one with a file of its own, nor ordinary memory, nor
/// pages that take turns among nodes.
fn wants(zone: &MemorySpec) -> bool {
    let interleaved = zone.nodes.as_ref();
    let interleaved = interleaved.is_some_and(|choice| choice.policy == Policy::Interleave);
    zone.hugepages != Hugepages::Off && zone.path.is_none() && !interleaved
}

pub(crate) fn is_dir(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|data| data.is_dir())
}
