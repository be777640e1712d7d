//! Policies on recorded hosts: which pages come from which node, and what is said where they do not suffice.

mod planning;

use std::collections::BTreeMap;

use planning::{eager, fixture};
use prezero_memory::{Backing, Class, Host, Plan, PlanWarning, plan};

const TIB: u64 = 1 << 40;

fn planned(host: &Host, specs: &[&str]) -> Plan {
    plan(host, &eager(specs)).unwrap()
}

/// First page, nodes and pages of each extent.
fn extents(plan: &Plan) -> Vec<(u32, String, u64)> {
    let extents = plan.extents();
    extents
        .map(|extent| {
            (
                extent.node(),
                extent.nodes().to_string(),
                extent.len().pages(),
            )
        })
        .collect()
}

fn extent(node: u32, nodes: &str, pages: u64) -> (u32, String, u64) {
    (node, nodes.to_owned(), pages)
}

fn told(host: &Host, spec: &str) -> (String, String) {
    let error = plan(host, &eager(&[spec])).unwrap_err();
    assert_eq!(error.class(), Class::Shortage, "{error}");
    (error.to_string(), error.fix().unwrap())
}

fn text(message: &str, fix: &str) -> (String, String) {
    (message.to_owned(), fix.to_owned())
}

fn warnings(plan: &Plan) -> Vec<String> {
    plan.warnings().iter().map(PlanWarning::to_string).collect()
}

#[test]
fn bound_to_several_nodes_each_extent_is_bound_to_one_of_them() {
    let host = fixture("two-sockets-uneven");
    let all = planned(&host, &["4G,hugepages=on,host_nodes=0-1"]);
    assert!(all.extents().all(|extent| extent.bound()));
    // Below and above the hole at 3 GiB: 1536 and 512 pages.
    assert_eq!(
        extents(&all),
        [
            extent(0, "0", 1290),
            extent(1, "1", 246),
            extent(1, "1", 512)
        ]
    );
    let part = planned(&host, &["3G,hugepages=on,host_nodes=0-1"]);
    assert_eq!(extents(&part), [extent(0, "0", 968), extent(1, "1", 568)]);
    let one = planned(&host, &["2G,hugepages=on,host_nodes=0-1"]);
    assert_eq!(extents(&one), [extent(0, "0", 1024)]);
}

#[test]
fn nodes_that_are_short_together_are_named_with_what_each_has() {
    let host = fixture("two-sockets-uneven");
    assert_eq!(
        told(&host, "5G,hugepages=on,host_nodes=0-1"),
        text(
            "Nodes 0-1 need 2560 pages of 2 MiB, have 2048 free (1290 on node 0, 758 on node 1), short by 512 (1 GiB)",
            "echo 1802 | sudo tee /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages",
        )
    );
    // 4096, 4000 and 8192 free.
    assert_eq!(
        told(
            &fixture("sparse-node-ids"),
            "16G,hugepages=on,host_nodes=[0,2]"
        ),
        text(
            "Nodes 0,2 need 8192 pages of 2 MiB, have 8096 free (4096 on node 0, 4000 on node 2), short by 96 (192 MiB)",
            "host_nodes=[0,2],policy=preferred, or host_nodes=[0,2-3],policy=interleave, or: echo 4192 | sudo tee /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages",
        )
    );
}

#[test]
fn a_preferred_node_gives_what_it_has_and_the_nearest_others_the_rest() {
    // Distances from node 0: 21 to node 1, 38 to node 2; 512, 500 and 4096 free.
    let host = fixture("memory-only-node");
    let fits = planned(&host, &["1G,hugepages=on,host_nodes=0,policy=preferred"]);
    assert_eq!(
        (extents(&fits), warnings(&fits)),
        (vec![extent(0, "0", 512)], vec![])
    );
    let beyond = planned(&host, &["2G,hugepages=on,host_nodes=0,policy=preferred"]);
    assert_eq!(
        extents(&beyond),
        [extent(0, "0", 512), extent(1, "1", 500), extent(2, "2", 12)]
    );
    assert!(beyond.extents().all(|extent| !extent.bound()));
    assert_eq!(
        warnings(&beyond)[0],
        "The preferred node 0 has 512 of 1024 pages of 2 MiB: 512 are on nodes 1-2"
    );
    // From node 2 it is node 1 that is nearest.
    let from_two = planned(&host, &["9G,hugepages=on,host_nodes=2,policy=preferred"]);
    let mut pages: BTreeMap<u32, u64> = BTreeMap::new();
    for extent in from_two.extents() {
        *pages.entry(extent.node()).or_default() += extent.len().pages();
    }
    assert_eq!(pages, [(1, 500), (2, 4096), (0, 12)].into());
}

