//! Limits of cgroups: each is named with its file and its numbers, by the plan or, where it was set after that, by the
//! error; and everything comes back.
//!
//! The work is done in children, the tests named `child_…`, because a group holds whole processes.

mod cgroup;
mod children;
mod requests;

use std::env;
use std::fs;
use std::path::PathBuf;

use cgroup::Group;
use children::{assert_passed, is_child, run_after};
use prezero_memory::{
    Backing, Class, Control, GuestRam, Host, LimitHit, LimitKind, PageSize, PlanError,
    PopulateError, Request, ReserveError, Workers, plan,
};
use prezero_testkit::{Hugepages, maps_containing, open_fds, skip, thread_names};
use requests::{PAGE, eager, huge, planned, planned_on_one_node, reads_as_zero, reserved};

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

/// Runs `child` in a group of its own, or in a child group of that.
#[track_caller]
fn in_group(child: &str, nested: bool) {
    let Some(pages) = Hugepages::take(PAGE, PAGES) else {
        return;
    };
    let group = match Group::new() {
        Ok(group) => group,
        Err(error) => return skip("cgroup", &error.to_string()),
    };
    let inner = nested.then(|| group.inner());
    let dir = inner.as_ref().map_or(group.dir(), |inner| inner.dir());
    assert_passed(&run_after(JOIN, dir, child));
    assert_eq!(group.get("hugetlb.2MB.current"), "0");
    assert_eq!(group.get("hugetlb.2MB.rsvd.current"), "0");
    drop(inner);
    pages.assert_clean();
}

/// A file of the group that this child is in.
fn file(name: &str) -> PathBuf {
    PathBuf::from(env::var_os("dir").expect("set by the parent")).join(name)
}

fn read(name: &str) -> u64 {
    let text = fs::read_to_string(file(name)).expect("a file of the group");
    text.trim().parse().expect("a number")
}

fn set(name: &str, limit: u64) {
    fs::write(file(name), limit.to_string()).expect("root may");
}

#[test]
fn a_cgroup_limit_reached_half_way_stops_all_workers_and_is_named() {
    in_group("child_populates_above_a_limit", false);
}

#[test]
#[ignore = "run as a child by a_cgroup_limit_reached_half_way_stops_all_workers_and_is_named"]
fn child_populates_above_a_limit() {
    if !is_child() {
        return;
    }
    let request = Request {
        threads: Some(2),
        ..eager(&[&huge(PAGES)])
    };
    let (plan, fds) = (planned_on_one_node(&request), open_fds());
    set("hugetlb.2MB.max", ALLOWED);
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
        ref cause,
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
    // All that the limit allows is in use, more than whole chunks.
    let expected = LimitHit {
        what: LimitKind::HugetlbUsage,
        file: file("hugetlb.2MB.max"),
        limit: ALLOWED,
        usage: ALLOWED,
        needed: PAGE,
    };
    assert_eq!(cause.as_deref(), Some(&expected));
    assert_eq!(read("hugetlb.2MB.current"), ALLOWED);
    assert_eq!(failed.error.class(), Class::Shortage);
    let text = failed.error.to_string();
    assert!(
        text.contains("of 128 MiB") && text.contains(&expected.to_string()),
        "{text}"
    );
    let fix = failed.error.fix().expect("the limit can be raised");
    let named = format!("sudo tee {}", file("hugetlb.2MB.max").display());
    assert!(fix.ends_with(&named), "{fix}");
    // The memory came back with the error: with a higher limit the rest is populated.
    set("hugetlb.2MB.max", PAGES * PAGE);
    let (ram, report) = failed
        .ram
        .populate(&workers, &Control::default())
        .expect("the limit is high enough");
    assert_eq!(report.bytes, PAGES * PAGE);
    assert_eq!(read("hugetlb.2MB.current"), PAGES * PAGE);
    assert!(reads_as_zero(slot.hva, slot.len));
    drop((ram, workers));
    assert_nothing_left(fds);
    assert_eq!(read("hugetlb.2MB.current"), 0);
}

