//! Which nodes memory is put on, and that the caller's own CPUs and memory policy stay as they are.

mod mappings;
mod requests;

use std::fs;
use std::io;

use mappings::{open_memory_files, policy_at};
use prezero_memory::{Class, Control, GuestRam, Host, Plan, ReserveError, plan};
use prezero_testkit::{Hugepages, maps_containing, skip};
use requests::{PAGE, cleared, cpus, eager, huge, planned, populated, zeroed};

const PAGES: u64 = 32;
const MPOL_PREFERRED: i32 = 1;

/// The calling thread's memory policy and its nodes (get_mempolicy(2)).
fn policy() -> (i32, [u64; 16]) {
    let (mut mode, mut nodes) = (-1, [0; 16]);
    // SAFETY: both pointers are to live memory, the second to as many bits as the third operand says.
    let result = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &raw mut mode,
            nodes.as_mut_ptr(),
            1024,
            0,
            0,
        )
    };
    assert_eq!(result, 0, "get_mempolicy");
    (mode, nodes)
}

/// Makes the calling thread prefer node 0; false where that is refused, as in many containers.
fn prefer_node_0() -> bool {
    let nodes = [1_u64];
    // SAFETY: the mask is live and has more bits than the third operand says.
    let result =
        unsafe { libc::syscall(libc::SYS_set_mempolicy, MPOL_PREFERRED, nodes.as_ptr(), 2) };
    if result == 0 {
        return true;
    }
    skip(
        "numa",
        &format!("set_mempolicy: {}", io::Error::last_os_error()),
    );
    false
}

/// The CPUs that every thread of this process may run on, the workers of these tests left out.
fn cpus_of_threads() -> Vec<(String, String)> {
    let tasks = fs::read_dir("/proc/self/task").expect("own threads");
    let mut cpus: Vec<(String, String)> = tasks
        .flatten()
        .filter_map(|task| {
            let status = fs::read_to_string(task.path().join("status")).ok()?;
            let line = status
                .lines()
                .find(|line| line.starts_with("Cpus_allowed_list"))?;
            Some((
                task.file_name().to_string_lossy().into_owned(),
                line.to_owned(),
            ))
        })
        .collect();
    cpus.sort();
    cpus
}

fn own_cpus() -> String {
    let status = fs::read_to_string("/proc/thread-self/status").expect("own thread");
    let line = status
        .lines()
        .find(|line| line.starts_with("Cpus_allowed_list"));
    line.expect("a list of CPUs").to_owned()
}

/// Lets the calling thread run on one CPU only (sched_setaffinity(2)).
fn stay_on(cpu: u32) {
    let mut mask = [0_u64; 16];
    mask[cpu as usize / 64] |= 1 << (cpu % 64);
    // SAFETY: the mask is live and of the size given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setaffinity,
            0,
            size_of_val(&mask),
            mask.as_ptr(),
        )
    };
    assert_eq!(result, 0, "sched_setaffinity");
}

/// The kernel spreads pages added to the pool over all nodes.
fn nodes() -> u64 {
    Host::probe().nodes.len() as u64
}

#[test]
fn the_callers_cpus_and_memory_policy_stay_as_they_are() {
    let Some(pages) = Hugepages::take(PAGE, PAGES * nodes()) else {
        return;
    };
    // On a thread with a mask and a policy of its own, which no default can hide.
    let cycle = || {
        stay_on(*cpus().last().expect("a CPU to run on"));
        if !prefer_node_0() {
            return;
        }
        let before = (policy(), own_cpus());
        assert_eq!(before.0.0, MPOL_PREFERRED);
        let bound = huge(PAGES) + ",host_numa_node=0";
        let plan = planned(&eager(&[&bound]));
        for _ in 0..2 {
            let ram = zeroed(&plan);
            assert_eq!((policy(), own_cpus()), before);
            drop(ram);
        }
        // Binding that fails half-way puts the policy back too.
        let refused = GuestRam::reserve(&plan_of_a_node_that_is_not_there());
        assert!(matches!(refused, Err(ReserveError::Bind { .. })));
        assert_eq!((policy(), own_cpus()), before);
    };
    let others = cpus_of_threads();
    std::thread::scope(|scope| scope.spawn(cycle).join().expect("the cycle"));
    let still_there = |thread: &(String, String)| {
        fs::exists(format!("/proc/self/task/{}", thread.0)).unwrap_or(false)
    };
    let now = cpus_of_threads();
    for thread in others.into_iter().filter(still_there) {
        assert!(now.contains(&thread), "{thread:?} became one of {now:?}");
    }
    pages.assert_clean();
}

