//! The machines under `tests/fixtures/hosts` are planned as a person would plan them.

mod planning;

use std::collections::BTreeMap;

use planning::{eager, fixture};
use prezero_memory::{
    Backing, Class, Host, IdSet, PageSize, Plan, PlanError, PlanWarning, Prealloc, Request, plan,
};

const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// Pages by node.
fn pages(plan: &Plan) -> BTreeMap<u32, u64> {
    let mut pages = BTreeMap::new();
    for extent in plan.extents() {
        *pages.entry(extent.node()).or_default() += extent.len().pages();
    }
    pages
}

/// The CPUs of the workers of a node.
fn cpus(plan: &Plan, node: u32) -> IdSet {
    let of_node = plan.workers().iter().filter(|worker| worker.node() == node);
    of_node.filter_map(|worker| worker.cpu()).collect()
}

fn ids(list: &str) -> IdSet {
    list.parse().unwrap()
}

#[test]
fn one_node_gets_hugepages_of_the_default_size_on_all_its_cpus() {
    let plan = plan(&fixture("one-node"), &eager(&["1G"])).unwrap();
    let [slot] = plan.slots() else {
        panic!("{plan:?}")
    };
    assert_eq!((slot.slot(), slot.gpa(), slot.len()), (0, 0, GIB));
    assert_eq!(slot.align(), PageSize::HUGE_2M);
    let [extent] = slot.extents() else {
        panic!("{plan:?}")
    };
    assert_eq!(
        (extent.backing(), extent.page_size()),
        (Backing::Memfd, PageSize::HUGE_2M)
    );
    assert_eq!((extent.node(), extent.bound()), (0, false));
    assert_eq!((plan.workers().len(), cpus(&plan, 0)), (2, ids("0-1")));
    assert_eq!(plan.warnings(), []);
}

#[test]
fn without_prealloc_nobody_populates() {
    let request = Request {
        prealloc: Prealloc::Off,
        ..eager(&["1G"])
    };
    let plan = plan(&fixture("one-node"), &request).unwrap();
    assert_eq!((plan.bytes(), plan.workers()), (GIB, &[][..]));
}

#[test]
fn a_pool_that_is_too_small_means_ordinary_memory_and_a_warning_that_says_why() {
    let plan = plan(&fixture("one-node"), &eager(&["2G"])).unwrap();
    let backings: Vec<Backing> = plan.extents().map(|extent| extent.backing()).collect();
    assert_eq!(backings, [Backing::Thp]);
    let [PlanWarning::Ordinary { shortage }] = plan.warnings() else {
        panic!("{:?}", plan.warnings())
    };
    let PlanError::Short(shortage) = &**shortage else {
        panic!("{shortage:?}")
    };
    assert_eq!(
        (shortage.needed, shortage.available, shortage.node),
        (1024, 512, None)
    );
}

#[test]
fn ordinary_memory_is_on_base_pages_where_there_are_no_transparent_hugepages() {
    let plan = plan(&fixture("eight-nodes-16t"), &eager(&["1G,hugepages=off"])).unwrap();
    assert!(
        plan.extents()
            .all(|extent| extent.backing() == Backing::Base)
    );
}

#[test]
fn memory_that_one_node_can_hold_stays_on_the_node_with_the_most_free_pages() {
    let plan = plan(&fixture("two-sockets-uneven"), &eager(&["2G"])).unwrap();
    assert_eq!(pages(&plan), [(0, 1024)].into());
    assert_eq!(cpus(&plan, 0), ids("0-3"));
    assert_eq!(plan.workers().len(), 4);
}

#[test]
fn memory_that_no_node_can_hold_is_split_in_proportion_to_the_free_pages() {
    let plan = plan(&fixture("two-sockets-uneven"), &eager(&["3G,hugepages=on"])).unwrap();
    // 1536 of 2048 free pages: three quarters of 1290 and of 758.
    assert_eq!(pages(&plan), [(0, 968), (1, 568)].into());
    assert_eq!((cpus(&plan, 0), cpus(&plan, 1)), (ids("0-3"), ids("4-7")));
    let [slot] = plan.slots() else {
        panic!("{plan:?}")
    };
    assert_eq!(slot.len(), 3 * GIB);
    assert!(slot.extents().iter().all(|extent| !extent.bound()));
}

#[test]
fn threads_follow_the_bytes_of_the_nodes() {
    let request = Request {
        threads: Some(8),
        ..eager(&["size=1G,host_numa_node=1", "size=2G,host_numa_node=0"])
    };
    let plan = plan(&fixture("two-sockets-uneven"), &request);
    // One for each node, and six more shared out one to two.
    let plan = plan.unwrap();
    let of_node = |node| {
        plan.workers()
            .iter()
            .filter(|worker| worker.node() == node)
            .count()
    };
    assert_eq!((of_node(0), of_node(1)), (5, 3));
}