#[test]
fn a_limit_on_reservations_that_the_plan_did_not_see_is_named() {
    in_group("child_reserves_above_a_limit", false);
}

#[test]
#[ignore = "run as a child by a_limit_on_reservations_that_the_plan_did_not_see_is_named"]
fn child_reserves_above_a_limit() {
    if !is_child() {
        return;
    }
    let (plan, fds) = (planned(&eager(&[&huge(8), &huge(PAGES - 8)])), open_fds());
    set("hugetlb.2MB.rsvd.max", ALLOWED);
    let error = GuestRam::reserve(&plan).expect_err("the limit is lower");
    let ReserveError::Limit(ref hit) = error else {
        panic!("{error:?}");
    };
    let expected = LimitHit {
        what: LimitKind::HugetlbReservation,
        file: file("hugetlb.2MB.rsvd.max"),
        limit: ALLOWED,
        // The first slot's, which is there still when the second is refused.
        usage: 8 * PAGE,
        needed: (PAGES - 8) * PAGE,
    };
    assert_eq!(*hit, expected);
    assert_eq!(error.class(), Class::Shortage);
    assert!(error.is_about_hugepages());
    // What is typed lets all of it in, and no page more.
    let fix = format!("echo {} | sudo tee ", PAGES * PAGE);
    assert!(error.fix().is_some_and(|typed| typed.starts_with(&fix)));
    assert_nothing_left(fds);
    set("hugetlb.2MB.rsvd.max", PAGES * PAGE);
    drop(reserved(&plan));
    assert_nothing_left(fds);
}

#[test]
fn the_plan_refuses_what_a_group_or_its_parent_forbids() {
    in_group("child_plans_above_a_limit", false);
    in_group("child_plans_above_a_limit", true);
}

#[test]
#[ignore = "run as a child by the_plan_refuses_what_a_group_or_its_parent_forbids"]
fn child_plans_above_a_limit() {
    if !is_child() {
        return;
    }
    // The outermost group that the test made.
    let above = match file("../hugetlb.2MB.max").exists() {
        true => file("..").canonicalize().expect("a directory"),
        false => file("."),
    };
    for name in ["hugetlb.2MB.max", "hugetlb.2MB.rsvd.max"] {
        let path = above.components().collect::<PathBuf>().join(name);
        fs::write(&path, ALLOWED.to_string()).expect("root may");
        let host = Host::probe();
        let error = plan(&host, &eager(&[&huge(PAGES)])).expect_err("the limit is lower");
        let PlanError::Limit(ref hit) = error else {
            panic!("{error:?}");
        };
        assert_eq!(hit.file, path);
        assert_eq!(
            (hit.limit, hit.usage, hit.needed),
            (ALLOWED, 0, PAGES * PAGE)
        );
        assert_eq!(hit.short(), PAGES * PAGE - ALLOWED);
        assert_eq!(error.class(), Class::Shortage);
        // Together they are one page too many, though each alone is not.
        let half = ALLOWED / PAGE / 2;
        plan(&host, &eager(&[&huge(half), &huge(half)])).expect("exactly the limit");
        let error = plan(&host, &eager(&[&huge(half), &huge(half + 1)])).expect_err("a page more");
        assert!(
            matches!(&error, PlanError::Limit(hit) if hit.short() == PAGE),
            "{error:?}"
        );
        let auto = format!("{}M", PAGES * 2);
        let auto = plan(&host, &eager(&[&auto])).expect("ordinary memory is not limited");
        assert!(
            auto.extents()
                .all(|extent| extent.backing() != Backing::Memfd)
        );
        let warning = auto.warnings()[0].to_string();
        assert!(warning.contains(&path.display().to_string()), "{warning}");
        fs::write(&path, "max").expect("root may");
    }
}
