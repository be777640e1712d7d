//! Why the kernel refused memory, found by reading the host again: it says `ENOMEM` or `EFAULT` for
//! pools, cgroups and mounts alike.

use std::path::Path;

use prezero_host::{Host, IdSet, LimitKind as LimitKindOfHost, PageSize};

use crate::limits::{self, LimitHit, LimitKind};
use crate::plan::{Available, Extent, PlanError, Shortage};
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

/// The node that the process may not have memory of, if a policy was refused for that.
pub(crate) fn of_nodes(host: &Host, nodes: &IdSet) -> Option<PlanError> {
    let available = Available::new(host);
    let mut refusals = nodes
        .iter()
        .filter_map(|node| available.check_node(node).err());
    refusals.find(|error| matches!(error, PlanError::NodeNotAllowed { .. }))
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Class;

    #[test]
    fn a_node_outside_the_cpuset_is_told_from_one_that_is_not_there() {
        let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/hosts");
        let mut host = Host::read(&hosts.join("two-sockets-uneven"));
        let nodes = |list: &str| list.parse::<IdSet>().unwrap();
        assert_eq!(of_nodes(&host, &nodes("0-1")), None);
        assert_eq!(of_nodes(&host, &nodes("9")), None);
        host.allowed_nodes = nodes("0");
        let error = of_nodes(&host, &nodes("0-1")).unwrap();
        assert_eq!(error.class(), Class::Host);
        assert_eq!(
            error.to_string(),
            "Node 1 is not in this process's allowed memory nodes (0)"
        );
    }
}