/// Bound to a node that the plan believes in and the kernel does not.
fn plan_of_a_node_that_is_not_there() -> Plan {
    let mut host = Host::probe();
    let absent = host.nodes.iter().map(|node| node.id).max().unwrap_or(0) + 1;
    let mut node = host.nodes[0].clone();
    node.id = absent;
    host.nodes.push(node);
    host.allowed_nodes = host.nodes.iter().map(|node| node.id).collect();
    let bound = format!("{},host_numa_node={absent}", huge(PAGES));
    plan(&host, &eager(&["size=2M,hugepages=off", &bound])).expect("the host claims the node")
}

#[test]
fn a_refused_binding_names_the_node_and_leaves_nothing() {
    let Some(pages) = Hugepages::take(PAGE, PAGES) else {
        return;
    };
    let plan = plan_of_a_node_that_is_not_there();
    let absent = plan.extents().last().expect("two extents").node();
    let error = GuestRam::reserve(&plan).expect_err("there is no such node");
    let text = error.to_string();
    assert!(text.ends_with(&format!("to node {absent}")), "{text}");
    assert_eq!(error.class(), Class::Host);
    assert!(error.fix().is_some());
    assert_eq!(maps_containing("prezero-ram"), [""; 0]);
    assert_eq!(open_memory_files(), 0);
    pages.assert_clean();
}

#[test]
fn bound_memory_is_on_its_node_and_the_kernel_knows() {
    let Some(pages) = Hugepages::take(PAGE, PAGES * nodes()) else {
        return;
    };
    if !prefer_node_0() {
        return;
    }
    let zones = [
        huge(PAGES) + ",host_numa_node=0",
        "size=6M,hugepages=off,host_numa_node=0".to_owned(),
    ];
    let plan = planned(&eager(&[&zones[0], &zones[1]]));
    let (ram, _) = populated(&plan);
    for extent in ram.extents() {
        assert!(extent.plan().bound());
        if let Some(policy) = policy_at(extent.addr()) {
            assert_eq!(policy, "bind:0");
        }
    }
    let (ram, placement) = cleared(&plan, ram)
        .check_placement(&Control::default())
        .expect("all of it is on node 0");
    assert_eq!(placement.checked_pages, PAGES + 6 * 256);
    assert_eq!((placement.misplaced_pages, placement.refused), (0, None));
    assert_eq!(placement.warning(), None);
    drop(ram);
    pages.assert_clean();
}

#[test]
fn interleaved_and_preferred_memory_is_known_to_the_kernel_as_such() {
    let Some(pages) = Hugepages::take(PAGE, PAGES * nodes()) else {
        return;
    };
    if !prefer_node_0() {
        return;
    }
    for (policy, shown) in [("interleave", "interleave:0"), ("preferred", "prefer:0")] {
        let zones = [
            format!("{},host_nodes=0,policy={policy}", huge(PAGES)),
            format!("size=6M,hugepages=off,host_nodes=0,policy={policy}"),
        ];
        let plan = planned(&eager(&[&zones[0], &zones[1]]));
        let (ram, _) = populated(&plan);
        for extent in ram.extents() {
            assert!(!extent.plan().bound());
            if let Some(policy) = policy_at(extent.addr()) {
                assert_eq!(policy, shown);
            }
        }
        let (ram, placement) = cleared(&plan, ram)
            .check_placement(&Control::default())
            .expect("nothing is bound");
        assert_eq!(placement.checked_pages, PAGES + 6 * 256);
        assert_eq!(placement.misplaced_pages, 0);
        drop(ram);
    }
    pages.assert_clean();
}

#[test]
fn pages_elsewhere_than_planned_are_counted_where_nothing_is_bound() {
    let Some(pages) = Hugepages::take(PAGE, PAGES) else {
        return;
    };
    let (host, second) = requests::host_with_a_second_node(PAGES - 1);
    if Host::probe().nodes.len() > 1 {
        return skip(
            "lab",
            "a machine with one node, to know where the pages are",
        );
    }
    let plan = plan(&host, &eager(&[&huge(PAGES)])).expect("the host has enough");
    let on_second = plan.extents().filter(|extent| extent.node() == second);
    let planned_there: u64 = on_second.map(|extent| extent.len().pages()).sum();
    let (ram, report) = populated(&plan);
    assert!(
        report
            .workers
            .iter()
            .any(|worker| worker.node == second && worker.populated_bytes > 0)
    );
    let (ram, placement) = cleared(&plan, ram)
        .check_placement(&Control::default())
        .expect("nothing is bound");
    assert_eq!(placement.checked_pages, PAGES);
    assert_eq!(placement.misplaced_pages, planned_there);
    assert!(placement.warning().is_some());
    drop(ram);
    pages.assert_clean();
}
