//! What every refusal keeps to: its numbers are true, and its advice leads on.

use prezero_memory::{
    Class, Host, Hugepages, LayoutError, MemorySpec, NodeChoice, NodesShortage, PageSize,
    PlanError, Policy, Prealloc, Request, Shortage, plan,
};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::limits;

type Checked = Result<(), TestCaseError>;

/// The error's numbers are those of the host and of the request, and contradict each other nowhere.
pub(crate) fn numbers_are_true(host: &Host, request: &Request, error: &PlanError) -> Checked {
    prop_assert!(error.fix().is_some_and(|fix| !fix.is_empty()), "{}", error);
    let zones = &request.zones;
    let asked = |node: u32| {
        let mut choices = zones.iter().filter_map(|zone| zone.nodes.as_ref());
        choices.any(|choice| choice.nodes.contains(node))
    };
    let has_memory = |id: u32| host.node(id).is_some_and(|node| node.mem_total != Some(0));
    match error {
        PlanError::Nothing => {
            prop_assert!(zones.is_empty() || zones.iter().any(|zone| zone.bytes == 0));
        }
        PlanError::NoThreads => prop_assert_eq!(request.threads, Some(0)),
        PlanError::NoCpu { asked, allowed } => {
            prop_assert_eq!(allowed, &host.allowed_cpus);
            prop_assert!(asked.intersection(allowed).is_empty());
        }
        PlanError::KernelTooOld { .. } => {
            prop_assert!(host.kernel.version() < Some((5, 14)));
            prop_assert_eq!(request.prealloc, Prealloc::Eager);
        }
        PlanError::NotWholePages {
            what,
            page,
            below,
            above,
        } => {
            let zone = zones.iter().find(|zone| zone.to_string() == *what);
            let Some(zone) = zone.filter(|zone| !page.is_aligned(zone.bytes)) else {
                return Err(TestCaseError::fail(format!("No such zone: {what}")));
            };
            let near =
                |bytes: u64| page.is_aligned(bytes) && bytes.abs_diff(zone.bytes) < page.bytes();
            prop_assert!(below.is_none_or(|below| below > 0 && near(below)));
            prop_assert!(above.is_none_or(near));
            prop_assert!(below.is_some() || above.is_some());
        }
        PlanError::Layout(LayoutError::BeyondAddressBits {
            bytes, bits, max, ..
        }) => {
            let asked = zones
                .iter()
                .fold(0, |sum: u64, zone| sum.saturating_add(zone.bytes));
            prop_assert!(bytes.abs_diff(asked) < 4096 * 3, "{} for {}", bytes, asked);
            prop_assert_eq!(*bits, host.cpu.phys_addr_bits.unwrap_or(52));
            prop_assert!(bytes > max, "{}", error);
        }
        PlanError::PageSizeMissing { page, .. } => prop_assert!(host.pool(*page).is_none()),
        PlanError::NoHugepages => prop_assert!(host.pools.is_empty()),
        PlanError::Short(shortage) => shortage_is_true(host, request, shortage)?,
        PlanError::ShortNodes(shortage) => nodes_are_short(host, request, shortage)?,
        PlanError::ShortOfMemory {
            needed, available, ..
        } => {
            prop_assert_eq!(request.prealloc, Prealloc::Eager);
            prop_assert!(needed > available);
            prop_assert!(Some(*available) <= host.mem_available);
        }
        PlanError::NoSuchNode { node, valid } => {
            prop_assert!(asked(*node) && host.node(*node).is_none());
            prop_assert!(!valid.is_empty() && valid.iter().all(has_memory));
        }
        PlanError::NodeWithoutMemory { node, valid } => {
            prop_assert!(asked(*node) && !has_memory(*node));
            prop_assert!(!valid.is_empty() && valid.iter().all(has_memory));
        }
        PlanError::NodeNotAllowed { node, allowed, .. } => {
            prop_assert!(asked(*node) && has_memory(*node) && !allowed.contains(*node));
            prop_assert_eq!(allowed, &host.allowed_nodes);
        }
        other => limits::refusal_is_true(host, request, other)?,
    }
    let shortage = matches!(
        error,
        PlanError::Short(_)
            | PlanError::ShortNodes(_)
            | PlanError::ShortOfMemory { .. }
            | PlanError::Limit(_)
    );
    prop_assert_eq!(
        error.class() == Class::Shortage,
        shortage,
        "{:?}",
        error.class()
    );
    Ok(())
}

