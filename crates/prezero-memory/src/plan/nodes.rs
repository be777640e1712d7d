//! How many of a zone's hugepages come from which node.

use prezero_host::PageSize;

use super::apportion::apportion;
use super::availability::Available;
use super::{NodePages, NodesShortage, PlanError};
use crate::policy::{NodeChoice, Policy};
use crate::spec::{Hugepages, MemorySpec};

/// (node, pages), in node order.
pub(super) type Shares = Vec<(u32, u64)>;

/// The pages that each node gives to a zone of `needed` pages, or what they are short of.
pub(super) fn share(
    spec: &MemorySpec,
    page: PageSize,
    needed: u64,
    available: &Available<'_>,
) -> Result<Shares, PlanError> {
    let free: Shares = (available.nodes().into_iter())
        .map(|node| (node, available.pages_on(page, node)))
        .collect();
    let Some(choice) = &spec.nodes else {
        return anywhere(page, needed, &free, available);
    };
    if let Some(node) = choice.only_node() {
        return on_one(spec, node, (page, needed), &free, available);
    }
    let nodes = available.chosen(choice);
    let of_choice: Shares = (free.iter().copied())
        .filter(|(node, _)| nodes.contains(*node))
        .collect();
    let sum: u64 = of_choice.iter().map(|(_, pages)| pages).sum();
    let sum = sum.min(available.pages(page));
    let short = |needs: &[u64]| {
        let nodes = of_choice.iter().enumerate();
        let nodes = nodes.map(|(n, &(node, on_node))| NodePages {
            node,
            needed: needs.get(n).copied(),
            available: on_node,
            total: available.total_on(page, node),
        });
        PlanError::ShortNodes(NodesShortage {
            page,
            policy: choice.policy,
            needed,
            available: sum,
            nodes: nodes.collect(),
            choices: choices(page, needed, choice, available),
            memory: available.host.mem_available,
        })
    };
    match choice.policy {
        Policy::Bind if needed > sum => Err(short(&[])),
        Policy::Bind => Ok(spread(needed, &of_choice)),
        Policy::Interleave => {
            let needs = in_turn(needed, of_choice.len());
            let is_short = |(need, (_, free)): (&u64, &(u32, u64))| need > free;
            if needs.iter().zip(&of_choice).any(is_short) {
                return Err(short(&needs));
            }
            if needed > available.pages(page) {
                // Every node has its share, but some of it is reserved.
                return Err(host_short(page, needed, &free, available));
            }
            let nodes = of_choice.iter().map(|(node, _)| *node);
            Ok(nodes.zip(needs).filter(|(_, pages)| *pages > 0).collect())
        }
        Policy::Preferred if needed > available.pages(page) => {
            Err(host_short(page, needed, &free, available))
        }
        Policy::Preferred if needed <= sum => Ok(spread(needed, &of_choice)),
        Policy::Preferred => Ok(overflow((page, needed), of_choice, &free, available)),
    }
}

/// The pages of each of `count` nodes that take turns: the first ones get the odd pages.
fn in_turn(needed: u64, count: usize) -> Vec<u64> {
    let nodes = count.max(1) as u64;
    let share = |n: u64| needed / nodes + u64::from(n < needed % nodes);
    (0..nodes).map(share).collect()
}

fn anywhere(
    page: PageSize,
    needed: u64,
    free: &[(u32, u64)],
    available: &Available<'_>,
) -> Result<Shares, PlanError> {
    match needed > available.pages(page) {
        true => Err(host_short(page, needed, free, available)),
        false => {
            let bound = |node| available.is_strict(page, node);
            Ok(with_surplus(needed, free, bound))
        }
    }
}

/// [`spread`], also where the kernel has to add surplus pages: nobody knows to which node it adds them, so
/// they are not counted on where zones are bound, which would miss what others take of such a node.
fn with_surplus(needed: u64, free: &[(u32, u64)], bound: impl Fn(u32) -> bool) -> Shares {
    let there = free.iter().map(|(_, pages)| pages).sum();
    let elsewhere = free.iter().filter(|(node, _)| !bound(*node));
    let Some((node, _)) = elsewhere.max_by_key(|(_, pages)| *pages) else {
        return spread(needed, free);
    };
    if needed <= there || !free.iter().any(|(node, _)| bound(*node)) {
        return spread(needed, free);
    }
    let with_rest = |(id, pages): &(u32, u64)| {
        let rest = if id == node { needed - there } else { 0 };
        (*id, pages + rest)
    };
    let shares = free.iter().map(with_rest);
    shares.filter(|(_, pages)| *pages > 0).collect()
}

fn host_short(
    page: PageSize,
    needed: u64,
    by_node: &[(u32, u64)],
    available: &Available<'_>,
) -> PlanError {
    let free = available.pages(page);
    // In a cpuset of one node it is that node's pool that has to grow.
    let only = match by_node {
        [(node, on_node)] if available.host.nodes.len() > 1 && *on_node == free => Some(*node),
        _ => None,
    };
    PlanError::Short(available.short(page, only, needed, free))
}

fn on_one(
    spec: &MemorySpec,
    node: u32,
    (page, needed): (PageSize, u64),
    free: &[(u32, u64)],
    available: &Available<'_>,
) -> Result<Shares, PlanError> {
    let on_node = free.iter().find(|(id, _)| *id == node);
    let on_node = on_node.map_or(0, |pair| pair.1);
    if needed <= on_node {
        return Ok(vec![(node, needed)]);
    }
    let mut short = available.short(page, Some(node), needed, on_node);
    if spec.hugepages == Hugepages::On {
        // What zones planned earlier took of it they took for the same reason.
        let (all, zones) = available.bound_needs(page, node);
        short.needed = all.max(needed);
        short.zones = zones.max(1);
        short.available = on_node.saturating_add(available.used_on(page, node));
    }
    short.elsewhere = free.iter().find(|(_, free)| *free >= needed).copied();
    short.choices = choices(page, needed, &NodeChoice::bind(node), available);
    Err(PlanError::Short(short))
}

