//! The text of every refusal and warning of the planner, and what it advises to type.

mod planning;

use planning::{eager, fixture};
use prezero_host::Cpuset;
use prezero_memory::{Class, Host, IdSet, PageSize, Plan, PlanError, PlanWarning, Request, plan};

fn ids(list: &str) -> IdSet {
    list.parse().unwrap()
}

/// Plans on the fixture, which may be changed first, and returns the refusal.
fn refusal(name: &str, change: fn(&mut Host), request: &Request) -> PlanError {
    let mut host = fixture(name);
    change(&mut host);
    plan(&host, request).unwrap_err()
}

/// The refusal of one zone, as text and advice.
fn told(name: &str, change: fn(&mut Host), spec: &str) -> (String, Option<String>) {
    let error = refusal(name, change, &eager(&[spec]));
    (error.to_string(), error.fix())
}

fn text(message: &str, fix: &str) -> (String, Option<String>) {
    (message.to_owned(), Some(fix.to_owned()))
}

fn as_it_is(_: &mut Host) {}

#[test]
fn nothing_to_plan() {
    let error = refusal("one-node", as_it_is, &Request::default());
    assert_eq!(error, PlanError::Nothing);
    assert_eq!(
        (error.to_string(), error.fix()),
        text("No guest memory was asked for", "--memory 1G")
    );
}

#[test]
fn not_whole_pages() {
    assert_eq!(
        told("one-node", as_it_is, "3M,hugepages=on"),
        text(
            "The size of memory of 3 MiB is not a multiple of 2 MiB",
            "size=2M or size=4M"
        )
    );
    assert_eq!(
        told("one-node", as_it_is, "1M,hugepages=on,id=low"),
        text(
            "The size of memory 'low' of 1 MiB is not a multiple of 2 MiB",
            "size=2M"
        )
    );
}

#[test]
fn a_single_slot_that_is_not_whole_pages_has_no_size_to_advise() {
    let error = Plan::one_slot(1, 0x1000, 4097).unwrap_err();
    assert_eq!(
        error.to_string(),
        "A slot of 4097 bytes at guest address 0x1000 is not a run of 4 KiB pages"
    );
    assert_eq!(error.fix(), None);
    for (gpa, bytes) in [(0x1000, 0), (0x800, 4096), (u64::MAX - 4095, 8192)] {
        assert!(
            Plan::one_slot(1, gpa, bytes).is_err(),
            "{bytes} at {gpa:#x}"
        );
    }
}

#[test]
fn no_place_in_the_address_space() {
    assert_eq!(
        told("two-sockets-uneven", as_it_is, "65536G"),
        text(
            "Guest memory of 64 TiB does not fit below the host's 46 physical address bits: at most 65535 GiB with the hole at 3 GiB",
            "size=65535G or less",
        )
    );
    assert_eq!(
        told("one-node", as_it_is, "1024T"),
        text(
            "Guest memory of 1024 TiB does not fit below the host's 48 physical address bits: at most 262131 GiB with the holes at 3 GiB and 1012 GiB",
            "size=262131G or less",
        )
    );
    let sixteen_gib_pages = |host: &mut Host| {
        host.pools[0].page_size = PageSize::new(16 << 30).unwrap();
        host.nodes[0].pools.clear();
    };
    assert_eq!(
        told(
            "one-node",
            sixteen_gib_pages,
            "16G,hugepages=on,hugepage_size=16G"
        ),
        text(
            "A page of 16 GiB does not fit below the first hole, at 3 GiB",
            "hugepage_size=1G",
        )
    );
}

#[test]
fn no_such_page_size() {
    assert_eq!(
        told("one-node", as_it_is, "1G,hugepages=on,hugepage_size=64K"),
        text(
            "This host has no hugepages of 64 KiB; it has 2 MiB and 1 GiB",
            "leave hugepage_size out, or boot with hugepagesz=64K hugepages=N",
        )
    );
    assert_eq!(
        told(
            "one-node",
            |host| host.pools.clear(),
            "1G,hugepages=on,hugepage_size=2M"
        ),
        text(
            "This host has no hugepages of 2 MiB; it has none",
            "leave hugepage_size out, or boot with hugepagesz=2M hugepages=N",
        )
    );
}

#[test]
fn no_hugepages() {
    let without = |host: &mut Host| {
        host.pools.clear();
        host.default_hugepage_size = None;
    };
    assert_eq!(
        told("one-node", without, "1G,hugepages=on"),
        text("This host's kernel offers no hugepages", "hugepages=off")
    );
}

#[test]
fn too_few_hugepages() {
    assert_eq!(
        told("one-node", as_it_is, "2G,hugepages=on"),
        text(
            "The host needs 1024 pages of 2 MiB, has 512 free, short by 512 (1 GiB)",
            "echo 1024 | sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
        )
    );
    assert_eq!(
        told("one-node", as_it_is, "2G,hugepages=on,host_numa_node=0"),
        text(
            "Node 0 needs 1024 pages of 2 MiB, has 512 free, short by 512 (1 GiB)",
            "echo 1024 | sudo tee /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages",
        )
    );
    assert_eq!(
        told(
            "two-sockets-uneven",
            as_it_is,
            "2G,hugepages=on,host_numa_node=1"
        ),
        text(
            "Node 1 needs 1024 pages of 2 MiB, has 758 free, short by 266 (532 MiB); node 0 has 1290 free",
            "host_numa_node=0, or host_nodes=1,policy=preferred, or host_nodes=0-1,policy=interleave, or: echo 1024 | sudo tee /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages",
        )
    );
}

