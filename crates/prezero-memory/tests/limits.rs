//! Limits set on the process from outside: each is an error with a way out, and everything comes back.
//!
//! The work is done in children, the tests named `child_…`, because a limit holds for a whole process.

mod cgroup;
mod children;
mod requests;

use std::env;
use std::fs::{self, File};
use std::path::Path;

use cgroup::Group;
use children::{assert_passed, is_child, run_after};
use prezero_memory::{
    Class, Control, GuestRam, MapStep, PageSize, PopulateError, Request, ReserveError, Workers,
};
use prezero_testkit::{Hugepages, MachineLock, maps_containing, open_fds, skip, thread_names};
use requests::{
    PAGE, eager, huge, on_touch, planned, planned_on_one_node, reads_as_zero, reserved,
};

/// 128 MiB, of which a group's limit allows 32 MiB.
const PAGES: u64 = 64;
const ALLOWED: u64 = 32 << 20;

const JOIN: &str = "echo $$ > \"$dir/cgroup.procs\"";

#[track_caller]
fn assert_nothing_left(fds: usize) {
    assert_eq!(maps_containing("prezero-ram"), [""; 0]);
    assert!(
        !thread_names()
            .iter()
            .any(|name| name.starts_with("prezero-n"))
    );
    assert_eq!(open_fds(), fds);
}

#[test]
fn a_cgroup_limit_reached_half_way_stops_all_workers() {
    let Some(pages) = Hugepages::take(PAGE, PAGES) else {
        return;
    };
    let group = match Group::new() {
        Ok(group) => group,
        Err(error) => return skip("cgroup", &error.to_string()),
    };
    group.set("hugetlb.2MB.max", &ALLOWED.to_string());
    assert_passed(&run_after(
        JOIN,
        group.dir(),
        "child_populates_above_a_limit",
    ));
    assert_ne!(
        group.get("hugetlb.2MB.events"),
        "max 0",
        "the limit was never reached"
    );
    assert_eq!(group.get("hugetlb.2MB.current"), "0");
    assert_eq!(group.get("hugetlb.2MB.rsvd.current"), "0");
    pages.assert_clean();
}

#[test]
#[ignore = "run as a child by a_cgroup_limit_reached_half_way_stops_all_workers"]
fn child_populates_above_a_limit() {
    if !is_child() {
        return;
    }
    let group = env::var_os("dir").expect("set by the parent");
    let current = Path::new(&group).join("hugetlb.2MB.current");
    let used = || {
        fs::read_to_string(&current)
            .expect("the group's use")
            .trim()
            .parse::<u64>()
    };
    let request = Request {
        threads: Some(2),
        ..eager(&[&huge(PAGES)])
    };
    let (plan, fds) = (planned_on_one_node(&request), open_fds());
    let workers = Workers::start(plan.workers()).expect("two threads");
    let failed = reserved(&plan)
        .populate(&workers, &Control::default())
        .expect_err("the limit is lower");
    let PopulateError::Refused {
        addr,
        page,
        node,
        done,
        total,
        ref source,
    } = failed.error
    else {
        panic!("{failed:?}");
    };
    assert_eq!(source.raw_os_error(), Some(libc::EFAULT));
    let slot = failed.ram.slots().next().expect("one slot");
    assert!((slot.hva..slot.hva + slot.len).contains(&addr));
    assert_eq!((page, node, total), (PageSize::HUGE_2M, 0, PAGES * PAGE));
    assert!(done <= ALLOWED, "{done}");
    assert!(used().is_ok_and(|used| (done..=ALLOWED).contains(&used)));
    assert_eq!(failed.error.class(), Class::Shortage);
    let text = failed.error.to_string();
    assert!(
        text.contains("128 MiB") && text.contains("cgroup limit"),
        "{text}"
    );
    let fix = failed.error.fix().expect("the limit can be looked up");
    assert!(fix.contains("hugetlb.*.max"), "{fix}");
    // The memory came back with the error: with a higher limit the rest is populated.
    fs::write(Path::new(&group).join("hugetlb.2MB.max"), "max").expect("root may");
    let (ram, report) = failed
        .ram
        .populate(&workers, &Control::default())
        .expect("no limit is left");
    assert_eq!(report.bytes, PAGES * PAGE);
    assert_eq!(used(), Ok(PAGES * PAGE));
    assert!(reads_as_zero(slot.hva, slot.len));
    drop((ram, workers));
    assert_nothing_left(fds);
    assert_eq!(used(), Ok(0));
}

#[test]
fn a_cgroup_limit_on_reservations_is_refused_before_anything_is_mapped() {
    let Some(pages) = Hugepages::take(PAGE, PAGES) else {
        return;
    };
    let group = match Group::new() {
        Ok(group) => group,
        Err(error) => return skip("cgroup", &error.to_string()),
    };
    group.set("hugetlb.2MB.rsvd.max", &ALLOWED.to_string());
    assert_passed(&run_after(
        JOIN,
        group.dir(),
        "child_reserves_above_a_limit",
    ));
    assert_eq!(group.get("hugetlb.2MB.rsvd.current"), "0");
    pages.assert_clean();
}

