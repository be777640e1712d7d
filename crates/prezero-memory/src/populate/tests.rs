//! Populating on ordinary memory, which every machine has; hugepages are in tests/hugepages.rs.

use std::sync::atomic::{AtomicU64, Ordering};

use prezero_host::PageSize;
use proptest::prelude::*;

use super::queue::{Queue, chunk_len};
use super::*;
use crate::plan::WorkerPlan;

const MIB: u64 = 1 << 20;

fn target(addr: u64, bytes: u64, node: u32) -> Target {
    Target {
        addr,
        len: PageBytes::new(bytes, PageSize::BASE).unwrap(),
        node,
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

/// The parts that workers of equal speed take, one chunk in turn.
fn parts(queue: &Queue, workers: usize) -> Vec<u64> {
    let mut parts = vec![0; workers];
    for n in 0.. {
        match queue.claim() {
            Some((_, _, len)) => parts[n % workers] += len,
            None => break,
        }
    }
    parts
}

#[test]
fn a_few_pages_are_shared_evenly_among_many_workers() {
    // 160 pages over 64 threads were once split as 63 × 2 + 34.
    let page = PageSize::HUGE_2M;
    let targets = [Target {
        addr: 0,
        len: PageBytes::from_pages(160, page).unwrap(),
        node: 0,
    }];
    let parts = parts(&Queue::new(0, &targets, 64), 64);
    assert_eq!(parts.iter().sum::<u64>(), 320 * MIB);
    let (least, most) = (parts.iter().min().unwrap(), parts.iter().max().unwrap());
    assert!(most - least <= page.bytes(), "{parts:?}");
}

#[test]
fn chunks_are_whole_pages_of_at_most_32_mib() {
    assert_eq!(chunk_len(16 << 30, PageSize::HUGE_2M, 2), 32 * MIB);
    assert_eq!(chunk_len(64 * MIB, PageSize::HUGE_2M, 2), 4 * MIB);
    assert_eq!(chunk_len(2 * MIB, PageSize::HUGE_2M, 64), 2 * MIB);
    assert_eq!(chunk_len(4 << 30, PageSize::HUGE_1G, 2), 1 << 30);
    assert_eq!(chunk_len(4096, PageSize::BASE, 1), 2 * MIB);
}

proptest! {
    #[test]
    fn chunks_cover_each_target_exactly_once(
        sizes in prop::collection::vec((1_u64..200, prop::bool::weighted(0.2)), 1..6),
        workers in 1_u64..70,
    ) {
        let mut addr = 0;
        let targets: Vec<Target> = sizes.iter().map(|&(pages, gigantic)| {
            let page = if gigantic { PageSize::HUGE_1G } else { PageSize::HUGE_2M };
            let len = PageBytes::from_pages(if gigantic { pages % 4 + 1 } else { pages }, page).unwrap();
            let start = page.round_up(addr).unwrap();
            addr = start + len.bytes();
            Target { addr: start, len, node: 0 }
        }).collect();
        let queue = Queue::new(0, &targets, workers);
        let mut chunks: Vec<(u64, u64)> = Vec::new();
        while let Some((target, addr, len)) = queue.claim() {
            let page = target.len.page_size();
            prop_assert!(page.is_aligned(addr) && page.is_aligned(len) && len > 0);
            prop_assert!(len <= 32 << 20 || len == page.bytes());
            chunks.push((addr, len));
        }
        chunks.sort_unstable();
        let mut covered: Vec<(u64, u64)> = Vec::new();
        for (addr, len) in chunks {
            match covered.last_mut() {
                Some(last) if last.0 + last.1 == addr => last.1 += len,
                Some(last) => { prop_assert!(last.0 + last.1 < addr); covered.push((addr, len)); }
                None => covered.push((addr, len)),
            }
        }
        let mut wanted: Vec<(u64, u64)> = Vec::new();
        for target in &targets {
            match wanted.last_mut() {
                Some(last) if last.0 + last.1 == target.addr => last.1 += target.len.bytes(),
                _ => wanted.push((target.addr, target.len.bytes())),
            }
        }
        prop_assert_eq!(covered, wanted);
    }
}
