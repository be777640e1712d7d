//! Requests, hosts that are not quite this one, and memory in the state a test starts from.
#![allow(dead_code, reason = "every test file starts from another state")]

use prezero_memory::{
    ClearRequest, Cleared, Control, GuestRam, Host, PageSize, Plan, PopulateReport, Populated,
    Prealloc, Request, Reserved, Workers, Zeroed, plan,
};

/// The page size of these tests, in bytes.
pub(crate) const PAGE: u64 = 2 << 20;

/// Zones as they are typed, populated before KVM sees them.
pub(crate) fn eager(zones: &[&str]) -> Request {
    Request {
        zones: zones
            .iter()
            .map(|zone| zone.parse().expect("a SPEC"))
            .collect(),
        prealloc: Prealloc::Eager,
        ..Request::default()
    }
}

/// Zones as they are typed, for the guest to touch.
pub(crate) fn on_touch(zones: &[&str]) -> Request {
    Request {
        prealloc: Prealloc::Off,
        ..eager(zones)
    }
}

/// A zone of so many 2 MiB hugepages.
pub(crate) fn huge(pages: u64) -> String {
    format!("size={}M,hugepages=on,hugepage_size=2M", pages * 2)
}

/// The plan of a request on this machine.
pub(crate) fn planned(request: &Request) -> Plan {
    plan(&Host::probe(), request).expect("this machine can")
}

/// The plan of a request on this machine as if it had one node only, so that there is one count of what is done.
pub(crate) fn planned_on_one_node(request: &Request) -> Plan {
    let mut host = Host::probe();
    host.nodes.truncate(1);
    let pools = &host.pools;
    for pool in &mut host.nodes[0].pools {
        pool.free = pools
            .iter()
            .find(|of_host| of_host.page_size == pool.page_size)
            .map_or(0, |of_host| of_host.free);
    }
    plan(&host, request).expect("this machine can")
}

/// This machine, saying that `pages` hugepages of 2 MiB are free, on every node.
pub(crate) fn host_claiming(pages: u64) -> Host {
    let mut host = Host::probe();
    for pool in &mut host.pools {
        if pool.page_size == PageSize::HUGE_2M {
            (pool.total, pool.free, pool.reserved) = (pages, pages, 0);
        }
    }
    for pool in host.nodes.iter_mut().flat_map(|node| &mut node.pools) {
        if pool.page_size == PageSize::HUGE_2M {
            (pool.total, pool.free) = (pages, pages);
        }
    }
    host
}

/// This machine with its first node twice, each saying that it has `pages` hugepages of 2 MiB free: a
/// larger zone is shared out between the two and has two extents. The second node's number comes with it.
pub(crate) fn host_with_a_second_node(pages: u64) -> (Host, u32) {
    let mut host = Host::probe();
    host.nodes.truncate(1);
    for pool in &mut host.nodes[0].pools {
        pool.free = pages;
    }
    let mut second = host.nodes[0].clone();
    second.id += 1;
    let id = second.id;
    host.nodes.push(second);
    host.allowed_nodes = host.nodes.iter().map(|node| node.id).collect();
    (host, id)
}

pub(crate) fn reserved(plan: &Plan) -> GuestRam<Reserved> {
    GuestRam::reserve(plan).expect("what was planned can be reserved")
}

/// All of it populated, by threads that are gone again.
pub(crate) fn populated(plan: &Plan) -> (GuestRam<Populated>, PopulateReport) {
    let workers = Workers::start(plan.workers()).expect("a few threads");
    reserved(plan)
        .populate(&workers, &Control::default())
        .expect("what is reserved can be populated")
}

/// Nothing of it is dirty, so that nothing is cleared.
pub(crate) fn cleared(plan: &Plan, ram: GuestRam<Populated>) -> GuestRam<Cleared> {
    let workers = Workers::start(plan.workers()).expect("a few threads");
    let (ram, report) = ram
        .clear(&workers, &ClearRequest::default(), &Control::default())
        .expect("nothing stops it");
    assert_eq!(report.bytes, 0);
    ram
}

pub(crate) fn zeroed(plan: &Plan) -> GuestRam<Zeroed> {
    let (ram, _) = cleared(plan, populated(plan).0)
        .check_placement(&Control::default())
        .expect("on the right nodes");
    ram
}

/// Whether every byte of a mapped range reads as zero.
pub(crate) fn reads_as_zero(addr: u64, len: u64) -> bool {
    (addr..addr + len).step_by(8).all(|addr| {
        // SAFETY: the caller's range is mapped, readable and a multiple of 8 bytes.
        unsafe { (addr as *const u64).read_volatile() == 0 }
    })
}

/// Fills a mapped range with ones, as a guest might.
pub(crate) fn scribble(addr: u64, len: u64) {
    // SAFETY: the caller's range is mapped and writable, and no reference into it exists.
    unsafe {
        std::ptr::write_bytes(
            addr as *mut u8,
            0xff,
            usize::try_from(len).expect("64 bits"),
        )
    };
}

/// The CPUs that are online and that the calling thread may run on.
pub(crate) fn cpus() -> Vec<u32> {
    let host = Host::probe();
    let online = host.nodes.iter().flat_map(|node| node.cpus.iter());
    online
        .filter(|cpu| host.allowed_cpus.contains(*cpu))
        .collect()
}