#[test]
fn several_preferred_nodes_are_one_preference() {
    let host = fixture("memory-only-node");
    let plan = planned(&host, &["2G,hugepages=on,host_nodes=0-1,policy=preferred"]);
    assert_eq!(
        extents(&plan),
        [
            extent(0, "0-1", 512),
            extent(1, "0-1", 500),
            extent(2, "2", 12)
        ]
    );
    assert_eq!(
        warnings(&plan)[0],
        "The preferred nodes 0-1 have 1012 of 1024 pages of 2 MiB: 12 are on node 2"
    );
}

#[test]
fn a_preference_does_not_make_pages() {
    assert_eq!(
        told(
            &fixture("two-sockets-uneven"),
            "5G,hugepages=on,host_nodes=1,policy=preferred"
        ),
        text(
            "The host needs 2560 pages of 2 MiB, has 2048 free, short by 512 (1 GiB)",
            "echo 2560 | sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
        )
    );
}

#[test]
fn interleaved_pages_take_turns_and_each_node_populates_its_share() {
    let host = fixture("two-sockets-uneven");
    for spec in [
        "2G,hugepages=on,host_nodes=0-1,policy=interleave",
        "2G,hugepages=on,policy=interleave",
    ] {
        let plan = planned(&host, &[spec]);
        assert_eq!(extents(&plan), [extent(0, "0-1", 1024)], "{spec}");
        let [whole] = plan.slots()[0].extents() else {
            panic!("{plan:?}")
        };
        let shares: Vec<_> = whole
            .shares()
            .map(|(node, len)| (node, len.pages()))
            .collect();
        assert_eq!(shares, [(0, 512), (1, 512)]);
        assert_eq!(plan.workers().len(), 8);
        assert_eq!(plan.warnings(), []);
    }
}

#[test]
fn turns_go_on_where_a_slot_ended() {
    // Three pages of 1 GiB below the hole: the fourth is node 2's.
    let mut host = fixture("sparse-node-ids");
    for pool in host.nodes.iter_mut().flat_map(|node| &mut node.pools) {
        pool.free += 8;
        pool.total += 8;
    }
    for pool in &mut host.pools {
        pool.free += 24;
        pool.total += 24;
    }
    let spec = "8G,hugepages=on,hugepage_size=1G,host_nodes=[0,2],policy=interleave";
    assert_eq!(
        extents(&planned(&host, &[spec])),
        [extent(0, "0,2", 3), extent(2, "2", 1), extent(0, "0,2", 4)]
    );
}

proptest::proptest! {
    /// Whatever the nodes, and wherever the holes cut the guest's memory, counted as the kernel deals them out.
    #[test]
    fn interleaved_nodes_differ_by_one_page_at_most(
        gib in 1..80_u64, nodes in proptest::sample::subsequence((0..8_u32).collect::<Vec<_>>(), 1..=8)
    ) {
        let mut host = fixture("eight-nodes-16t");
        for pool in host.nodes.iter_mut().flat_map(|node| &mut node.pools) {
            pool.free = 100;
        }
        for pool in &mut host.pools {
            pool.free = 800;
        }
        let list: prezero_memory::IdSet = nodes.iter().copied().collect();
        let spec = format!("{gib}G,hugepages=on,hugepage_size=1G,host_nodes=[{list}],policy=interleave");
        let plan = planned(&host, &[&spec]);
        let mut pages: BTreeMap<u32, u64> = nodes.iter().map(|node| (*node, 0)).collect();
        for extent in plan.extents() {
            let turns: Vec<u32> = extent.nodes().iter().collect();
            let mut turns = turns.into_iter().cycle();
            for _ in 0..extent.len().pages() {
                *pages.get_mut(&turns.next().unwrap()).unwrap() += 1;
            }
        }
        let (least, most) = (pages.values().min().unwrap(), pages.values().max().unwrap());
        proptest::prop_assert!(most - least <= 1, "{:?}", pages);
    }
}