#[test]
#[ignore = "run as a child by a_cgroup_limit_on_reservations_is_refused_before_anything_is_mapped"]
fn child_reserves_above_a_limit() {
    if !is_child() {
        return;
    }
    let (plan, fds) = (planned(&eager(&[&huge(8), &huge(PAGES - 8)])), open_fds());
    let error = GuestRam::reserve(&plan).expect_err("the limit is lower");
    let ReserveError::Hugepages {
        needed, available, ..
    } = error
    else {
        panic!("{error:?}");
    };
    // Pages are there, so more of them would not help.
    assert!(needed == PAGES - 8 && available >= needed);
    assert_eq!(error.class(), Class::Shortage);
    let fix = error.fix().expect("the limit can be looked up");
    assert!(fix.contains("hugetlb.*.rsvd.max"), "{fix}");
    assert_nothing_left(fds);
}

#[test]
fn a_limit_on_file_sizes_is_an_error_and_no_signal() {
    let Some(pages) = Hugepages::take(PAGE, 8) else {
        return;
    };
    // In units of 512 bytes or 1 KiB, as the shell has it.
    let output = run_after(
        "ulimit -f 1024",
        Path::new("/"),
        "child_makes_a_file_above_a_limit",
    );
    assert_passed(&output);
    pages.assert_clean();
}

#[test]
#[ignore = "run as a child by a_limit_on_file_sizes_is_an_error_and_no_signal"]
fn child_makes_a_file_above_a_limit() {
    if !is_child() {
        return;
    }
    let (plan, fds) = (planned(&eager(&[&huge(8)])), open_fds());
    let error = GuestRam::reserve(&plan).expect_err("the limit is lower");
    let ReserveError::FileSizeLimit { largest, limit } = error else {
        panic!("{error:?}");
    };
    assert!(
        largest == 8 * PAGE && (512 << 10..=1 << 20).contains(&limit),
        "{error}"
    );
    assert_eq!(error.class(), Class::Shortage);
    assert_eq!(error.fix().as_deref(), Some("ulimit -f unlimited"));
    assert_nothing_left(fds);
}

#[test]
fn a_limit_on_descriptors_takes_the_slots_before_it_along() {
    let Some(pages) = Hugepages::take(PAGE, 8) else {
        return;
    };
    let output = run_after(
        "ulimit -n 64",
        Path::new("/"),
        "child_runs_out_of_descriptors",
    );
    assert_passed(&output);
    pages.assert_clean();
}

#[test]
#[ignore = "run as a child by a_limit_on_descriptors_takes_the_slots_before_it_along"]
fn child_runs_out_of_descriptors() {
    if !is_child() {
        return;
    }
    let (plan, fds) = (planned(&eager(&[&huge(4), &huge(4)])), open_fds());
    let mut open: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    // The first slot's file gets the only free number.
    open.pop();
    let error = GuestRam::reserve(&plan).expect_err("one descriptor is not enough");
    drop(open);
    let ReserveError::Map {
        step,
        slot,
        ref source,
        ..
    } = error
    else {
        panic!("{error:?}");
    };
    assert_eq!(
        (step, slot, source.raw_os_error()),
        (MapStep::Memfd, 1, Some(libc::EMFILE))
    );
    assert_eq!(error.class(), Class::Shortage);
    assert!(error.fix().is_some_and(|fix| fix.starts_with("ulimit -n ")));
    assert_nothing_left(fds);
}

#[test]
fn a_limit_on_address_space_takes_the_slots_before_it_along() {
    let _lock = MachineLock::acquire();
    let output = run_after(
        "ulimit -v 2097152",
        Path::new("/"),
        "child_runs_out_of_addresses",
    );
    assert_passed(&output);
}

#[test]
#[ignore = "run as a child by a_limit_on_address_space_takes_the_slots_before_it_along"]
fn child_runs_out_of_addresses() {
    if !is_child() {
        return;
    }
    let plan = planned(&on_touch(&[
        "size=256M,hugepages=off",
        "size=2G,hugepages=off",
    ]));
    // Ten first slots of 256 MiB would not fit below the limit either, if they stayed.
    for _ in 0..10 {
        let error = GuestRam::reserve(&plan).expect_err("2 GiB in all are allowed");
        let ReserveError::Map {
            step,
            slot,
            bytes,
            gpa,
            ref source,
        } = error
        else {
            panic!("{error:?}");
        };
        assert_eq!(
            (step, source.raw_os_error()),
            (MapStep::Addresses, Some(libc::ENOMEM))
        );
        assert_eq!((slot, bytes, gpa), (1, 2 << 30, 256 << 20));
        assert_eq!(error.class(), Class::Shortage);
        assert!(error.fix().is_some_and(|fix| fix.contains("ulimit -v ")));
    }
}
