//! Populating on ordinary memory, which every machine has; hugepages are in tests/hugepages.rs.

use std::sync::atomic::{AtomicU64, Ordering};

use prezero_host::PageSize;

use std::time::Instant;

use super::*;
use crate::control::{Cancel, NodeProgress};
use crate::plan::{Origin, WorkerPlan};
use crate::size::PageBytes;

const MIB: u64 = 1 << 20;

fn target(addr: u64, bytes: u64, node: u32) -> Target {
    Target {
        addr,
        len: PageBytes::new(bytes, PageSize::BASE).unwrap(),
        node,
        origin: Origin::Fresh,
    }
}

fn workers(nodes: &[u32]) -> Workers {
    let plan: Vec<WorkerPlan> = nodes
        .iter()
        .map(|&node| WorkerPlan {
            node,
            cpu: None,
            remote: false,
        })
        .collect();
    Workers::start(&plan).unwrap()
}

/// Address space of this process for a test, given back on drop.
struct Range(u64, u64);

impl Range {
    fn new(len: u64) -> Self {
        let addr = sys::reserve_addresses(len).unwrap();
        // SAFETY: the range was reserved just above.
        unsafe { sys::map_fixed(addr, len, sys::Source::Anonymous).unwrap() };
        Self(addr, len)
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        // SAFETY: nothing uses the range any more.
        unsafe { sys::unmap(self.0, self.1).unwrap() };
    }
}

#[test]
fn populates_every_page_of_every_target() {
    let (a, b) = (Range::new(24 * MIB), Range::new(3 * MIB + 4096));
    let targets = [target(a.0, a.1, 0), target(b.0, b.1, 7)];
    let last = AtomicU64::new(0);
    let progress = |nodes: &[NodeProgress]| {
        last.store(nodes.iter().map(|node| node.done).sum(), Ordering::Relaxed);
    };
    let control = Control {
        progress: Some(&progress),
        ..Control::default()
    };
    let report = populate(&workers(&[0, 0, 7]), &targets, &control).unwrap();
    assert_eq!(report.bytes, a.1 + b.1);
    assert_eq!(last.load(Ordering::Relaxed), report.bytes);
    let by_worker: u64 = report
        .workers
        .iter()
        .map(|worker| worker.populated_bytes)
        .sum();
    assert_eq!(by_worker, report.bytes);
    assert_eq!(report.workers[2].populated_bytes, b.1);
    for range in [&a, &b] {
        let pages: Vec<u64> = (range.0..range.0 + range.1).step_by(4096).collect();
        let mut nodes = vec![-1; pages.len()];
        sys::page_nodes(&pages, &mut nodes).unwrap();
        assert!(nodes.iter().all(|node| *node >= 0));
    }
}

#[test]
fn the_first_refusal_stops_all_workers() {
    let range = Range::new(64 * MIB);
    let hole = range.0 + 32 * MIB;
    // SAFETY: the hole lies inside the test's own range.
    unsafe { sys::map_fixed(hole, 4096, sys::Source::Inaccessible).unwrap() };
    let error = populate(
        &workers(&[0, 0]),
        &[target(range.0, range.1, 0)],
        &Control::default(),
    );
    let error = error.unwrap_err();
    let PopulateError::Refused {
        node,
        total,
        ref source,
        ..
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!((node, total), (0, 64 * MIB));
    assert!(source.raw_os_error().is_some());
}

#[test]
fn a_set_cancel_and_a_past_deadline_populate_nothing() {
    let range = Range::new(64 * MIB);
    let targets = [target(range.0, range.1, 0)];
    let cancel = Cancel::new();
    cancel.cancel();
    let control = Control {
        cancel: Some(&cancel),
        ..Control::default()
    };
    let error = populate(&workers(&[0]), &targets, &control).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Cancelled with 0 bytes of 64 MiB populated on node 0"
    );
    let control = Control {
        deadline: Some(Instant::now()),
        ..Control::default()
    };
    let error = populate(&workers(&[0]), &targets, &control).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Deadline passed with 0 bytes of 64 MiB populated on node 0"
    );
}

#[test]
fn a_target_nobody_works_for_is_refused() {
    let range = Range::new(MIB);
    let error = populate(
        &workers(&[0]),
        &[target(range.0, range.1, 5)],
        &Control::default(),
    );
    assert!(matches!(error, Err(PopulateError::NoWorkers(5))));
    let off = target(range.0 + 1, 4096, 0);
    let error = populate(&workers(&[0]), &[off], &Control::default());
    assert!(matches!(error, Err(PopulateError::Unaligned { .. })));
}