#[test]
fn a_node_that_cannot_take_its_turns_is_named_with_the_numbers() {
    // An even share is 768 each, and node 1 has 758.
    assert_eq!(
        told(
            &fixture("two-sockets-uneven"),
            "3G,hugepages=on,policy=interleave"
        ),
        text(
            "Interleaving 1536 pages of 2 MiB over nodes 0-1: node 1 needs 768, has 758 free, short by 10 (20 MiB)",
            "host_nodes=0-1,policy=bind, or host_nodes=0-1,policy=preferred, or: echo 768 | sudo tee /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages",
        )
    );
    let (message, fix) = told(
        &fixture("memory-only-node"),
        "4G,hugepages=on,policy=interleave",
    );
    assert_eq!(
        message,
        "Interleaving 2048 pages of 2 MiB over nodes 0-2: node 0 needs 683, has 512 free, short by 171 (342 MiB); node 1 needs 683, has 500 free, short by 183 (366 MiB)"
    );
    assert!(
        fix.contains("echo 683 | sudo tee /sys/devices/system/node/node0/")
            && fix.contains("; echo 695 | sudo tee /sys/devices/system/node/node1/"),
        "{fix}"
    );
}

#[test]
fn the_page_that_is_left_over_is_on_the_first_node() {
    let host = fixture("two-sockets-uneven");
    let plan = planned(&host, &["2050M,hugepages=on,policy=interleave"]);
    let shares: Vec<_> = plan.extents().flat_map(|extent| extent.shares()).collect();
    let pages: Vec<_> = shares
        .iter()
        .map(|(node, len)| (*node, len.pages()))
        .collect();
    assert_eq!(pages, [(0, 513), (1, 512)]);
}

#[test]
fn ordinary_memory_is_interleaved_too() {
    let host = fixture("two-sockets-uneven");
    let plan = planned(&host, &["1G,hugepages=off,policy=interleave"]);
    assert_eq!(extents(&plan), [extent(0, "0-1", 1 << 18)]);
    assert!(
        plan.extents()
            .all(|extent| extent.backing() == Backing::Thp)
    );
    assert_eq!(plan.workers().len(), 8);
}

#[test]
fn hugepages_that_are_short_on_the_nodes_asked_for_become_ordinary_memory_there() {
    let host = fixture("two-sockets-uneven");
    let plan = planned(&host, &["3G,policy=interleave"]);
    assert!(plan.extents().all(|extent| !extent.backing().is_hugetlb()));
    let [warning] = &warnings(&plan)[..] else {
        panic!("{plan:?}")
    };
    assert!(
        warning.contains("node 1 needs 768, has 758 free"),
        "{warning}"
    );
}

#[test]
fn sixteen_tib_are_interleaved_over_eight_nodes() {
    let plan = planned(
        &fixture("eight-nodes-16t"),
        &["16T,hugepages=on,policy=interleave"],
    );
    assert_eq!(plan.workers().len(), 512);
    let mut bytes: BTreeMap<u32, u64> = BTreeMap::new();
    for (node, len) in plan.extents().flat_map(|extent| extent.shares()) {
        *bytes.entry(node).or_default() += len.bytes();
    }
    assert!(
        bytes
            .values()
            .all(|bytes| bytes.abs_diff(2 * TIB) <= 8 << 21),
        "{bytes:?}"
    );
}

#[test]
fn every_node_of_a_list_has_to_be_there() {
    let host = fixture("sparse-node-ids");
    let refused = |spec: &str| {
        let error = plan(&host, &eager(&[spec])).unwrap_err();
        (error.class(), error.to_string())
    };
    assert_eq!(
        refused("1G,host_nodes=0-3"),
        (
            Class::Usage,
            "There is no NUMA node 1; the nodes with memory are 0,2-3".to_owned()
        )
    );
    let host = fixture("cpu-only-node");
    let error = plan(&host, &eager(&["1G,host_nodes=0-1,policy=interleave"])).unwrap_err();
    assert_eq!(
        (error.class(), error.to_string().as_str()),
        (
            Class::Usage,
            "NUMA node 1 has no memory; the nodes with memory are 0"
        )
    );
    // Without a list it is the nodes with memory that take turns.
    let plan = planned(&host, &["1G,hugepages=on,policy=interleave"]);
    assert_eq!(extents(&plan), [extent(0, "0", 512)]);
}
