//! Clearing on ordinary memory, which every machine has; hugepages are in tests/clearing.rs.

use std::ptr;

use prezero_host::PageSize;
use proptest::prelude::*;

use super::*;
use crate::control::Cancel;
use crate::plan::{Origin, WorkerPlan};
use crate::size::PageBytes;
use crate::sys;
use crate::work::Queue;

const MIB: u64 = 1 << 20;
const STAIN: u8 = 0xa5;

/// Memory of this process for a test, full of stains; given back on drop.
struct Range(u64, u64);

impl Range {
    fn new(len: u64) -> Self {
        let addr = sys::reserve_addresses(len).unwrap();
        // SAFETY: the range was reserved just above, and is as long as the mapping.
        unsafe {
            sys::map_fixed(addr, len, sys::Source::Anonymous).unwrap();
            ptr::write_bytes(addr as *mut u8, STAIN, usize::try_from(len).unwrap());
        }
        Self(addr, len)
    }

    fn target(&self, node: u32, origin: Origin) -> Target {
        Target {
            addr: self.0,
            len: PageBytes::new(self.1, PageSize::BASE).unwrap(),
            node,
            origin,
        }
    }

    /// How many bytes lie in words of `byte`s only.
    fn count(&self, byte: u8) -> u64 {
        let word = u64::from_ne_bytes([byte; 8]);
        let all = (self.0..self.0 + self.1).step_by(8).filter(|addr| {
            // SAFETY: the address lies in the range, which is mapped and starts on a page.
            unsafe { ptr::read_volatile(*addr as *const u64) == word }
        });
        all.count() as u64 * 8
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        // SAFETY: nothing uses the range any more.
        unsafe { sys::unmap(self.0, self.1).unwrap() };
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

fn cleared(
    nodes: &[u32],
    targets: &[Target],
    request: &ClearRequest,
) -> Result<ClearReport, ClearError> {
    // SAFETY: the targets of these tests are their own, written to and mapped.
    unsafe { clear(&workers(nodes), targets, request, &Control::default()) }
}

#[test]
fn dirty_targets_are_zero_afterwards_and_fresh_ones_are_not_touched() {
    let (dirty, fresh, other) = (Range::new(5 * MIB), Range::new(MIB), Range::new(3 * MIB));
    let targets = [
        dirty.target(0, Origin::Dirty),
        fresh.target(0, Origin::Fresh),
        other.target(7, Origin::Dirty),
    ];
    let report = cleared(&[0, 0, 7], &targets, &ClearRequest::default()).unwrap();
    assert_eq!(report.bytes, 8 * MIB);
    assert_eq!((dirty.count(0), other.count(0)), (5 * MIB, 3 * MIB));
    assert_eq!(fresh.count(STAIN), MIB);
    let by_worker: Vec<u64> = report.workers.iter().map(|w| w.cleared_bytes).collect();
    assert_eq!(by_worker.iter().sum::<u64>(), 8 * MIB);
    assert_eq!(by_worker[2], 3 * MIB);
    let nodes: Vec<u32> = report.choices.iter().map(|choice| choice.node).collect();
    assert_eq!(nodes, [0, 7]);
}

#[test]
fn a_rehearsal_stores_nothing_and_takes_its_time() {
    let range = Range::new(5 * MIB);
    let targets = [range.target(0, Origin::Dirty)];
    let request = ClearRequest::default();
    let time = rehearse(&workers(&[0, 0]), &targets, &request, &Control::default()).unwrap();
    assert_eq!(range.count(STAIN), 5 * MIB);
    assert!(time > Duration::ZERO);
    let fresh = [range.target(0, Origin::Fresh)];
    let none = rehearse(&workers(&[0]), &fresh, &request, &Control::default()).unwrap();
    assert_eq!(none, Duration::ZERO);
    let cancel = Cancel::new();
    cancel.cancel();
    let control = Control {
        cancel: Some(&cancel),
        ..Control::default()
    };
    let stopped = rehearse(&workers(&[0]), &targets, &request, &control).unwrap_err();
    assert!(matches!(stopped, ClearError::Stopped { .. }), "{stopped}");
}

#[test]
fn nothing_to_clear_costs_nothing() {
    let fresh = Range::new(MIB);
    let targets = [fresh.target(0, Origin::Fresh)];
    let report = cleared(&[0], &targets, &ClearRequest::default()).unwrap();
    assert_eq!(report, ClearReport::default());
}

#[test]
fn everything_is_cleared_where_asked_for() {
    let fresh = Range::new(3 * MIB);
    let request = ClearRequest {
        extents: ClearExtents::All,
        ..ClearRequest::default()
    };
    let targets = [fresh.target(0, Origin::Fresh)];
    assert_eq!(cleared(&[0], &targets, &request).unwrap().bytes, 3 * MIB);
    assert_eq!(fresh.count(0), 3 * MIB);
}

#[test]
fn every_method_and_chunk_clears_all_of_it() {
    let range = Range::new(3 * MIB + 4096);
    let targets = [range.target(0, Origin::Dirty)];
    for method in Method::available() {
        for chunk in [None, Some(4096), Some(MIB), Some(1 << 30)] {
            // SAFETY: the test's own memory.
            unsafe {
                stain(&workers(&[0]), &targets, STAIN, &Control::default()).unwrap();
            }
            assert_eq!(range.count(STAIN), range.1);
            let request = ClearRequest {
                choice: MethodChoice::Fixed(method),
                chunk,
                used_next: vec![range.0 + MIB, range.0 + 3 * MIB, 17],
                ..ClearRequest::default()
            };
            let report = cleared(&[0, 0], &targets, &request).unwrap();
            assert_eq!(range.count(0), range.1, "{method} {chunk:?}");
            let choice = &report.choices[0];
            assert_eq!((choice.method, choice.reason), (method, Reason::Requested));
            assert_eq!(report.calibrating, None);
        }
    }
}

#[test]
fn a_chunk_that_is_no_page_is_refused_before_a_store() {
    let range = Range::new(MIB);
    let request = ClearRequest {
        chunk: Some(100),
        ..ClearRequest::default()
    };
    let error = cleared(&[0], &[range.target(0, Origin::Dirty)], &request).unwrap_err();
    assert_eq!(
        error.to_string(),
        "A chunk of 100 bytes is not a multiple of 4 KiB up to 1 GiB"
    );
    assert_eq!(range.count(STAIN), MIB);
}

#[test]
fn cancelled_clearing_is_an_error() {
    let range = Range::new(MIB);
    let cancel = Cancel::new();
    cancel.cancel();
    let control = Control {
        cancel: Some(&cancel),
        ..Control::default()
    };
    let targets = [range.target(0, Origin::Dirty)];
    // SAFETY: the test's own memory.
    let error = unsafe { clear(&workers(&[0]), &targets, &ClearRequest::default(), &control) };
    assert_eq!(
        error.unwrap_err().to_string(),
        "Cancelled with 0 bytes of 1 MiB cleared on node 0"
    );
}

#[test]
fn measuring_tries_every_method_on_memory_that_has_to_be_cleared_anyway() {
    let range = Range::new(96 * MIB);
    let targets = [range.target(0, Origin::Dirty)];
    let report = cleared(&[0], &targets, &ClearRequest::default()).unwrap();
    assert_eq!(report.bytes, 96 * MIB);
    let choice = &report.choices[0];
    assert_eq!(choice.reason, Reason::Measured);
    let tried: Vec<Method> = choice.trials.iter().map(|trial| trial.method).collect();
    assert!(tried.contains(&Method::cached()) && tried.contains(&choice.method));
    let best = choice.trials.iter().min_by_key(|trial| trial.time).unwrap();
    assert_eq!(best.method, choice.method);
    let bytes = report.calibrating.unwrap().bytes;
    assert!(bytes > 0 && bytes <= range.1 / 20, "{bytes}");
    let known = choice.calibration().unwrap();
    assert_eq!(known.best, choice.method);
    assert!(known.crossing < MIB);
    assert_eq!(range.count(0), range.1);
}

#[test]
fn what_is_too_small_to_measure_is_cleared_with_cached_stores() {
    let range = Range::new(MIB);
    let report = cleared(
        &[0],
        &[range.target(0, Origin::Dirty)],
        &ClearRequest::default(),
    )
    .unwrap();
    let choice = &report.choices[0];
    assert_eq!(
        (choice.method, choice.reason),
        (Method::cached(), Reason::Small)
    );
    assert_eq!(report.calibrating, None);
}

#[test]
fn what_is_known_decides_for_each_extent_by_the_crossing() {
    let best = Method::named("portable").unwrap();
    let crossing = 8 * MIB;
    let known = MethodChoice::Known(Calibration { best, crossing });
    let choosing = Choosing::new(0, 1 << 30, 1 << 30, &known);
    assert_eq!(choosing.method(crossing), best);
    assert_eq!(choosing.method(crossing - 1), Method::cached());
    let chosen = choosing.chosen();
    assert_eq!((chosen.method, chosen.reason), (best, Reason::Known));
    assert_eq!(chosen.calibration(), None);
}

#[test]
fn extents_below_the_pieces_that_were_tried_get_cached_stores() {
    let choosing = Choosing::new(0, 1 << 30, 1 << 30, &MethodChoice::Measured);
    let piece = choosing.piece().unwrap();
    let best = try_all(&choosing, |method| if method == slow() { 9 } else { 10 });
    assert!(best.iter().any(|(method, _)| *method == slow()));
    assert_eq!(choosing.method(piece), slow());
    assert_eq!(choosing.method(piece - 1), Method::cached());
}

/// A method of every x86-64 CPU that is not `cached`, or else `cached`.
fn slow() -> Method {
    Method::named("rep-stosb").unwrap_or_else(|_| Method::cached())
}

/// Has a worker try all candidates, each as slow as `time` says, and returns how often each was tried.
fn try_all(choosing: &Choosing, time: impl Fn(Method) -> u64) -> Vec<(Method, u32)> {
    let mut tried = Tried::new(choosing);
    let mut counts: Vec<(Method, u32)> = Vec::new();
    // The first piece says nothing about the method.
    tried.candidate();
    tried.record(choosing.piece().unwrap(), Duration::from_micros(99));
    while let Some(method) = tried.candidate() {
        match counts.iter_mut().find(|(known, _)| *known == method) {
            Some((_, count)) => *count += 1,
            None => counts.push((method, 1)),
        }
        let piece = choosing.piece().unwrap();
        tried.record(piece, Duration::from_micros(time(method)));
    }
    choosing.settle(&tried);
    counts
}

#[test]
fn a_cpu_whose_uncached_stores_are_slow_ends_with_cached_ones() {
    let choosing = Choosing::new(0, 1 << 30, 1 << 30, &MethodChoice::Measured);
    let counts = try_all(&choosing, |method| match method == Method::cached() {
        true => 63,
        false => 65,
    });
    assert!(counts.iter().all(|(_, count)| *count == 3), "{counts:?}");
    let chosen = choosing.chosen();
    assert_eq!(
        (chosen.method, chosen.reason),
        (Method::cached(), Reason::Measured)
    );
}

#[test]
fn slow_candidates_are_tried_once_and_the_workers_decide_together() {
    let choosing = Choosing::new(0, 1 << 30, 1 << 30, &MethodChoice::Measured);
    let (Ok(quick), Ok(slow)) = (Method::named("movnti"), Method::named("rep-stosb")) else {
        println!("skipped: a second method");
        return;
    };
    // One worker was disturbed and found the other way round.
    let counts = try_all(&choosing, |method| if method == slow { 90 } else { 100 });
    assert!(counts.iter().all(|(_, count)| *count == 3));
    assert_eq!(choosing.method(1 << 30), slow);
    let counts = try_all(&choosing, |method| if method == quick { 40 } else { 100 });
    let count = |wanted| {
        let mut counts = counts.iter();
        counts.find(|(method, _)| *method == wanted).unwrap().1
    };
    assert_eq!((count(quick), count(slow)), (3, 1));
    let chosen = choosing.chosen();
    assert_eq!(chosen.method, quick);
    let trial = chosen.trials.iter().find(|trial| trial.method == quick);
    assert_eq!(trial.unwrap().time, Duration::from_micros(70));
}

#[test]
fn where_nothing_could_be_tried_the_rest_gets_cached_stores() {
    let choosing = Choosing::new(0, 1 << 30, 1 << 30, &MethodChoice::Measured);
    let mut tried = Tried::new(&choosing);
    let mut short = 0;
    while tried.candidate().is_some() {
        tried.record(4096, Duration::from_micros(1));
        short += 1;
    }
    assert!(short < 100, "{short}");
    choosing.settle(&tried);
    assert_eq!(choosing.method(1 << 30), Method::cached());
    let chosen = choosing.chosen();
    assert_eq!((chosen.reason, chosen.trials), (Reason::Small, vec![]));
}

#[test]
fn small_extents_do_not_keep_the_workers_trying() {
    let range = Range::new(64 * MIB);
    let targets: Vec<Target> = (0..1024)
        .map(|n| Target {
            addr: range.0 + n * 65536,
            len: PageBytes::new(65536, PageSize::BASE).unwrap(),
            node: 0,
            origin: Origin::Dirty,
        })
        .collect();
    let report = cleared(&[0], &targets, &ClearRequest::default()).unwrap();
    assert_eq!(range.count(0), range.1);
    let tried = report.calibrating.map_or(0, |tried| tried.bytes);
    assert!(tried <= range.1 / 20, "{tried}");
}

#[test]
fn targets_that_share_memory_are_refused_before_a_store() {
    let range = Range::new(4 * MIB);
    let whole = range.target(0, Origin::Dirty);
    let part = Target {
        addr: range.0 + MIB,
        len: PageBytes::new(MIB, PageSize::BASE).unwrap(),
        ..whole
    };
    for targets in [[whole, whole], [whole, part], [part, whole]] {
        let error = cleared(&[0], &targets, &ClearRequest::default()).unwrap_err();
        assert!(matches!(error, ClearError::Overlap { .. }), "{error}");
    }
    assert_eq!(range.count(STAIN), range.1);
}

proptest! {
    #[test]
    fn trying_stays_below_five_percent_of_the_clear(
        share in 0..1_u64 << 40,
        slower in prop::collection::vec(1.0..10.0_f64, 8),
    ) {
        let choosing = Choosing::new(0, share, share, &MethodChoice::Measured);
        let Some(piece) = choosing.piece() else { return Ok(()) };
        let mut tried = Tried::new(&choosing);
        let (mut spent, mut best) = (Duration::ZERO, Duration::MAX);
        let mut first = true;
        while let Some(method) = tried.candidate() {
            let n = Method::NAMES.iter().position(|name| *name == method.name()).unwrap();
            let time = Duration::from_nanos(piece).mul_f64(slower[n]);
            spent += time;
            best = if first { best } else { best.min(time) };
            first = false;
            tried.record(piece, time);
        }
        let expected = best.as_secs_f64() * share as f64 / piece as f64;
        prop_assert!(spent.as_secs_f64() <= expected / 20.0, "{:?} of {}", spent, expected);
    }

    #[test]
    fn hot_pages_come_last_and_nothing_is_lost(
        sizes in prop::collection::vec((1_u64..50, prop::bool::weighted(0.3)), 1..5),
        used in prop::collection::vec(0..200 * MIB, 0..4),
        gigantic: bool,
    ) {
        let mut addr = 0;
        let targets: Vec<Target> = sizes.iter().map(|&(pages, base)| {
            let page = if base { PageSize::BASE } else { PageSize::HUGE_2M };
            let start = page.round_up(addr).unwrap();
            let len = PageBytes::from_pages(pages, page).unwrap();
            addr = start + len.bytes();
            Target { addr: start, len, node: 0, origin: Origin::Dirty }
        }).collect();
        let request = ClearRequest {
            used_next: used.clone(),
            used_next_in_gigantic: gigantic,
            ..ClearRequest::default()
        };
        let (cut, hot) = hot::pages_last(&targets, &request);
        let bytes = |targets: &[Target]| targets.iter().map(|t| t.len.bytes()).sum::<u64>();
        prop_assert_eq!(bytes(&cut), bytes(&targets));
        let mut sorted: Vec<(u64, u64)> = cut.iter().map(|t| (t.addr, t.len.bytes())).collect();
        sorted.sort_unstable();
        prop_assert!(sorted.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        let held = |addr: &u64| targets.iter().any(|t| addr.wrapping_sub(t.addr) < t.len.bytes());
        let used: Vec<u64> = used.into_iter().filter(held).collect();
        prop_assert!(hot.len() <= used.len() && hot.is_empty() == used.is_empty());
        // Workers get them in that order.
        let queue = Queue::new(0, &cut, 1, 0);
        let claimed: Vec<u64> = std::iter::from_fn(|| queue.claim()).map(|c| c.addr).collect();
        let last = cut.last().map(|t| t.addr..t.addr + t.len.bytes());
        prop_assert!(claimed.last().is_some_and(|addr| last.unwrap().contains(addr)));
        if let (Some(first), Some(last)) = (hot.first(), cut.last()) {
            prop_assert!(*first as u64 == used[0] && last.len.bytes() <= 2 * MIB);
        }
    }
}

#[test]
fn gigantic_pages_are_cleared_straight_through_unless_asked() {
    let target = Target {
        addr: 0,
        len: PageBytes::from_pages(3, PageSize::HUGE_1G).unwrap(),
        node: 0,
        origin: Origin::Dirty,
    };
    let mut request = ClearRequest {
        used_next: vec![(1 << 30) + 5],
        ..ClearRequest::default()
    };
    assert_eq!(hot::pages_last(&[target], &request), (vec![target], vec![]));
    request.used_next_in_gigantic = true;
    let (cut, hot) = hot::pages_last(&[target], &request);
    let starts: Vec<u64> = cut.iter().map(|target| target.addr).collect();
    assert_eq!(starts, [0, 2 << 30, 1 << 30]);
    assert_eq!(hot, [(1 << 30) + 5]);
}
