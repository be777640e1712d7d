//! Why the kernel refused memory, found by reading the host again: it says `ENOMEM` or `EFAULT` for
//! pools, cgroups and mounts alike.

use std::path::Path;

use prezero_host::{Host, LimitKind as LimitKindOfHost, PageSize};

use crate::limits::{self, LimitHit, LimitKind};
use crate::plan::{Available, Extent, Shortage};
use crate::sys;

/// What was short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Short(Shortage),
    Limit(LimitHit),
}

/// Why mapping `extent` was refused, on a host read after it was.
pub(crate) fn of_mapping(host: &Host, extent: &Extent, dir: Option<&Path>) -> Option<Cause> {
    let (page, needed) = (extent.page_size(), extent.len());
    let available = Available::new(host);
    let (node, free) = match extent.bound() {
        true => (Some(extent.node()), available.pages_on(page, extent.node())),
        false => (None, available.pages(page)),
    };
    if needed.pages() > free {
        let short = available.short(page, node, needed.pages(), free);
        return Some(Cause::Short(short));
    }
    // Faulting is not refused before it is tried, so only reservations can be the cause.
    let hit = limits::of_hugepages(host, page, needed.bytes(), &[LimitKindOfHost::Reservation]);
    hit.or_else(|| of_mount(dir?, needed.bytes()))
        .map(Cause::Limit)
}

fn of_mount(dir: &Path, needed: u64) -> Option<LimitHit> {
    let (limit, left) = sys::hugetlbfs_room(dir)?;
    (left < needed).then(|| LimitHit {
        what: LimitKind::Mount,
        file: dir.to_owned(),
        limit,
        usage: limit.saturating_sub(left),
        needed,
    })
}

/// Why no more pages of `page` could be faulted in, on a host read after it failed: a limit on what is
/// in use with no room for another page.
pub(crate) fn of_fault(host: &Host, page: PageSize) -> Option<LimitHit> {
    limits::of_hugepages(host, page, page.bytes(), &[LimitKindOfHost::Usage])
        .or_else(|| limits::of_accounted(host, page.bytes()))
}
