//! Segments of pools in a plan: which of them a guest gets, where, and what is fresh beside them.

use std::path::Path;

use prezero_memory::{
    Backing, Host, Origin, PageBytes, PageSize, Plan, PlanWarning, Prealloc, Recycled, Request,
    plan,
};

const GIB: u64 = 1 << 30;

fn host(name: &str) -> Host {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/hosts");
    Host::read(&root.join(name))
}

fn segment(gib: u64, node: u32, origin: Origin) -> Recycled {
    let len = PageBytes::new(gib * GIB, PageSize::HUGE_2M).expect("whole pages");
    Recycled { len, node, origin }
}

fn planned(host: &Host, zone: &str, recycled: &[Recycled], prealloc: Prealloc) -> Plan {
    let request = Request {
        zones: vec![zone.parse().expect("a spec")],
        prealloc,
        recycled: recycled.to_vec(),
        ..Request::default()
    };
    plan(host, &request).expect("the host has enough")
}

/// GiB, segment and offset in GiB, origin.
type Piece = (u64, Option<(usize, u64)>, Origin);

/// In the order of guest addresses.
fn pieces(plan: &Plan) -> Vec<Piece> {
    let extents = plan.extents();
    extents
        .map(|extent| {
            let segment = extent.segment().map(|(n, at)| (n, at / GIB));
            assert_eq!(segment.is_some(), extent.backing() == Backing::Pool);
            (extent.len().bytes() / GIB, segment, extent.origin())
        })
        .collect()
}

/// A host with many free pages of 2 MiB on each of its two nodes.
fn two_nodes() -> Host {
    let mut host = host("two-sockets-uneven");
    for node in &mut host.nodes {
        for pool in &mut node.pools {
            if pool.page_size == PageSize::HUGE_2M {
                (pool.total, pool.free) = (8192, 8192);
            }
        }
    }
    for pool in &mut host.pools {
        if pool.page_size == PageSize::HUGE_2M {
            (pool.total, pool.free, pool.reserved) = (16384, 16384, 0);
        }
    }
    host
}

#[test]
fn a_segment_on_its_node_is_not_left_to_the_first_touch() {
    let bound = |segments: &[Recycled]| {
        let zone = "2G,hugepages=on,hugepage_size=2M,host_numa_node=1";
        let plan = planned(&two_nodes(), zone, segments, Prealloc::Off);
        plan.warnings()
            .contains(&PlanWarning::BoundOnTouch { node: 1 })
    };
    assert!(bound(&[]) && bound(&[segment(1, 1, Origin::Clean)]));
    assert!(!bound(&[segment(2, 1, Origin::Dirty)]));
}

#[test]
fn segments_are_taken_in_order_and_fresh_pages_fill_up() {
    let all = [segment(2, 0, Origin::Clean), segment(2, 0, Origin::Dirty)];
    let plan = planned(
        &two_nodes(),
        "5G,hugepages=on,hugepage_size=2M",
        &all,
        Prealloc::Eager,
    );
    // The hole at 3 GiB cuts the second one in two.
    assert_eq!(
        pieces(&plan),
        [
            (2, Some((0, 0)), Origin::Clean),
            (1, Some((1, 0)), Origin::Dirty),
            (1, Some((1, 1)), Origin::Dirty),
            (1, None, Origin::Fresh),
        ]
    );
    assert_eq!(plan.slots().len(), 2);
}

#[test]
fn a_segment_is_taken_whole_or_not_at_all() {
    let all = [segment(4, 0, Origin::Clean), segment(1, 0, Origin::Clean)];
    let plan = planned(
        &two_nodes(),
        "2G,hugepages=on,hugepage_size=2M",
        &all,
        Prealloc::Eager,
    );
    assert_eq!(
        pieces(&plan),
        [(1, Some((1, 0)), Origin::Clean), (1, None, Origin::Fresh)]
    );
}

#[test]
fn only_segments_of_the_nodes_asked_for_are_taken() {
    let all = [segment(1, 0, Origin::Clean), segment(1, 1, Origin::Dirty)];
    for (spec, taken) in [
        ("host_numa_node=1", Some((1, 0))),
        ("host_nodes=0,policy=preferred", Some((0, 0))),
        ("host_nodes=0-1,policy=interleave", None),
    ] {
        let zone = format!("1G,hugepages=on,hugepage_size=2M,{spec}");
        let plan = planned(&two_nodes(), &zone, &all, Prealloc::Eager);
        assert_eq!(pieces(&plan)[0].1, taken, "{spec}");
    }
}

#[test]
fn other_page_sizes_ordinary_memory_and_paths_take_none() {
    let all = [segment(1, 0, Origin::Clean)];
    let plan = planned(&two_nodes(), "1G,hugepages=off", &all, Prealloc::Eager);
    assert!(plan.extents().all(|extent| extent.segment().is_none()));
}

#[test]
fn a_guest_of_segments_alone_needs_no_free_page() {
    let mut host = two_nodes();
    for node in &mut host.nodes {
        for pool in &mut node.pools {
            pool.free = 0;
        }
    }
    for pool in &mut host.pools {
        pool.free = 0;
    }
    let all = [segment(1, 0, Origin::Clean)];
    let plan = planned(
        &host,
        "1G,hugepages=on,hugepage_size=2M",
        &all,
        Prealloc::Eager,
    );
    assert_eq!(pieces(&plan), [(1, Some((0, 0)), Origin::Clean)]);
    assert_eq!(plan.largest_file(), 0);
}

#[test]
fn without_prealloc_only_segments_have_workers() {
    let all = [segment(1, 1, Origin::Dirty)];
    let zone = "2G,hugepages=on,hugepage_size=2M";
    let lazy = planned(&two_nodes(), zone, &all, Prealloc::Off);
    assert!(!lazy.workers().is_empty());
    assert!(lazy.workers().iter().all(|worker| worker.node() == 1));
    assert!(
        planned(&two_nodes(), zone, &[], Prealloc::Off)
            .workers()
            .is_empty()
    );
}
