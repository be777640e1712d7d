//! Limits that a shell sets on its process: each is an error with a way out, and everything comes back.
//!
//! The work is done in children, the tests named `child_…`, because a limit holds for a whole process.

mod children;
mod requests;

use std::fs::File;
use std::path::Path;

use children::{assert_passed, is_child, run_after};
use prezero_memory::{
    Class, GuestRam, Host, LimitKind, MapStep, PlanError, PlanWarning, ReserveError, plan,
};
use prezero_testkit::{Hugepages, MachineLock, maps_containing, open_fds};
use requests::{PAGE, eager, huge, on_touch, planned};

#[track_caller]
fn assert_nothing_left(fds: usize) {
    assert_eq!(maps_containing("prezero-ram"), [""; 0]);
    assert_eq!(open_fds(), fds);
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
    let (mut host, fds) = (Host::probe(), open_fds());
    let limit = host.limits.file_size.expect("the shell set it");
    let request = eager(&[&huge(8)]);
    let Err(PlanError::Limit(planned)) = plan(&host, &request) else {
        panic!("{limit} are not enough");
    };
    // As if it had been set after planning, which prlimit(2) can do from outside.
    host.limits.file_size = None;
    let blind = plan(&host, &request).expect("no limit is seen");
    let error = GuestRam::reserve(&blind).expect_err("the limit is lower");
    let ReserveError::Limit(ref hit) = error else {
        panic!("{error:?}");
    };
    assert_eq!(*hit, planned);
    assert_eq!((hit.what, hit.limit), (LimitKind::FileSize, limit));
    assert_eq!((hit.usage, hit.needed), (0, 8 * PAGE));
    assert!(error.to_string().contains("RLIMIT_FSIZE"), "{error}");
    assert_eq!(error.class(), Class::Shortage);
    assert_eq!(error.fix().as_deref(), Some("ulimit -f unlimited"));
    let auto = plan(&Host::probe(), &eager(&["16M"])).expect("ordinary memory is no file");
    assert!(
        matches!(auto.warnings(), [PlanWarning::Ordinary { .. }]),
        "{:?}",
        auto.warnings()
    );
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
        (MapStep::File, 1, Some(libc::EMFILE))
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
    // Planned without the limit, which the plan would see.
    let mut host = Host::probe();
    host.limits.address_space = None;
    let request = on_touch(&["size=256M,hugepages=off", "size=2G,hugepages=off"]);
    let plan = plan(&host, &request).expect("this machine can");
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
