//! Reports from people who run large machines, and what the planner answers.

mod planning;

use planning::{eager, fixture};
use prezero_memory::{
    Backing, Class, Host, IdSet, MemorySpec, NodeChoice, PageSize, PlanError, Request, Shortage,
    plan,
};

const GIB: u64 = 1 << 30;

/// Node and pages of each extent.
fn extents(host: &Host, specs: &[&str]) -> Vec<(u32, u64)> {
    let plan = plan(host, &eager(specs)).unwrap();
    let extents = plan.extents();
    extents
        .map(|extent| (extent.node(), extent.len().pages()))
        .collect()
}

/// Choices of nodes as they are typed.
fn choices(typed: &[&str]) -> Vec<NodeChoice> {
    let choice = |text: &&str| format!("1G,{text}").parse::<MemorySpec>().unwrap().nodes;
    typed.iter().filter_map(choice).collect()
}

// kubevirt#6981: node 0 has 1290 free pages, node 1 has 758.

#[test]
fn a_node_that_is_short_is_named_with_the_numbers_and_with_the_node_that_is_not() {
    let host = fixture("two-sockets-uneven");
    let error = plan(&host, &eager(&["2G,hugepages=on,host_numa_node=1"])).unwrap_err();
    assert_eq!(
        error,
        PlanError::Short(Shortage {
            page: PageSize::HUGE_2M,
            node: Some(1),
            needed: 1024,
            zones: 1,
            available: 758,
            total: 758,
            elsewhere: Some((0, 1290)),
            choices: choices(&[
                "host_nodes=1,policy=preferred",
                "host_nodes=0-1,policy=interleave"
            ]),
            memory: host.mem_available,
        })
    );
    assert_eq!(error.class(), Class::Shortage);
    assert_eq!(
        error.to_string(),
        "Node 1 needs 1024 pages of 2 MiB, has 758 free, short by 266 (532 MiB); node 0 has 1290 free"
    );
    assert_eq!(
        error.fix().as_deref(),
        Some(
            "host_numa_node=0, or host_nodes=1,policy=preferred, or host_nodes=0-1,policy=interleave, or: echo 1024 | sudo tee /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages"
        )
    );
    assert_eq!(
        extents(&host, &["2G,hugepages=on,host_numa_node=0"]),
        [(0, 1024)]
    );
}

#[test]
fn another_node_is_offered_down_to_its_last_page_and_no_further() {
    let host = fixture("two-sockets-uneven");
    for (spec, short, elsewhere) in [
        ("2580M,hugepages=on,host_numa_node=1", 532, Some((0, 1290))),
        ("2582M,hugepages=on,host_numa_node=1", 533, None),
        ("3G,hugepages=on,host_numa_node=0", 246, None),
    ] {
        let error = plan(&host, &eager(&[spec])).unwrap_err();
        let PlanError::Short(shortage) = error else {
            panic!("{error}")
        };
        assert_eq!(
            (shortage.short(), shortage.elsewhere),
            (short, elsewhere),
            "{spec}"
        );
    }
}

#[test]
fn zones_on_one_node_are_short_by_what_they_need_together() {
    let host = fixture("two-sockets-uneven");
    let zone = "1G,hugepages=on,host_numa_node=1";
    for (zones, needed, short) in [(2, 1024, 266), (3, 1536, 778)] {
        let error = plan(&host, &eager(&vec![zone; zones])).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "Node 1 needs {needed} pages of 2 MiB for {zones} zones, has 758 free, short by {short} ({} MiB); node 0 has 1290 free",
                short * 2
            )
        );
        let PlanError::Short(shortage) = error else {
            panic!("{error}")
        };
        // The other node has room for the zone that did not fit.
        assert_eq!(shortage.elsewhere, Some((0, 1290)));
    }
    // With what is missing, all of them fit.
    let mut grown = host;
    grown.nodes[1].pools[0].free += 266;
    grown.pools[0].free += 266;
    assert_eq!(extents(&grown, &[zone, zone]), [(1, 512), (1, 512)]);
}

#[test]
fn a_zone_that_can_go_anywhere_leaves_the_pages_to_one_that_cannot() {
    let host = fixture("two-sockets-uneven");
    // Alone, the first would be on node 0, which has the most.
    let specs = ["1G,hugepages=on", "2G,hugepages=on,host_numa_node=0"];
    assert_eq!(extents(&host, &specs), [(1, 512), (0, 1024)]);
}

#[test]
fn a_zone_that_can_do_without_hugepages_leaves_them_to_one_that_cannot() {
    let host = fixture("one-node");
    let plan = plan(&host, &eager(&["1G", "1G,hugepages=on"])).unwrap();
    let backings: Vec<Backing> = plan.extents().map(|extent| extent.backing()).collect();
    assert_eq!(backings, [Backing::Thp, Backing::Memfd]);
}

// numactl#223: a node that exists, outside the cpuset.

/// The machine of two sockets, with node 1 outside the cpuset.
fn in_a_cpuset() -> Host {
    let mut host = fixture("two-sockets-uneven");
    host.allowed_nodes = IdSet::from_iter([0]);
    host
}

#[test]
fn a_node_outside_the_cpuset_is_refused_as_such() {
    let error = plan(&in_a_cpuset(), &eager(&["1G,host_numa_node=1"])).unwrap_err();
    assert!(
        matches!(error, PlanError::NodeNotAllowed { node: 1, .. }),
        "{error}"
    );
    assert_eq!(error.class(), Class::Host);
}

#[test]
fn pages_outside_the_cpuset_do_not_count() {
    let host = in_a_cpuset();
    assert_eq!(extents(&host, &["2580M,hugepages=on"]), [(0, 1290)]);
    let error = plan(&host, &eager(&["3G,hugepages=on"])).unwrap_err();
    let PlanError::Short(shortage) = error else {
        panic!("{error}")
    };
    assert_eq!((shortage.needed, shortage.available), (1536, 1290));
    // The kernel adds surplus pages only where the whole host has too few.
    let mut host = host;
    for pool in &mut host.pools {
        pool.overcommit = 1000;
    }
    assert!(plan(&host, &eager(&["3G,hugepages=on"])).is_err());
}

#[test]
fn all_of_the_ordinary_memory_that_is_available_can_be_populated_and_not_a_page_more() {
    let mut host = fixture("one-node");
    host.mem_available = Some(GIB);
    assert!(plan(&host, &eager(&["512M,hugepages=off", "512M,hugepages=off"])).is_ok());
    let error = plan(
        &host,
        &eager(&["512M,hugepages=off", "524292K,hugepages=off"]),
    )
    .unwrap_err();
    let (needed, available) = ((512 << 20) + 4096, 512 << 20);
    let instead_of = None;
    assert_eq!(
        error,
        PlanError::ShortOfMemory {
            needed,
            available,
            instead_of
        }
    );
}

#[test]
fn any_number_of_threads_is_bounded_by_the_pages() {
    let request = Request {
        threads: Some(usize::MAX),
        ..eager(&["64M,hugepages=on"])
    };
    assert_eq!(
        plan(&fixture("one-node"), &request)
            .unwrap()
            .workers()
            .len(),
        32
    );
}
