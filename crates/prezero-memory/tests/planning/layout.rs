//! What every plan's slots and extents keep to.

use std::collections::BTreeMap;

use prezero_memory::{
    Backing, Extent, Host, Hugepages, NodeChoice, PageSize, Plan, Policy, Request,
};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

const GIB: u64 = 1 << 30;

type Checked = Result<(), TestCaseError>;

/// Slots are numbered, ascending, apart, in the address space, outside its holes, and small enough for KVM.
pub(crate) fn slots_have_a_place(host: &Host, plan: &Plan) -> Checked {
    let bits = host.cpu.phys_addr_bits.unwrap_or(52);
    let amd = ["AuthenticAMD", "HygonGenuine"].contains(&host.cpu.vendor.as_str());
    let mut end = 0;
    for (n, slot) in plan.slots().iter().enumerate() {
        let next = slot.gpa() + slot.len();
        prop_assert_eq!(slot.slot() as usize, n);
        prop_assert!(
            !slot.is_empty() && slot.gpa() >= end,
            "slot {} at {:#x}",
            n,
            slot.gpa()
        );
        prop_assert!(
            next <= 1 << bits,
            "slot {} ends at {:#x} of {} bits",
            n,
            next,
            bits
        );
        let outside = |hole: (u64, u64)| next <= hole.0 || slot.gpa() >= hole.1;
        prop_assert!(
            outside((3 * GIB, 4 * GIB)),
            "slot {} at {:#x}",
            n,
            slot.gpa()
        );
        prop_assert!(
            !amd || outside((1012 * GIB, 1024 * GIB)),
            "slot {} at {:#x}",
            n,
            slot.gpa()
        );
        // KVM_MEM_MAX_NR_PAGES, include/linux/kvm_host.h.
        prop_assert!(slot.len() / 4096 < 1 << 31);
        end = next;
    }
    prop_assert_eq!(plan.slots().first().map(|slot| slot.gpa()), Some(0));
    Ok(())
}

/// Extents fill each slot side by side, in whole pages, and a slot's alignment lets KVM map those.
pub(crate) fn extents_fill_their_slots(plan: &Plan) -> Checked {
    for slot in plan.slots() {
        let mut next = slot.gpa();
        for extent in slot.extents() {
            prop_assert_eq!(extent.gpa(), next);
            prop_assert!(!extent.is_empty());
            let page = extent.page_size();
            prop_assert!(page.is_aligned(next) && page.is_aligned(extent.len().bytes()));
            prop_assert!(slot.align() >= page);
            next += extent.len().bytes();
        }
        prop_assert_eq!(next - slot.gpa(), slot.len());
    }
    Ok(())
}

/// The extents of each zone: slots are in the order of the zones, and none is of two.
fn by_zone<'a>(request: &Request, plan: &'a Plan) -> Result<Vec<Vec<&'a Extent>>, TestCaseError> {
    let mut slots = plan.slots().iter();
    let mut zones = Vec::new();
    for zone in &request.zones {
        let mut extents = Vec::new();
        let mut left = zone.bytes;
        while left > 0 {
            let slot = slots.next();
            let Some(slot) = slot.filter(|slot| slot.len() <= left) else {
                return Err(TestCaseError::fail(format!(
                    "No slot for {left} bytes of {zone}"
                )));
            };
            left -= slot.len();
            extents.extend(slot.extents());
        }
        zones.push(extents);
    }
    prop_assert_eq!(slots.count(), 0);
    let bytes: u64 = request.zones.iter().map(|zone| zone.bytes).sum();
    prop_assert_eq!(plan.bytes(), bytes);
    Ok(zones)
}

/// Every zone is as large as asked for, made of what was asked for, where it was asked for.
pub(crate) fn zones_are_as_asked(host: &Host, request: &Request, plan: &Plan) -> Checked {
    for (zone, extents) in request.zones.iter().zip(by_zone(request, plan)?) {
        for extent in &extents {
            let huge = extent.backing().is_hugetlb();
            prop_assert!(!huge || (extent.backing() == Backing::Hugetlbfs) == zone.path.is_some());
            match zone.hugepages {
                Hugepages::On => prop_assert!(huge),
                Hugepages::Off => prop_assert!(!huge),
                Hugepages::Auto => {}
            }
            if huge {
                prop_assert!(
                    zone.hugepage_size
                        .is_none_or(|page| page == extent.page_size())
                );
                prop_assert!(host.pool(extent.page_size()).is_some());
            } else {
                prop_assert_eq!(extent.page_size(), PageSize::BASE);
            }
            prop_assert_eq!(
                extent.policy(),
                zone.nodes.as_ref().map(|choice| choice.policy)
            );
            prop_assert_eq!(extent.bound(), extent.policy() == Some(Policy::Bind));
            prop_assert!(extent.nodes().contains(extent.node()));
        }
        if let Some(choice) = &zone.nodes {
            nodes_are_as_asked(host, choice, &extents)?;
        }
    }
    Ok(())
}

