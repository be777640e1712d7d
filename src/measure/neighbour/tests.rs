use std::time::{Duration, Instant};

use prezero_clear::{Method, Stores};
use prezero_host::Host;
use prezero_memory::{Cancel, Control, Hugepages, MemorySpec};

use super::pass::{alone, beside};
use super::verdict::{Verdict, Versus};
use super::*;
use crate::measure::stats::Summary;

fn here() -> Place {
    let cpus: Vec<u32> = Host::probe().unasked_cpus().iter().collect();
    place(&cpus, 1, &Sharing::of(cpus[0])).expect("a CPU")
}

fn memory(cancel: &Cancel, bytes: u64) -> Memory<'_> {
    let spec = MemorySpec {
        hugepages: Hugepages::Off,
        ..MemorySpec::new(bytes)
    };
    let control = Control {
        cancel: Some(cancel),
        ..Control::default()
    };
    Memory::take(&Host::probe(), spec, &[1], control, &|_| ()).expect("a little memory")
}

#[test]
fn the_background_clears_all_the_while_and_its_ends_are_left_out() {
    const BYTES: u64 = 64 << 20;
    let cancel = Cancel::new();
    let mut memory = memory(&cancel, BYTES);
    let mut chase = Chase::new(1 << 20).expect("1 MiB");
    let place = here();
    for rate in [None, Some(1 << 30)] {
        let how = How {
            place: &place,
            rate,
            cancel: &cancel,
        };
        // On a busy machine the reader may be kept off its CPU meanwhile.
        let mut tries = (0..20).filter_map(|_| {
            let spans = memory.dirty_spans().expect("not cancelled");
            match beside(&mut chase, spans, Method::cached(), how) {
                Ok(Taken::Pass(pass)) => Some(pass.sample),
                _ => None,
            }
        });
        let sample = tries.next().expect("64 MiB are enough");
        // A sixteenth at either end.
        assert!(sample.cleared <= BYTES - BYTES / 16, "{sample:?}");
        assert!(sample.cleared > 0 && sample.accesses > 0, "{sample:?}");
    }
}

#[test]
fn a_rate_is_never_exceeded() {
    let cancel = Cancel::new();
    let mut memory = memory(&cancel, 8 << 20);
    let spans = memory.dirty_spans().expect("not cancelled");
    let dirty = super::background::Dirty::new(spans, 1);
    let start = Instant::now();
    dirty.clear(Method::cached(), Some(80 << 20));
    assert!(start.elapsed() >= Duration::from_millis(100));
    assert_eq!((dirty.done(), dirty.total()), (8 << 20, 8 << 20));
    assert!(!dirty.all_running(1), "it has ended");
}

#[test]
fn memory_that_is_cleared_at_once_is_no_background() {
    let cancel = Cancel::new();
    let mut memory = memory(&cancel, 2 << 20);
    let mut chase = Chase::new(4096).expect("a page");
    let place = here();
    let how = How {
        place: &place,
        rate: None,
        cancel: &cancel,
    };
    let spans = memory.dirty_spans().expect("not cancelled");
    // A single piece is never done in part.
    let taken = beside(&mut chase, spans, Method::cached(), how).expect("threads");
    assert!(matches!(taken, Taken::TooLittle), "{taken:?}");
    let rows = rows(1, &[Method::cached()]);
    let failure = measure(&mut memory, &mut [chase], &rows, 1, how, &|_| ());
    let failure = failure.expect_err("too little");
    assert_eq!(failure.class, Class::Usage);
    assert_eq!(failure.fix.as_deref(), Some("--memory 8M"));
}

#[test]
fn what_the_instrument_adds_to_a_batch_is_measured_without_reads() {
    let cancel = Cancel::new();
    let mut memory = memory(&cancel, 16 << 20);
    let mut sets = [Chase::new(1 << 20).expect("1 MiB")];
    let place = here();
    let how = How {
        place: &place,
        rate: None,
        cancel: &cancel,
    };
    let rows = rows(1, &[]);
    let outcome = measure(&mut memory, &mut sets, &rows, 1, how, &|_| ()).expect("alone");
    let (own, shortest) = outcome.own.expect("a set");
    assert!(own.time > Duration::ZERO && own.time < shortest, "{own:?}");
    assert_eq!(shortest, outcome.measured[0].samples[0].batch());
    let at = sets[0].at();
    pass::empty(&mut sets[0], how).expect("a thread");
    assert_eq!(sets[0].at(), at, "no line was followed");
}

#[test]
fn passes_that_come_to_nothing_are_run_again_and_counted() {
    let mut passes = 0;
    let third = tried(|| {
        passes += 1;
        Ok(match passes {
            3 => Taken::Cancelled,
            _ => Taken::TooLittle,
        })
    });
    assert!(matches!(third, Ok((Taken::Cancelled, 2))), "{third:?}");
    // Memory that is always too little is the caller's affair, and so is any failure at once.
    let never = tried(|| Ok(Taken::TooLittle));
    assert!(matches!(never, Ok((Taken::TooLittle, 7))), "{never:?}");
    let mut passes = 0;
    let failed = tried(|| {
        passes += 1;
        Err(pass::too_little(1))
    });
    assert!(failed.is_err() && passes == 1);
}

