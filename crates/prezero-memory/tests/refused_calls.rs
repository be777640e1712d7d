//! Memory where seccomp refuses the calls for memory policies and nodes, as in many containers.

mod requests;

use prezero_memory::{CheckedBy, Class, Control, GuestRam, Host};
use prezero_testkit::{Hugepages, Refusal, Refused, skip};
use requests::{PAGE, cleared, eager, huge, planned, populated, zeroed};

const PAGES: u64 = 32;

/// The kernel spreads pages added to the pool over all nodes.
fn nodes() -> u64 {
    Host::probe().nodes.len() as u64
}

/// The calls that containers refuse without CAP_SYS_NICE.
const POLICY_CALLS: [libc::c_long; 4] = [
    libc::SYS_mbind,
    libc::SYS_set_mempolicy,
    libc::SYS_get_mempolicy,
    libc::SYS_move_pages,
];

#[test]
fn memory_that_nobody_asked_a_node_for_makes_no_policy_call() {
    let Some(pages) = Hugepages::take(PAGE, PAGES * nodes()) else {
        return;
    };
    let plan = planned(&eager(&[&huge(PAGES), "size=6M,hugepages=off"]));
    // move_pages is the check's, which has another way.
    Refused::new(&POLICY_CALLS[..3], Refusal::Kill).run(|| drop(zeroed(&plan)));
    pages.assert_clean();
}

#[test]
fn pages_are_counted_where_move_pages_is_refused() {
    let Some(pages) = Hugepages::take(PAGE, PAGES * nodes()) else {
        return;
    };
    let zones = [
        huge(PAGES) + ",host_numa_node=0",
        "size=6M,hugepages=off,id=a".to_owned(),
        "size=6M,hugepages=off,id=b".to_owned(),
    ];
    for errno in [libc::EPERM, libc::ENOSYS] {
        let plan = planned(&eager(&zones.each_ref().map(String::as_str)));
        let ram = cleared(&plan, populated(&plan).0);
        let number = u16::try_from(errno).expect("an errno");
        let refused = Refused::new(&[libc::SYS_move_pages], Refusal::Errno(number));
        let (ram, placement) = refused
            .run(|| ram.check_placement(&Control::default()))
            .expect("all of it is on node 0");
        assert_eq!(placement.refused, Some(errno));
        if placement.by == CheckedBy::Nothing {
            return skip("numa", "/proc/self/numa_maps");
        }
        assert_eq!(placement.by, CheckedBy::NumaMaps);
        assert_eq!(placement.checked_pages, PAGES + 12 * 256);
        assert_eq!((placement.misplaced_pages, placement.absent_pages), (0, 0));
        assert_eq!(placement.warning(), None);
        drop(ram);
    }
    pages.assert_clean();
}

#[test]
fn a_node_where_policy_calls_are_refused_is_an_error_of_the_host() {
    let Some(pages) = Hugepages::take(PAGE, PAGES * nodes()) else {
        return;
    };
    for (policy, doing) in [
        ("bind", "Binding 64 MiB at guest address 0x0 to node 0"),
        (
            "preferred",
            "Preferring node 0 for 64 MiB at guest address 0x0",
        ),
        (
            "interleave",
            "Interleaving 64 MiB at guest address 0x0 over node 0",
        ),
    ] {
        let spec = format!("{},host_nodes=0,policy={policy}", huge(PAGES));
        let plan = planned(&eager(&[&spec]));
        let refused = Refused::new(&POLICY_CALLS, Refusal::Errno(1));
        let error = refused.run(|| GuestRam::reserve(&plan).expect_err("EPERM"));
        assert_eq!(error.class(), Class::Host, "{error}");
        let because =
            ": mbind and set_mempolicy are refused here, by seccomp or for want of CAP_SYS_NICE";
        assert_eq!(error.to_string(), format!("{doing}{because}"));
        let fix = error.fix().expect("something to change");
        assert!(
            fix.contains("CAP_SYS_NICE") && fix.contains("seccomp"),
            "{fix}"
        );
    }
    pages.assert_clean();
}