/// Bound and interleaved memory is on the nodes asked for and no other, preferred memory on others only when those
/// are full; interleaved hugepages differ by at most one between nodes, whatever the slots.
fn nodes_are_as_asked(host: &Host, choice: &NodeChoice, extents: &[&Extent]) -> Checked {
    let asked = |node: u32| choice.nodes.is_empty() || choice.nodes.contains(node);
    let mut pages: BTreeMap<u32, u64> = BTreeMap::new();
    for extent in extents {
        let all = extent.shares().map(|(_, len)| len.pages()).sum::<u64>();
        prop_assert_eq!(all, extent.len().pages());
        let nodes: Vec<u32> = match choice.policy {
            Policy::Interleave => extent.nodes().iter().collect(),
            _ => vec![extent.node()],
        };
        // The kernel gives page n to node n, modulo the nodes.
        let (all, count) = (extent.len().pages(), nodes.len() as u64);
        for (n, node) in (0..).zip(nodes) {
            *pages.entry(node).or_default() += all / count + u64::from(n < all % count);
        }
        if choice.policy != Policy::Preferred {
            prop_assert!(extent.nodes().iter().all(asked), "{:?}", extent);
        }
        if choice.policy == Policy::Bind {
            prop_assert_eq!(extent.nodes().len(), 1);
        }
    }
    let huge = extents.iter().all(|extent| extent.backing().is_hugetlb());
    if choice.policy == Policy::Interleave && huge {
        let usable = host.nodes.iter().filter(|node| {
            node.mem_total != Some(0) && host.allowed_nodes.contains(node.id) && asked(node.id)
        });
        let counts: Vec<u64> = usable
            .map(|node| pages.get(&node.id).copied().unwrap_or(0))
            .collect();
        let (least, most) = (counts.iter().min(), counts.iter().max());
        prop_assert!(
            most.zip(least)
                .is_some_and(|(most, least)| most - least <= 1),
            "{:?}",
            pages
        );
    }
    Ok(())
}

/// Memory is on nodes that have some and that the process may use.
pub(crate) fn nodes_are_usable(host: &Host, plan: &Plan) -> Checked {
    for id in plan.extents().flat_map(Extent::nodes) {
        let node = host.node(id);
        prop_assert!(
            node.is_some_and(|node| node.mem_total != Some(0)),
            "node {}",
            id
        );
        prop_assert!(host.allowed_nodes.contains(id), "node {}", id);
    }
    Ok(())
}

/// No more hugepages than the host can promise, nor, unless the kernel may add some, than a node has.
pub(crate) fn hugepages_are_there(host: &Host, plan: &Plan) -> Checked {
    let mut by_size: BTreeMap<PageSize, u64> = BTreeMap::new();
    let mut by_node: BTreeMap<(PageSize, u32), (u64, bool)> = BTreeMap::new();
    for extent in plan
        .extents()
        .filter(|extent| extent.backing().is_hugetlb())
    {
        let page = extent.page_size();
        *by_size.entry(page).or_default() += extent.len().pages();
        for (node, len) in extent.shares() {
            let of_node = by_node.entry((page, node)).or_default();
            of_node.0 += len.pages();
            of_node.1 |= extent.bound();
        }
    }
    for (page, pages) in &by_size {
        let available = host.pool(*page).map_or(0, |pool| pool.available());
        prop_assert!(
            *pages <= available,
            "{} of {} pages of {}",
            pages,
            available,
            page
        );
    }
    for ((page, id), (pages, bound)) in &by_node {
        let Some(of_node) = host.node(*id).and_then(|node| node.pool(*page)) else {
            continue;
        };
        let pool = host.pool(*page);
        let unreserved = pool.map_or(0, |pool| pool.free.saturating_sub(pool.reserved));
        // The kernel adds surplus pages only where the free pages of the whole host run out.
        let kernel_adds = by_size[page] > unreserved;
        // With one node they are there; where zones are bound to every node, there is none to add them to.
        let bound_everywhere = host.nodes.iter().all(|node| {
            by_node
                .get(&(*page, node.id))
                .is_some_and(|(_, bound)| *bound)
        });
        let bound = *bound && !bound_everywhere;
        prop_assert!(
            *pages <= of_node.free || (kernel_adds && !bound),
            "{} pages of {} on node {}, which has {}",
            pages,
            page,
            id,
            of_node.free
        );
    }
    Ok(())
}
