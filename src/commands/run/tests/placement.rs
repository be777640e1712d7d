//! A page that somebody moves between populating and the check of its node.

use std::io;
use std::time::Instant;

use prezero_host::Host;
use prezero_memory::{Cancel, Class, GuestRam, Populated};
use prezero_testkit::{Hugepages, require_kvm, skip};

use super::super::run;
use super::{MIB, args, exit_code, nodes_with_memory};
use crate::failure::Failure;
use crate::report::run::Report;

/// Moves the page at a host address to `node` (move_pages(2)).
fn move_page(addr: u64, node: u32) -> io::Result<()> {
    let (pages, nodes) = ([addr], [i32::try_from(node).expect("a node")]);
    let mut status = [-1_i32];
    // SAFETY: the arrays are live and of one entry each; the kernel copies the page's contents.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            1,
            pages.as_ptr(),
            nodes.as_ptr(),
            status.as_mut_ptr(),
            1 << 1, // MPOL_MF_MOVE
        )
    };
    match (result, status[0]) {
        (-1, _) => Err(io::Error::last_os_error()),
        (_, errno) if errno < 0 => Err(io::Error::from_raw_os_error(-errno)),
        (_, found) if u32::try_from(found) == Ok(node) => Ok(()),
        (_, found) => Err(io::Error::other(format!("it is on node {found}"))),
    }
}

/// Two nodes that this process may have memory of, or none where there is one only.
fn two_nodes() -> Option<(u32, u32)> {
    match nodes_with_memory()[..] {
        [first, .., last] => Some((first, last)),
        _ => {
            skip("numa", "a second NUMA node");
            None
        }
    }
}

/// A run whose third page from the end is moved to `to` before the check.
fn run_and_move(line: &str, to: u32) -> (Result<(), Failure>, Report) {
    let mut report = Report::new();
    let moved = |ram: &GuestRam<Populated>| {
        let extent = ram.extents().last().expect("memory");
        let page = extent.plan().page_size().bytes();
        let addr = extent.addr() + extent.plan().len().bytes() - 3 * page;
        move_page(addr, to).expect("the other node has a page");
    };
    let cancel = Cancel::new();
    let start = Instant::now();
    let result = run(&args(line), start, &cancel, &mut report, &moved, |_| ());
    (result, report)
}

#[test]
fn the_check_catches_a_page_on_another_node() {
    if !require_kvm() {
        return;
    }
    let Some((first, last)) = two_nodes() else {
        return;
    };
    let line = format!("--memory 64M,hugepages=off,host_numa_node={first} --prealloc --verify");
    let (result, report) = run_and_move(&line, last);
    let failure = result.expect_err("a page elsewhere");
    assert_eq!(failure.class, Class::Shortage, "{}", failure.message);
    assert_eq!(exit_code(failure.class), 3);
    let text = &failure.message;
    let pages = format!("pages bound to node {first} are elsewhere");
    assert!(
        text.contains(&pages) && text.ends_with(&format!("on node {last}")),
        "{text}"
    );
    assert!(
        report.guest.is_none() && report.creation_ns.is_none(),
        "{report:?}"
    );
}

#[test]
fn a_page_beyond_a_preference_is_counted_and_the_guest_runs() {
    if !require_kvm() {
        return;
    }
    let Some((first, last)) = two_nodes() else {
        return;
    };
    let line = format!(
        "--memory 64M,hugepages=off,host_nodes={first},policy=preferred --prealloc --verify"
    );
    let (result, report) = run_and_move(&line, last);
    assert!(
        result.is_ok(),
        "{:?}",
        result.map_err(|failure| failure.message)
    );
    let placement = report.placement.expect("it was checked");
    assert!(placement.misplaced_pages > 0);
    let warning = report
        .warnings
        .iter()
        .find(|text| text.contains("on another node than planned"));
    assert!(warning.is_some(), "{:?}", report.warnings);
    assert_eq!(report.guest.expect("it ran").first_nonzero_gpa, None);
}

/// Two nodes, and 32 hugepages on each with one to spare: the kernel spreads pages added to its pool over all nodes.
fn two_nodes_with_hugepages() -> Option<(u32, u32, Hugepages)> {
    let (first, last) = two_nodes()?;
    let nodes = Host::probe().nodes.len() as u64;
    Hugepages::take(2 * MIB, 33 * nodes).map(|pages| (first, last, pages))
}

#[test]
fn the_check_catches_a_hugepage_on_another_node() {
    if !require_kvm() {
        return;
    }
    let Some((first, last, pages)) = two_nodes_with_hugepages() else {
        return;
    };
    let line = format!(
        "--memory 64M,hugepages=on,hugepage_size=2M,host_numa_node={first} --prealloc --verify"
    );
    let (result, report) = run_and_move(&line, last);
    let failure = result.expect_err("a page elsewhere");
    assert_eq!(failure.class, Class::Shortage, "{}", failure.message);
    assert_eq!(
        failure.message,
        format!(
            "1 of 32 pages bound to node {first} are elsewhere, the first at guest address 0x3a00000 on node {last}"
        )
    );
    assert!(failure.fix.is_some());
    assert!(
        report.guest.is_none() && report.creation_ns.is_none(),
        "{report:?}"
    );
    pages.assert_clean();
}

#[test]
fn a_hugepage_out_of_turn_is_counted_and_the_guest_runs() {
    if !require_kvm() {
        return;
    }
    let Some((first, last, pages)) = two_nodes_with_hugepages() else {
        return;
    };
    // The third page from the end is one of the second node's.
    let line = format!(
        "--memory 64M,hugepages=on,hugepage_size=2M,host_nodes=[{first},{last}],policy=interleave --prealloc --verify"
    );
    let (result, report) = run_and_move(&line, first);
    assert!(
        result.is_ok(),
        "{:?}",
        result.map_err(|failure| failure.message)
    );
    let placement = report.placement.expect("it was checked");
    assert_eq!(
        (
            placement.checked_pages,
            placement.misplaced_pages,
            placement.method
        ),
        (32, 1, "move_pages")
    );
    let warning = "1 of 32 pages are on another node than planned".to_owned();
    assert!(report.warnings.contains(&warning), "{:?}", report.warnings);
    assert_eq!(report.guest.expect("it ran").first_nonzero_gpa, None);
    pages.assert_clean();
}

#[test]
fn a_page_moved_to_where_it_is_changes_nothing() {
    if !require_kvm() {
        return;
    }
    let node = Host::probe().allowed_nodes.first().unwrap_or(0);
    let line = format!("--memory 64M,hugepages=off,host_numa_node={node} --prealloc --verify");
    let (result, report) = run_and_move(&line, node);
    assert!(
        result.is_ok(),
        "{:?}",
        result.map_err(|failure| failure.message)
    );
    assert_eq!(report.placement.expect("it was checked").misplaced_pages, 0);
}