/// Other choices that the pools have enough for, the nearest to `instead_of` first.
fn choices(
    page: PageSize,
    needed: u64,
    instead_of: &NodeChoice,
    available: &Available<'_>,
) -> Vec<NodeChoice> {
    let with = |policy, nodes| NodeChoice { policy, nodes };
    let mut offers = Vec::new();
    let nodes = available.nodes();
    let all = available.pages(page);
    if nodes.len() < 2 || needed > all {
        return offers;
    }
    let wanted = available.chosen(instead_of);
    let of_wanted: u64 = wanted
        .iter()
        .map(|node| available.pages_on(page, node))
        .sum();
    if instead_of.policy == Policy::Interleave && needed <= of_wanted {
        offers.push(with(Policy::Bind, wanted.clone()));
    }
    offers.push(with(Policy::Preferred, wanted.clone()));
    // Fewer nodes have more pages each to give: those that are short are left out.
    let mut even = nodes;
    loop {
        let most = needed.div_ceil(even.len().max(1) as u64);
        let before = even.len();
        even.retain(|node| available.pages_on(page, *node) >= most);
        if even.len() == before {
            break;
        }
    }
    if even.len() > 1 {
        offers.push(with(Policy::Interleave, even.into_iter().collect()));
    }
    offers.retain(|offer| offer.policy != instead_of.policy || offer.nodes != wanted);
    offers
}

/// All that the preferred nodes have, and the rest from the others, the nearest first.
fn overflow(
    (page, needed): (PageSize, u64),
    preferred: Shares,
    free: &[(u32, u64)],
    available: &Available<'_>,
) -> Shares {
    let mut shares = preferred;
    let distance = |to: u32| {
        let from = shares.iter().filter_map(|(id, _)| available.host.node(*id));
        let known = from.map(|node| node.distance(to).unwrap_or(u32::MAX));
        known.min().unwrap_or(u32::MAX)
    };
    let is_other = |(id, _): &&(u32, u64)| !shares.iter().any(|(node, _)| node == id);
    let mut others: Shares = free.iter().filter(is_other).copied().collect();
    others.sort_by_key(|(id, _)| (distance(*id), *id));
    let mut left = needed;
    for (_, pages) in &mut shares {
        *pages = left.min(*pages);
        left -= *pages;
    }
    for (node, pages) in others {
        shares.push((node, left.min(pages)));
        left -= left.min(pages);
    }
    // Surplus pages, which the kernel adds where it is asked for them; not where others are bound.
    let bound = |node| available.is_strict(page, node);
    let free_of_others = shares.iter().position(|(node, _)| !bound(*node));
    if let Some((_, pages)) = shares.get_mut(free_of_others.unwrap_or(0)) {
        *pages += left;
    }
    shares.retain(|(_, pages)| *pages > 0);
    shares.sort_unstable();
    shares
}

/// Memory that several nodes may have follows the free pages: the node with the most if all of it
/// fits there, else every node in proportion to what it has free.
pub(super) fn spread(needed: u64, free: &[(u32, u64)]) -> Shares {
    let most = free.iter().rev().max_by_key(|(_, pages)| *pages);
    if let Some((node, pages)) = most
        && *pages >= needed
    {
        return vec![(*node, needed)];
    }
    let weights: Vec<u64> = free.iter().map(|(_, pages)| *pages).collect();
    let shares = apportion(needed, &weights);
    let shares = free
        .iter()
        .zip(shares)
        .map(|((node, _), share)| (*node, share));
    shares.filter(|(_, share)| *share > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::{in_turn, spread, with_surplus};

    #[test]
    fn memory_stays_on_one_node_where_it_fits() {
        assert_eq!(spread(100, &[(0, 150), (1, 200)]), [(1, 100)]);
        assert_eq!(spread(100, &[(0, 200), (1, 200)]), [(0, 100)]);
    }

    #[test]
    fn memory_that_fits_nowhere_whole_follows_the_free_pages() {
        assert_eq!(spread(300, &[(0, 300), (2, 100)]), [(0, 300)]);
        assert_eq!(spread(400, &[(0, 300), (2, 100)]), [(0, 300), (2, 100)]);
        assert_eq!(spread(200, &[(0, 150), (1, 150)]), [(0, 100), (1, 100)]);
        assert_eq!(spread(200, &[(0, 199), (1, 0), (3, 1)]), [(0, 199), (3, 1)]);
    }

    #[test]
    fn surplus_pages_are_not_counted_on_where_zones_are_bound() {
        let free = [(0, 9), (6, 7)];
        assert_eq!(with_surplus(17, &free, |node| node == 0), [(0, 9), (6, 8)]);
        assert_eq!(with_surplus(17, &free, |node| node == 6), [(0, 10), (6, 7)]);
        assert_eq!(with_surplus(16, &free, |node| node == 0), [(0, 9), (6, 7)]);
        assert_eq!(with_surplus(17, &free, |_| false), spread(17, &free));
        assert_eq!(with_surplus(17, &free, |_| true), spread(17, &free));
    }

    #[test]
    fn nodes_in_turn_differ_by_one_page_at_most() {
        assert_eq!(in_turn(7, 3), [3, 2, 2]);
        assert_eq!(in_turn(1, 2), [1, 0]);
        assert_eq!(in_turn(6, 1), [6]);
    }
}