/// The node that the process is confined to, if it is one.
fn only_usable(host: &Host) -> Option<u32> {
    let nodes = host.nodes.iter();
    let mut nodes =
        nodes.filter(|node| node.mem_total != Some(0) && host.allowed_nodes.contains(node.id));
    nodes
        .next()
        .filter(|_| nodes.next().is_none())
        .map(|node| node.id)
}

fn shortage_is_true(host: &Host, request: &Request, shortage: &Shortage) -> Checked {
    let Shortage {
        page,
        needed,
        available,
        ..
    } = *shortage;
    prop_assert!(needed > available && shortage.short() == needed - available);
    let Some(pool) = host.pool(page) else {
        return Err(TestCaseError::fail(
            "Short of pages that the host does not have",
        ));
    };
    prop_assert!(available <= pool.available());
    let of = |zone: &&MemorySpec| {
        shortage.node.is_none()
            || bound_to(zone) == shortage.node
            || (bound_to(zone).is_none() && only_usable(host) == shortage.node)
    };
    let zones = request.zones.iter().filter(of);
    let zones: Vec<u64> = zones.map(|zone| zone.bytes >> page.shift()).collect();
    match shortage.zones {
        1 => prop_assert!(zones.contains(&needed)),
        several => prop_assert!(several <= zones.len() && zones.iter().sum::<u64>() >= needed),
    }
    let of_node = |id: u32| host.node(id).and_then(|node| node.pool(page));
    let total = shortage
        .node
        .and_then(of_node)
        .map_or(pool.total, |pool| pool.total);
    prop_assert_eq!(shortage.total, total);
    if let Some(of_node) = shortage.node.and_then(of_node) {
        // A host of one node can add surplus pages to it.
        prop_assert!(available <= of_node.free || host.nodes.len() == 1);
    }
    // One zone alone has all there is: nothing less is called too little.
    if let ([_], None) = (&request.zones[..], shortage.node) {
        prop_assert_eq!(available, pool.available().min(within_cpuset(host, page)));
    }
    if let Some((other, free)) = shortage.elsewhere {
        prop_assert!(Some(other) != shortage.node && host.allowed_nodes.contains(other));
        prop_assert!(free >= needed || shortage.zones > 1);
        prop_assert!(of_node(other).is_none_or(|pool| free <= pool.free));
    }
    Ok(())
}

/// The node that all of a zone has to be on.
fn bound_to(zone: &MemorySpec) -> Option<u32> {
    let choice = zone.nodes.as_ref()?;
    let node = choice.nodes.first().filter(|_| choice.nodes.len() == 1);
    node.filter(|_| choice.policy == Policy::Bind)
}

/// Each node is named with what it has; they are short together, or, taking turns, one of them is.
fn nodes_are_short(host: &Host, request: &Request, shortage: &NodesShortage) -> Checked {
    let NodesShortage {
        page,
        policy,
        needed,
        available,
        ..
    } = *shortage;
    let of = |zone: &MemorySpec| {
        let choice = zone.nodes.as_ref();
        let same = choice.is_some_and(|choice| choice.policy == policy);
        same && zone.bytes >> page.shift() == needed
    };
    prop_assert!(
        request.zones.iter().any(of) && shortage.short() > 0,
        "{}",
        shortage
    );
    let mut of_nodes = 0;
    for node in &shortage.nodes {
        prop_assert!(host.allowed_nodes.contains(node.node));
        of_nodes += node.available;
        if let Some(pool) = host.node(node.node).and_then(|found| found.pool(page)) {
            prop_assert!(node.available <= pool.free || host.nodes.len() == 1);
            prop_assert_eq!(node.total, pool.total);
        }
    }
    prop_assert!(available <= of_nodes);
    let needs: Vec<u64> = shortage
        .nodes
        .iter()
        .filter_map(|node| node.needed)
        .collect();
    match policy {
        Policy::Interleave => {
            let (least, most) = (needs.iter().min(), needs.iter().max());
            prop_assert!(
                most.zip(least)
                    .is_some_and(|(most, least)| most - least <= 1)
            );
            prop_assert_eq!(needs.iter().sum::<u64>(), needed);
        }
        _ => prop_assert!(needs.is_empty() && needed > available),
    }
    Ok(())
}