#[test]
fn a_cancelled_pass_has_no_sample() {
    let cancel = Cancel::new();
    let mut memory = memory(&cancel, 16 << 20);
    let mut sets = [Chase::new(4096).expect("a page")];
    let place = here();
    let how = How {
        place: &place,
        rate: None,
        cancel: &cancel,
    };
    cancel.cancel();
    assert!(alone(&mut sets[0], how).is_ok_and(|taken| matches!(taken, Taken::Cancelled)));
    let rows = rows(1, &[Method::cached()]);
    let failure = measure(&mut memory, &mut sets, &rows, 2, how, &|_| ()).expect_err("cancelled");
    assert_eq!(failure.class, Class::Stopped);
    assert!(failure.message.contains("0 of 6 passes"), "{failure:?}");
}

#[test]
fn each_set_is_measured_alone_and_next_to_each_method() {
    let methods = [
        Method::cached(),
        Method::named("portable").expect("everywhere"),
    ];
    let rows = rows(2, &methods);
    let names: Vec<String> = rows.iter().map(|row| row.name(1 << 20)).collect();
    assert_eq!(
        names[..3],
        ["1M alone", "1M next to cached", "1M next to portable"]
    );
    assert_eq!((rows.len(), rows[3].set), (6, 1));
}

fn sample(accesses: u64, ms: u64, cleared: u64) -> Sample {
    Sample {
        accesses,
        time: Duration::from_millis(ms),
        cleared,
        counts: None,
    }
}

#[track_caller]
fn close(found: f64, wanted: f64) {
    assert!(
        (found - wanted).abs() < 1e-9 * wanted.abs().max(1.0),
        "{found} is not {wanted}"
    );
}

#[test]
fn what_is_lost_for_each_gib_is_the_time_that_the_reads_would_not_have_taken_alone() {
    // 100 ns alone. Next to half a GiB in 250 ms, 2 million reads take 125 ns: 50 ms are lost on it.
    let alone = [sample(1_000_000, 100, 0), sample(1_000_000, 100, 0)];
    let beside = [
        sample(2_000_000, 250, 1 << 29),
        sample(2_000_000, 250, 1 << 29),
    ];
    let figures = Figures::of(&beside, Some(&alone)).expect("samples");
    close(figures.ns_per_access.mean, 125.0);
    close(figures.accesses_per_second.mean, 8e6);
    let beside = figures.beside.expect("a background");
    close(beside.slowdown_percent.mean, 25.0);
    close(beside.lost_ms_per_gib.mean, 100.0);
    close(beside.background_gbps.mean, f64::from(1 << 29) / 0.25 / 1e9);
    assert_eq!(Figures::of(&alone, None).expect("samples").beside, None);
    assert_eq!(Figures::of(&[], None), None);
}

#[test]
fn samples_are_compared_within_their_round() {
    // The machine is twice as slow in the second round, for both.
    let alone = [sample(1000, 100, 0), sample(1000, 200, 0)];
    let beside = [sample(1000, 110, 1 << 30), sample(1000, 220, 1 << 30)];
    let figures = Figures::of(&beside, Some(&alone)).expect("samples");
    let slowdown = figures.beside.expect("a background").slowdown_percent;
    close(slowdown.mean, 10.0);
    close(slowdown.stdev.expect("two"), 0.0);
}

fn measured(method: Option<Method>, slowdown: [f64; 2], lost: [f64; 2]) -> Measured {
    let summary = |figures: [f64; 2]| Summary::of(&figures).expect("figures");
    Measured {
        row: Row { set: 0, method },
        samples: Vec::new(),
        repeated: 0,
        counts: None,
        figures: Figures {
            ns_per_access: summary([1.0; 2]),
            accesses_per_second: summary([1.0; 2]),
            beside: method.map(|_| Beside {
                slowdown_percent: summary(slowdown),
                background_gbps: summary([10.0; 2]),
                lost_ms_per_gib: summary(lost),
            }),
        },
    }
}

#[test]
fn the_time_lost_for_each_gib_decides_and_the_slowdown_is_told_apart() {
    let Some(uncached) = Method::available().find(|method| method.stores() == Stores::Uncached)
    else {
        return;
    };
    let verdict = |slowdown, lost| {
        let rows = [
            measured(None, [0.0; 2], [0.0; 2]),
            // The worse of two cached ones does not count.
            measured(Method::named("portable").ok(), [90.0; 2], [90.0; 2]),
            measured(Some(Method::cached()), [10.0, 10.2], [5.0, 5.2]),
            measured(Some(uncached), slowdown, lost),
        ];
        let verdict = Verdict::of(0, &rows).expect("both kinds");
        assert_eq!(verdict.cached.0, Method::cached());
        (verdict.meanwhile, verdict.per_gib, verdict.helps())
    };
    use Versus::{Less, More, Same};
    // The common case on large machines: more of the bandwidth, but for a shorter time.
    assert_eq!(verdict([15.0, 15.1], [3.0, 3.1]), (More, Less, true));
    assert_eq!(verdict([5.0, 5.1], [3.0, 3.1]), (Less, Less, true));
    assert_eq!(verdict([15.0, 15.1], [9.0, 9.1]), (More, More, false));
    assert_eq!(verdict([5.0, 5.1], [9.0, 9.1]), (Less, More, false));
    // Within the noise it does not help.
    assert_eq!(verdict([5.0, 15.0], [3.0, 7.0]), (Same, Same, false));
}

#[test]
fn without_both_kinds_there_is_no_verdict() {
    let rows = [measured(Some(Method::cached()), [1.0; 2], [1.0; 2])];
    assert!(Verdict::of(0, &rows).is_none());
    assert!(Verdict::of(1, &rows).is_none());
}