#[test]
fn too_little_ordinary_memory() {
    assert_eq!(
        told(
            "one-node",
            |host| host.mem_available = Some(6 << 30),
            "8G,hugepages=off"
        ),
        text(
            "Populating takes 8 GiB of ordinary memory, and 6 GiB is available (MemAvailable)",
            "size=6144M or less, or leave --prealloc out",
        )
    );
}

#[test]
fn no_such_node() {
    assert_eq!(
        told("sparse-node-ids", as_it_is, "1G,host_numa_node=1"),
        text(
            "There is no NUMA node 1; the nodes with memory are 0,2-3",
            "host_numa_node=0"
        )
    );
}

#[test]
fn a_node_without_memory() {
    assert_eq!(
        told(
            "sparse-node-ids",
            |host| host.nodes[0].mem_total = Some(0),
            "1G,host_numa_node=0"
        ),
        text(
            "NUMA node 0 has no memory; the nodes with memory are 2-3",
            "host_numa_node=2"
        )
    );
}

#[test]
fn a_node_outside_the_cpuset() {
    let change = |host: &mut Host| host.allowed_nodes = ids("2-3");
    assert_eq!(
        told("sparse-node-ids", change, "1G,host_numa_node=0"),
        text(
            "Node 0 is not in this process's allowed memory nodes (2-3)",
            "host_numa_node=2, or add node 0 to cpuset.mems of this process's cgroup (cat /proc/self/cgroup)",
        )
    );
}

#[test]
fn the_cpuset_that_leaves_a_node_out_is_named() {
    let change = |host: &mut Host| {
        let set = |group: &str, mems| Cpuset {
            file: format!("/sys/fs/cgroup/{group}/cpuset.mems").into(),
            mems: ids(mems),
        };
        host.allowed_nodes = ids("0");
        host.cpusets = vec![set("a/b", ""), set("a", "0"), set("", "0-1")];
    };
    let refused = text(
        "Node 1 is not in this process's allowed memory nodes (0), set by /sys/fs/cgroup/a/cpuset.mems",
        "host_numa_node=0, or: echo 0-1 | sudo tee /sys/fs/cgroup/a/cpuset.mems",
    );
    for spec in [
        "1G,host_numa_node=1",
        "1G,host_nodes=0-1,policy=interleave",
        "1G,hugepages=off,host_nodes=1,policy=preferred",
    ] {
        assert_eq!(told("two-sockets-uneven", change, spec), refused, "{spec}");
    }
    let error = refusal(
        "two-sockets-uneven",
        change,
        &eager(&["1G,host_numa_node=1"]),
    );
    assert_eq!(error.class(), Class::Host);
    // Taking turns without a list is among the nodes that are allowed.
    let mut host = fixture("two-sockets-uneven");
    change(&mut host);
    let plan = plan(&host, &eager(&["1G,hugepages=on,policy=interleave"])).unwrap();
    assert!(
        plan.extents()
            .all(|extent| extent.nodes().to_string() == "0")
    );
}

#[test]
fn a_kernel_that_is_too_old() {
    assert_eq!(
        told("no-sys", as_it_is, "1G"),
        text(
            "Linux 5.10.0-35-cloud-amd64 has no MADV_POPULATE_WRITE; populating needs 5.14 or later",
            "leave --prealloc out, or boot Linux 5.14+",
        )
    );
}

#[test]
fn no_cpu_and_no_thread() {
    let request = Request {
        cpus: Some(ids("0,64-65")),
        ..eager(&["1G"])
    };
    let error = refusal("sparse-node-ids", as_it_is, &request);
    assert_eq!(
        (error.to_string(), error.fix()),
        text(
            "None of the CPUs 0,64-65 is in this process's affinity mask (1-7)",
            "choose among 1-7"
        )
    );
    let request = Request {
        threads: Some(0),
        ..eager(&["1G"])
    };
    let error = refusal("one-node", as_it_is, &request);
    assert_eq!(
        (error.to_string(), error.fix()),
        text("Populating takes at least one thread", "--threads 1")
    );
}

#[test]
fn warnings() {
    let warnings = |name: &str, change: fn(&mut Host), request: &Request| -> Vec<String> {
        let mut host = fixture(name);
        change(&mut host);
        let plan = plan(&host, request).unwrap();
        plan.warnings().iter().map(PlanWarning::to_string).collect()
    };
    assert_eq!(
        warnings("one-node", as_it_is, &eager(&["2G"])),
        ["Using ordinary memory instead of hugepages: \
          The host needs 1024 pages of 2 MiB, has 512 free, short by 512 (1 GiB) \
          (for hugepages: echo 1024 | sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages)"]
    );
    let request = Request {
        threads: Some(1),
        ..eager(&["1G,host_numa_node=0", "1G,host_numa_node=1"])
    };
    assert_eq!(
        warnings("two-sockets-uneven", as_it_is, &request),
        ["1 threads asked for, 2 used: one for each node with memory"]
    );
    assert_eq!(
        warnings(
            "sparse-node-ids",
            as_it_is,
            &eager(&["1G,host_numa_node=3"])
        ),
        ["Node 3 has no CPU this process may use: another node's CPUs populate it (remote)"]
    );
    assert_eq!(
        warnings(
            "no-sys",
            |host| host.kernel.release = "6.1.0".to_owned(),
            &eager(&["1G"])
        ),
        ["This host does not show its NUMA topology: workers are not pinned"]
    );
}