#[test]
fn sixteen_tib_use_every_cpu_of_every_node_and_no_slot_reaches_8_tib() {
    let host = fixture("eight-nodes-16t");
    let plan = plan(&host, &eager(&["16T,hugepages=on"])).unwrap();
    assert_eq!(plan.bytes(), 16 * TIB);
    assert!(plan.slots().iter().all(|slot| slot.len() < 8 * TIB));
    assert_eq!(
        plan.slots().iter().map(|slot| slot.len()).sum::<u64>(),
        16 * TIB
    );
    // An AMD host: below 3 GiB, below 1012 GiB, and above 1 TiB one slot of KVM's largest size and the rest.
    let starts: Vec<u64> = plan.slots().iter().map(|slot| slot.gpa()).collect();
    assert_eq!(starts, [0, 4 * GIB, TIB, 9 * TIB - (2 << 20)]);
    assert_eq!(pages(&plan), (0..8).map(|node| (node, TIB >> 20)).collect());
    assert_eq!(plan.workers().len(), 512);
    for node in &host.nodes {
        assert_eq!(cpus(&plan, node.id), node.cpus);
    }
    assert_eq!(plan.warnings(), []);
}

#[test]
fn a_node_without_cpus_is_populated_from_the_nearest_one() {
    let host = fixture("sparse-node-ids");
    let plan = plan(&host, &eager(&["16G,hugepages=on,host_numa_node=3"])).unwrap();
    assert_eq!(pages(&plan), [(3, 8192)].into());
    assert!(plan.extents().all(|extent| extent.bound()));
    // Node 2 is at distance 14, node 0 at 24; a CPU quota of 3.5 allows four workers.
    assert_eq!((cpus(&plan, 3), plan.workers().len()), (ids("4-7"), 4));
    assert!(plan.workers().iter().all(|worker| worker.remote()));
    assert_eq!(plan.warnings(), [PlanWarning::RemoteWorkers { node: 3 }]);
}

#[test]
fn only_cpus_that_the_process_may_use_work_and_no_more_than_its_quota() {
    let host = fixture("sparse-node-ids");
    let on = |spec: &str| plan(&host, &eager(&[spec])).unwrap();
    // CPU 0 is not allowed.
    let one = on("2G,hugepages=on,host_numa_node=0");
    assert_eq!((cpus(&one, 0), one.workers().len()), (ids("1-3"), 3));
    let all = on("24G,hugepages=on");
    assert_eq!(pages(&all).len(), 3);
    assert_eq!(all.workers().len(), 4);
}

#[test]
fn a_node_id_in_a_gap_is_refused_with_the_ids_there_are() {
    let error = plan(
        &fixture("sparse-node-ids"),
        &eager(&["1G,host_numa_node=1"]),
    )
    .unwrap_err();
    let valid = ids("0,2-3");
    assert_eq!(error, PlanError::NoSuchNode { node: 1, valid });
    assert_eq!(error.class(), Class::Usage);
}

/// The machine without `/sys`, with a kernel that can populate.
fn no_sys() -> Host {
    let mut host = fixture("no-sys");
    host.kernel.release = "6.1.0-35-cloud-amd64".to_owned();
    host
}

#[test]
fn without_sys_workers_are_not_pinned_and_nothing_fails() {
    let plan = plan(&no_sys(), &eager(&["1G"])).unwrap();
    assert_eq!(pages(&plan), [(0, 512)].into());
    assert_eq!(plan.workers().len(), 5);
    assert!(
        plan.workers()
            .iter()
            .all(|worker| worker.cpu().is_none() && !worker.remote())
    );
    assert_eq!(plan.warnings(), [PlanWarning::Unpinned]);
}

/// Case 26: 1000 pages are free, 300 of them promised to others, and 16 may be added.
#[test]
fn reserved_pages_are_not_available() {
    let exact = Request {
        zones: vec!["1432M,hugepages=on".parse().unwrap()],
        ..Request::default()
    };
    assert_eq!(pages(&plan(&no_sys(), &exact).unwrap()), [(0, 716)].into());
    let error = plan(&no_sys(), &eager(&["1434M,hugepages=on"])).unwrap_err();
    let PlanError::Short(shortage) = error else {
        panic!("{error}")
    };
    assert_eq!(
        (shortage.needed, shortage.available, shortage.total),
        (717, 716, 1024)
    );
}

#[test]
fn a_kernel_that_cannot_populate_can_still_leave_it_to_the_guest() {
    let host = fixture("no-sys");
    let error = plan(&host, &eager(&["1G"])).unwrap_err();
    assert_eq!(error.class(), Class::Host);
    let request = Request {
        prealloc: Prealloc::Off,
        ..eager(&["1G"])
    };
    assert_eq!(plan(&host, &request).unwrap().bytes(), GIB);
}

#[test]
fn a_size_that_the_default_hugepage_does_not_divide_gets_the_next_smaller_one() {
    let mut host = fixture("sparse-node-ids");
    host.default_hugepage_size = Some(PageSize::HUGE_1G);
    let page = |spec: &str| {
        let plan = plan(&host, &eager(&[spec])).unwrap();
        plan.extents()
            .map(|extent| extent.page_size())
            .collect::<Vec<_>>()
    };
    assert_eq!(page("1G,hugepages=on"), [PageSize::HUGE_1G]);
    assert_eq!(page("1536M,hugepages=on"), [PageSize::HUGE_2M]);
}