/// The request with nothing in it that can fail but the number of 2 MiB pages, of which it wants about as many as there are.
pub(crate) fn only_hugepages(host: &Host, request: Request) -> Request {
    let page = PageSize::HUGE_2M;
    let most = host.pool(page).map_or(0, |pool| pool.available()) / 2 + 1;
    let usable = host.nodes.iter().filter(|node| node.mem_total != Some(0));
    let usable: Vec<u32> = usable.map(|node| node.id).collect();
    let node = |asked: u32| usable.iter().copied().cycle().nth(asked as usize);
    let zones = request.zones.into_iter().map(|zone| MemorySpec {
        hugepages: Hugepages::On,
        hugepage_size: Some(page),
        nodes: bound_to(&zone).and_then(node).map(NodeChoice::bind),
        ..MemorySpec::new((1 + (zone.bytes >> page.shift()) % most) << page.shift())
    });
    Request {
        zones: zones.collect(),
        ..Request::default()
    }
}

/// Whichever node each zone were on: either a node is asked for more than it has, or all of them together are.
pub(crate) fn shortage_is_unavoidable(
    host: &Host,
    request: &Request,
    error: &PlanError,
) -> Checked {
    let PlanError::Short(Shortage { page, .. }) = *error else {
        return Ok(());
    };
    let available = host.pool(page).map_or(0, |pool| pool.available());
    let available = available.min(within_cpuset(host, page));
    let needed = |zones: &mut dyn Iterator<Item = &MemorySpec>| -> u64 {
        zones.map(|zone| zone.bytes >> page.shift()).sum()
    };
    if host.nodes.iter().any(|node| node.pool(page).is_none()) {
        // What is free on such a node is a guess.
        return Ok(());
    }
    let all = needed(&mut request.zones.iter());
    let a_node_is_short = host.nodes.iter().any(|node| {
        let bound = |zone: &&MemorySpec| bound_to(zone) == Some(node.id);
        let of_node = needed(&mut request.zones.iter().filter(bound));
        node.pool(page).is_some_and(|pool| of_node > pool.free)
    });
    prop_assert!(all > available || a_node_is_short, "{}", error);
    Ok(())
}

/// What the kernel lets a process reserve: the free pages of its nodes, and surplus pages only where the whole host has
/// too few (`hugetlb_acct_memory`, mm/hugetlb.c).
fn within_cpuset(host: &Host, page: PageSize) -> u64 {
    let Some(pool) = host.pool(page) else {
        return 0;
    };
    let usable = host
        .nodes
        .iter()
        .filter(|node| host.allowed_nodes.contains(node.id));
    let of_usable: Option<Vec<u64>> = usable
        .filter(|node| node.mem_total != Some(0))
        .map(|node| node.pool(page).map(|pool| pool.free))
        .collect();
    let of_usable: Option<u64> = of_usable.map(|free| free.iter().sum());
    let unreserved = pool.free.saturating_sub(pool.reserved);
    of_usable
        .filter(|free| *free < unreserved)
        .unwrap_or(u64::MAX)
}

/// Typing what the error advises gets past it, for errors about one zone's size or node.
pub(crate) fn advice_leads_on(host: &Host, request: &Request, error: &PlanError) -> Checked {
    let Some(fix) = error.fix() else {
        return Ok(());
    };
    for advice in fix.split(" or ") {
        let mut again = request.clone();
        let [zone] = &mut again.zones[..] else {
            return Ok(());
        };
        match error {
            PlanError::NotWholePages { .. } | PlanError::Layout(_)
                if advice.starts_with("size=") =>
            {
                zone.bytes = advice
                    .parse::<MemorySpec>()
                    .map_err(|e| TestCaseError::fail(e.to_string()))?
                    .bytes;
            }
            PlanError::NoSuchNode { .. } | PlanError::NodeWithoutMemory { .. } => {
                let with_size = format!("1G,{advice}").parse::<MemorySpec>();
                let with_size = with_size.map_err(|e| TestCaseError::fail(e.to_string()))?;
                zone.nodes = with_size.nodes;
            }
            PlanError::Short(_) | PlanError::ShortNodes(_) => {
                // "host_numa_node=0, ", or the command that adds pages.
                let offer = format!("1G,{}", advice.trim_end_matches([',', ' ']));
                match offer.parse::<MemorySpec>() {
                    Ok(typed) => zone.nodes = typed.nodes,
                    Err(_) => continue,
                }
            }
            _ => return Ok(()),
        }
        if let Err(next) = plan(host, &again) {
            let short = |e: &PlanError| matches!(e, PlanError::Short(_) | PlanError::ShortNodes(_));
            let same = std::mem::discriminant(&next) == std::mem::discriminant(error)
                || short(&next) && short(error);
            prop_assert!(!same, "{}, advised {}: {}", error, advice, next);
        }
    }
    Ok(())
}
