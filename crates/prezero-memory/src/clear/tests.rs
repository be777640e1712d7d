//! Clearing on ordinary memory, which every machine has; hugepages are in tests/clearing.rs.

use std::ptr;

use prezero_host::PageSize;
use proptest::prelude::*;

use super::choice::{PART, piece_len};
use super::*;
use crate::control::Cancel;
use crate::plan::WorkerPlan;
use crate::size::PageBytes;
use crate::sys;

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
            assert_eq!(report.calibration, None);
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
    assert!(matches!(error, ClearError::Chunk(_)), "{error}");
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
    let (_, bytes) = report.calibration.unwrap();
    assert!(bytes > 0 && bytes <= range.1 / PART * 2, "{bytes}");
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
    assert_eq!(report.calibration, None);
}

#[test]
fn a_known_calibration_decides_by_the_crossing() {
    let best = Method::named("portable").unwrap();
    let known = |crossing| MethodChoice::Known(Calibration { best, crossing });
    let chosen = |crossing| Choosing::new(0, 8 * MIB, &known(crossing)).chosen();
    assert_eq!(chosen(8 * MIB).method, best);
    assert_eq!(chosen(8 * MIB).reason, Reason::Known);
    assert_eq!(chosen(8 * MIB + 1).method, Method::cached());
    assert_eq!(chosen(8 * MIB + 1).reason, Reason::Small);
}

/// Has a worker try all candidates, each as slow as `time` says, and returns how often each was tried.
fn try_all(choosing: &Choosing, time: impl Fn(Method) -> u64) -> Vec<(Method, u32)> {
    let mut tried = Tried::new(choosing);
    let mut counts: Vec<(Method, u32)> = Vec::new();
    while let Some(method) = tried.candidate() {
        match counts.iter_mut().find(|(known, _)| *known == method) {
            Some((_, count)) => *count += 1,
            None => counts.push((method, 1)),
        }
        tried.record(Duration::from_micros(time(method)));
    }
    choosing.settle(&tried);
    counts
}

#[test]
fn a_cpu_whose_uncached_stores_are_slow_ends_with_cached_ones() {
    let choosing = Choosing::new(0, 1 << 30, &MethodChoice::Measured);
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
    let choosing = Choosing::new(0, 1 << 30, &MethodChoice::Measured);
    let (quick, slow) = (Method::named("movnti"), Method::named("rep-stosb"));
    let (Ok(quick), Ok(slow)) = (quick, slow) else {
        println!("skipped: a second method");
        return;
    };
    // One worker was disturbed and found the other way round.
    let counts = try_all(&choosing, |method| if method == slow { 90 } else { 100 });
    assert!(counts.iter().all(|(_, count)| *count == 3));
    assert_eq!(choosing.method(), slow);
    let counts = try_all(&choosing, |method| if method == quick { 40 } else { 100 });
    let count = |wanted| {
        counts
            .iter()
            .find(|(method, _)| *method == wanted)
            .unwrap()
            .1
    };
    assert_eq!((count(quick), count(slow)), (3, 1));
    assert_eq!(choosing.method(), quick);
    let trial = choosing
        .chosen()
        .trials
        .iter()
        .find(|t| t.method == quick)
        .copied();
    assert_eq!(trial.unwrap().time, Duration::from_micros(70));
}

#[test]
fn a_worker_that_could_not_try_all_is_not_heard() {
    let choosing = Choosing::new(0, 1 << 30, &MethodChoice::Measured);
    let before = choosing.method();
    let mut tried = Tried::new(&choosing);
    tried.candidate().unwrap();
    tried.record(Duration::from_secs(1));
    choosing.settle(&tried);
    assert_eq!(choosing.method(), before);
    assert_eq!(choosing.chosen().trials, []);
}

proptest! {
    #[test]
    fn trying_stays_below_five_percent_of_the_clear(share in 0..1_u64 << 44, candidates in 1_usize..9) {
        let Some(piece) = piece_len(share, candidates) else { return Ok(()) };
        prop_assert!(piece.is_multiple_of(64));
        // One candidate is the best; the others are four times slower, and out after the first round.
        let time = piece * (3 + 4 * (candidates as u64 - 1));
        prop_assert!(time <= share / 20, "{} of {}", time, share);
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
