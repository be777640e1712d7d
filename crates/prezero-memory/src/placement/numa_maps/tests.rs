use std::path::Path;

use super::*;
use crate::{Class, Host, Plan, Prealloc, Request, plan};

/// Extents on a machine of two nodes, mapped from these addresses on.
fn planned(specs: &[&str]) -> Plan {
    let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/hosts");
    let request = Request {
        zones: specs.iter().map(|spec| spec.parse().unwrap()).collect(),
        prealloc: Prealloc::Eager,
        ..Request::default()
    };
    plan(&Host::read(&hosts.join("two-sockets-uneven")), &request).unwrap()
}

fn counted(text: &str, addrs: &[u64], specs: &[&str]) -> Result<Placement, PlacementError> {
    let plan = planned(specs);
    let extents: Vec<&Extent> = plan.extents().collect();
    assert_eq!(extents.len(), addrs.len(), "{extents:?}");
    let extents: Vec<_> = addrs.iter().copied().zip(extents).collect();
    count(text, &extents)
}

// As `show_numa_map` in fs/proc/task_mmu.c writes it on a machine of two nodes.
const WRITTEN: &str = "\
55d0c1a00000 default file=/usr/bin/prezero mapped=212 mapmax=2 N0=100 N1=112 kernelpagesize_kB=4
55d0c2f31000 default heap anon=41 dirty=41 active=0 N0=41 kernelpagesize_kB=4
7f8a00000000 bind:1 file=/memfd:prezero-ram\\040(deleted) huge dirty=32 N1=32 kernelpagesize_kB=2048
7f8a04000000 interleave:0-1 file=/memfd:prezero-ram\\040(deleted) huge dirty=33 N0=17 N1=16 kernelpagesize_kB=2048
7f8a10000000 interleave:0-1 anon=1536 dirty=1536 active=0 N0=1024 N1=512 kernelpagesize_kB=4
7f8a20000000 default
7ffc1b8e4000 default stack anon=5 dirty=5 N1=5 kernelpagesize_kB=4
";

#[test]
fn a_line_is_an_address_and_counts_and_anything_else_is_passed_over() {
    let line = WRITTEN.lines().nth(2).unwrap();
    assert_eq!(
        mapping(line),
        Some(Mapping {
            start: 0x7f8a_0000_0000,
            page_bytes: 2 << 20,
            pages: [(1, 32)].into(),
        })
    );
    let untouched = mapping("7f8a20000000 default").unwrap();
    assert_eq!((untouched.page_bytes, untouched.pages.len()), (4096, 0));
    let odd = mapping("1000 default file=/a=b N0=x Nx=3 N1=7 mapped=9").unwrap();
    assert_eq!(odd.pages, [(1, 7)].into());
    for line in ["", "x", "12 34 =", "zz default N0=1"] {
        let _ = mapping(line);
    }
    assert_eq!(mapping(""), None);
}

#[test]
fn pages_where_they_are_planned_are_counted() {
    let placement = counted(
        WRITTEN,
        &[0x7f8a_0000_0000, 0x7f8a_0400_0000, 0x7f8a_1000_0000],
        &[
            "64M,hugepages=on,host_numa_node=1",
            "66M,hugepages=on,policy=interleave",
            "6M,hugepages=off,policy=interleave",
        ],
    )
    .unwrap();
    assert_eq!(placement.by, CheckedBy::NumaMaps);
    assert_eq!(placement.checked_pages, 32 + 33 + 1536);
    assert_eq!((placement.misplaced_pages, placement.absent_pages), (0, 0));
}

#[test]
fn bound_pages_on_another_node_are_an_error_and_others_are_counted() {
    let elsewhere = WRITTEN.replace("N1=32", "N0=3 N1=29");
    let error = counted(
        &elsewhere,
        &[0x7f8a_0000_0000],
        &["64M,hugepages=on,host_numa_node=1"],
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "3 of 32 pages bound to node 1 are elsewhere, from guest address 0x0 on; they are on nodes 0-1 (/proc/self/numa_maps)"
    );
    assert_eq!(error.class(), Class::Shortage);
    let uneven = WRITTEN.replace("N0=17 N1=16", "N0=20 N1=13");
    let spec = "66M,hugepages=on,policy=interleave";
    let placement = counted(&uneven, &[0x7f8a_0400_0000], &[spec]).unwrap();
    assert_eq!(placement.misplaced_pages, 3);
    assert!(placement.warning().unwrap().starts_with("3 of 33 pages"));
}

#[test]
fn hugepages_that_are_not_there_are_an_error() {
    let spec = "64M,hugepages=on,host_numa_node=1";
    let fewer = WRITTEN.replace("N1=32", "N1=30");
    let error = counted(&fewer, &[0x7f8a_0000_0000], &[spec]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "2 of 32 populated pages of 2 MiB are gone, from guest address 0x0 on (/proc/self/numa_maps)"
    );
}

#[test]
fn extents_in_one_mapping_are_counted_together() {
    // Two zones whose mappings the kernel merged, and 10 pages that are somebody else's.
    let text = "7f0000000000 default anon=1034 N0=1034 kernelpagesize_kB=4\n";
    let zones = ["2M,hugepages=off,id=a", "2M,hugepages=off,id=b"];
    let node = planned(&zones).extents().next().unwrap().node();
    let text = text.replace("N0", &format!("N{node}"));
    let placement = counted(&text, &[0x7f00_0000_0000, 0x7f00_0020_0000], &zones).unwrap();
    assert_eq!(
        (placement.checked_pages, placement.misplaced_pages),
        (1024, 0)
    );
}

#[test]
fn ordinary_memory_is_as_planned_only_if_the_counts_are_exact() {
    let plan = planned(&["6M,hugepages=off,policy=interleave"]);
    let extents: Vec<(u64, &Extent)> = plan.extents().map(|e| (0x7f8a_1000_0000, e)).collect();
    assert!(are_as_planned(WRITTEN, &extents, 1536));
    for odd in ["N0=1024 N1=511", "N0=1024 N1=513", "N0=1024 N2=512", ""] {
        let text = WRITTEN.replace("N0=1024 N1=512", odd);
        assert!(!are_as_planned(&text, &extents, 1536), "{odd}");
    }
}

#[test]
fn what_the_file_does_not_have_is_unchecked_and_said_to_be() {
    let spec = "64M,hugepages=on,host_numa_node=1";
    for text in ["", "7f8a20000000 default\n", "7f0000000000 default\n"] {
        let placement = counted(text, &[0x7f8a_0000_0000], &[spec]).unwrap();
        assert_eq!(placement.checked_pages, 0, "{text}");
        assert_eq!(placement.unchecked_pages, 32, "{text}");
        let warning = placement.warning();
        assert!(warning.is_some_and(|text| text.contains("32 pages were not checked")));
    }
}
