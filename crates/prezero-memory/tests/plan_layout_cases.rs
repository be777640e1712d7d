//! Reports about the guest's address space, its hole and its end, and what the planner answers.

mod planning;

use planning::{eager, fixture};
use prezero_memory::{Class, Host, LayoutError, PageSize, PlanError, Request, plan};

const GIB: u64 = 1 << 30;

/// Guest address and length of each slot, in GiB.
fn slots(host: &Host, specs: &[&str]) -> Vec<(u64, u64)> {
    let plan = plan(host, &eager(specs)).unwrap();
    let slots = plan.slots().iter();
    slots
        .map(|slot| (slot.gpa() / GIB, slot.len() / GIB))
        .collect()
}

// cloud-hypervisor#5463: 1 GiB pages and the hole at 3 GiB.

/// The machine with sparse node ids and `pages` free pages of 1 GiB on node 0.
fn with_gigantic_pages(pages: u64) -> Host {
    let mut host = fixture("sparse-node-ids");
    for pool in host
        .pools
        .iter_mut()
        .filter(|pool| pool.page_size == PageSize::HUGE_1G)
    {
        (pool.total, pool.free) = (pages, pages);
    }
    for node in &mut host.nodes {
        let mine = if node.id == 0 { pages } else { 0 };
        for pool in node
            .pools
            .iter_mut()
            .filter(|pool| pool.page_size == PageSize::HUGE_1G)
        {
            (pool.total, pool.free) = (mine, mine);
        }
    }
    host
}

#[test]
fn gigantic_pages_are_split_at_the_hole_on_a_page_boundary() {
    let host = with_gigantic_pages(64);
    let gigantic = |size: &str| format!("{size},hugepages=on,hugepage_size=1G");
    assert_eq!(slots(&host, &[&gigantic("3G")]), [(0, 3)]);
    assert_eq!(slots(&host, &[&gigantic("4G")]), [(0, 3), (4, 1)]);
    assert_eq!(slots(&host, &[&gigantic("64G")]), [(0, 3), (4, 61)]);
    // Behind a zone of half a GiB the next boundary is at 1 GiB.
    let behind = ["512M,hugepages=on,hugepage_size=2M", &gigantic("3G")];
    assert_eq!(slots(&host, &behind), [(0, 0), (1, 2), (4, 1)]);
}

#[test]
fn sizes_that_are_not_whole_pages_are_refused_with_the_nearest_that_are() {
    let host = with_gigantic_pages(64);
    for (spec, fix) in [
        ("3584M,hugepages=on,hugepage_size=1G", "size=3G or size=4G"),
        ("3584M,hugepage_size=1G", "size=3G or size=4G"),
        ("512M,hugepages=on,hugepage_size=1G", "size=1G"),
        (
            "4097M,hugepages=on,hugepage_size=2M",
            "size=4G or size=4098M",
        ),
        ("1M,hugepages=on", "size=2M"),
        ("4097,hugepages=off", "size=4K or size=8K"),
    ] {
        let error = plan(&host, &eager(&[spec])).unwrap_err();
        assert!(
            matches!(error, PlanError::NotWholePages { .. }),
            "{spec}: {error}"
        );
        assert_eq!(error.class(), Class::Usage, "{spec}");
        assert_eq!(error.fix().as_deref(), Some(fix), "{spec}");
    }
}

// incus#2234, Cloud Hypervisor PR 8279: RAM above the physical address bits, guests of 16 TiB.

#[test]
fn memory_above_the_address_bits_is_refused_with_the_bits_and_the_maximum() {
    let two_sockets = fixture("two-sockets-uneven");
    let eight_nodes = fixture("eight-nodes-16t");
    for (host, spec, text) in [
        (
            &two_sockets,
            "64T",
            "Guest memory of 64 TiB does not fit below the host's 46 physical address bits: at most 65535 GiB with the hole at 3 GiB",
        ),
        (
            &eight_nodes,
            "4096T,hugepages=on",
            "Guest memory of 4096 TiB does not fit below the host's 52 physical address bits: at most 4194291 GiB with the holes at 3 GiB and 1012 GiB",
        ),
    ] {
        // There are not enough pages either, but more of them would not help.
        let error = plan(host, &eager(&[spec])).unwrap_err();
        assert_eq!(
            (error.to_string().as_str(), error.class()),
            (text, Class::Usage)
        );
    }
}

#[test]
fn the_maximum_is_the_largest_size_that_has_a_place() {
    let mut host = fixture("one-node");
    for (vendor, bits, max) in [
        ("GenuineIntel", 36, 63),
        ("AuthenticAMD", 36, 63),
        ("GenuineIntel", 40, 1023),
        ("AuthenticAMD", 40, 1011),
        ("AuthenticAMD", 48, (256 << 10) - 13),
    ] {
        host.cpu.vendor = vendor.to_owned();
        host.cpu.phys_addr_bits = Some(bits);
        let request = |gib: u64| Request {
            zones: vec![format!("{gib}G,hugepages=off").parse().unwrap()],
            ..Request::default()
        };
        let planned = plan(&host, &request(max)).unwrap();
        let end = planned
            .slots()
            .last()
            .map_or(0, |slot| slot.gpa() + slot.len());
        assert!(end <= 1 << bits, "{vendor} {bits}");
        let error = plan(&host, &request(max + 1)).unwrap_err();
        let PlanError::Layout(LayoutError::BeyondAddressBits { max: said, .. }) = error else {
            panic!("{error}")
        };
        assert_eq!(said, max * GIB, "{vendor} {bits}");
    }
}

#[test]
fn the_maximum_counts_what_alignment_between_zones_costs() {
    let mut host = with_gigantic_pages(64);
    host.cpu.phys_addr_bits = Some(36);
    let half = "512M,hugepages=on,hugepage_size=2M";
    let most = "62G,hugepages=on,hugepage_size=1G";
    let error = plan(&host, &eager(&[half, most, half])).unwrap_err();
    let PlanError::Layout(LayoutError::BeyondAddressBits { bytes, max, .. }) = error else {
        panic!("{error}")
    };
    assert_eq!((bytes, max), (63 * GIB, 63 * GIB - (512 << 20)));
    assert_eq!(slots(&host, &[half, most]), [(0, 0), (1, 2), (4, 60)]);
}
