//! `--reserve`: the hugepages that a request needs are added to the kernel's pools for its run.

use std::path::Path;

use prezero_host::Host;
use prezero_memory::{Control, Growth, Plan, PlanError, Policy, PoolNeed, Request, plan};

use crate::failure::Failure;

/// Where the lock and the journals of all runs are.
pub(crate) const STATE_DIR: &str = "/run/prezero";

/// Adds the pages that such a plan takes, next to the segments that it has.
pub(crate) fn grow(wanted: &Plan, control: &Control<'_>) -> Result<Growth, Failure> {
    let needs = needs(wanted);
    Ok(Growth::grow(
        Path::new("/"),
        Path::new(STATE_DIR),
        &needs,
        control,
    )?)
}

/// What would be planned if the pools were full.
pub(crate) fn with_full_pools(host: &Host, request: &Request) -> Result<Plan, PlanError> {
    let mut full = host.clone();
    let bytes: u64 = request
        .zones
        .iter()
        .fold(0, |sum, zone| sum.saturating_add(zone.bytes));
    for pool in &mut full.pools {
        pool.free = pool.free.saturating_add(bytes >> pool.page_size.shift());
    }
    for pool in full.nodes.iter_mut().flat_map(|node| &mut node.pools) {
        pool.free = pool.free.saturating_add(bytes >> pool.page_size.shift());
    }
    plan(&full, request)
}

fn needs(plan: &Plan) -> Vec<PoolNeed> {
    let mut needs: Vec<PoolNeed> = Vec::new();
    for extent in plan
        .extents()
        .filter(|extent| extent.backing().is_hugetlb() && extent.segment().is_none())
    {
        let page = extent.page_size();
        let strict = matches!(extent.policy(), Some(Policy::Bind | Policy::Interleave));
        for (node, len) in extent.shares() {
            let (node, pages) = (strict.then_some(node), len.pages());
            match needs
                .iter_mut()
                .find(|need| need.page == page && need.node == node)
            {
                Some(need) => need.pages += pages,
                None => needs.push(PoolNeed { page, node, pages }),
            }
        }
    }
    needs
}
