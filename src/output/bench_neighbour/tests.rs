use super::*;
use crate::report::bench_neighbour::{SampleFacts, SideFacts};
use crate::report::counters::{CountsFacts, UnavailableFacts};
use crate::report::own_cost::InstrumentFacts;

fn spread(mean: f64, stdev: f64) -> FigureFacts {
    FigureFacts {
        mean,
        stdev: Some(stdev),
        min: mean - stdev,
        max: mean + stdev,
    }
}

fn row(set: u64, method: Option<&'static str>, ns: f64, rest: Option<[f64; 3]>) -> RowFacts {
    let [slowdown, gbps, lost] = [0, 1, 2].map(|n| rest.map(|rest| spread(rest[n], 0.25)));
    RowFacts {
        working_set: set,
        method,
        stores: method.map(|method| match method {
            "rep-stosb" => "cached",
            _ => "uncached",
        }),
        runs: 3,
        repeated: 0,
        ns_per_access: spread(ns, 0.125),
        accesses_per_second: spread(1e9 / ns, 1e6),
        slowdown_percent: slowdown,
        background_gbps: gbps,
        lost_ms_per_gib: lost,
        samples: vec![SampleFacts {
            accesses: 512,
            ns: 512,
            cleared_bytes: 0,
        }],
        counters: None,
    }
}

fn side(method: &'static str, [slowdown, gbps, lost]: [f64; 3]) -> SideFacts {
    SideFacts {
        method,
        slowdown_percent: slowdown,
        lost_ms_per_gib: lost,
        background_gbps: gbps,
    }
}

/// A report of fixed figures: two working sets, a cached and an uncached method.
pub(in super::super) fn fixed() -> NeighbourReport {
    let sets = [(1 << 20, 4.0, 1 << 20), (128 << 20, 80.0, 0)];
    let (cached, uncached) = ([10.0, 12.5, 8.0], [15.0, 40.0, 3.5]);
    let rows = sets.iter().flat_map(|&(set, ns, _)| {
        [
            row(set, None, ns, None),
            row(set, Some("rep-stosb"), ns * 1.125, Some(cached)),
            row(set, Some("clzero"), ns * 1.25, Some(uncached)),
        ]
    });
    NeighbourReport {
        cpus: Some(CpuFacts {
            foreground: 0,
            background: vec![1],
            same_cache: Some(true),
            same_core: false,
        }),
        background: Some(BackgroundFacts::new(1 << 30, 2 << 20, None)),
        working_sets: sets
            .map(|(bytes, _, huge_bytes)| SetFacts {
                bytes,
                line_bytes: 64,
                huge_bytes,
            })
            .to_vec(),
        rows: rows.collect(),
        verdicts: vec![
            said("less", "more", 1 << 20),
            said("more", "more", 128 << 20),
        ],
        ..NeighbourReport::new()
    }
}

fn said(per_gib: &'static str, meanwhile: &'static str, working_set: u64) -> VerdictFacts {
    VerdictFacts {
        working_set,
        uncached: side("clzero", [15.0, 40.0, 3.5]),
        cached: side("rep-stosb", [10.0, 12.5, 8.0]),
        per_gib,
        meanwhile,
        helps: per_gib == "less",
    }
}

fn text(report: &NeighbourReport) -> String {
    let mut out = Vec::new();
    neighbour(&mut out, report).expect("memory takes it");
    String::from_utf8(out).expect("UTF-8")
}

#[test]
fn fixed_figures_have_their_text() {
    let wanted = "\
Random reads on CPU 0, next to clearing 1 GiB on 2 MiB pages that hold other bytes
on CPU 1, with the same last-level cache; 2 MiB at a time, 1 thread
mean ± σ of 3 runs

1M on THP   ns/read    reads/µs  slower by %  GB/s cleared  lost ms/GiB
    alone  4.0 ±0.1  250.0 ±1.0
rep-stosb  4.5 ±0.1  222.2 ±1.0    10.0 ±0.2     12.5 ±0.2   8.00 ±0.25
   clzero  5.0 ±0.1  200.0 ±1.0    15.0 ±0.2     40.0 ±0.2   3.50 ±0.25

128M on base pages     ns/read   reads/µs  slower by %  GB/s cleared  lost ms/GiB
             alone   80.0 ±0.1  12.5 ±1.0
         rep-stosb   90.0 ±0.1  11.1 ±1.0    10.0 ±0.2     12.5 ±0.2   8.00 ±0.25
            clzero  100.0 ±0.1  10.0 ±1.0    15.0 ±0.2     40.0 ±0.2   3.50 ±0.25

ms/GiB    time that the reads lose for each GiB (2^30 bytes) cleared: this decides
1M        uncached stores help for each GiB, as they are done sooner; meanwhile the reads are slower
          clzero against rep-stosb: 3.50 and 8.00 ms/GiB, +15.0 and +10.0 %, 40.0 and 12.5 GB/s
128M      uncached stores do not help: the reads lose more
          clzero against rep-stosb: 3.50 and 8.00 ms/GiB, +15.0 and +10.0 %, 40.0 and 12.5 GB/s
";
    assert_eq!(text(&fixed()), wanted);
}

#[test]
fn every_outcome_is_said_in_plain_words() {
    for (per_gib, meanwhile, wanted) in [
        ("less", "less", "uncached stores help\n"),
        ("less", "same", "uncached stores help\n"),
        ("less", "more", "help for each GiB, as they are done sooner"),
        ("same", "more", "for each GiB is within the noise\n"),
        ("more", "less", "faster meanwhile, but for so long"),
        ("more", "same", "do not help: the reads lose more\n"),
    ] {
        let line = verdict(&said(per_gib, meanwhile, 1 << 20));
        assert!(line.contains(wanted), "{line}");
        assert!(line.contains("3.50 and 8.00 ms/GiB"), "{line}");
    }
}

#[test]
fn the_reader_s_counters_are_per_read() {
    let mut report = fixed();
    report.rows.truncate(2);
    report.rows[1].counters = Some(CountsFacts {
        scope: "user",
        cycles: Some(512 * 40),
        l1_dcache_loads: Some(512),
        l1_dcache_load_misses: Some(384),
    });
    let wanted = "
perf counters (user):
    per read  cycles  L1d loads  misses  missed
1M rep-stosb   40.00       1.00    0.75  75.0 %
";
    let found = text(&report);
    assert!(found.contains(wanted), "{found}");
    report.counters_unavailable = Some(UnavailableFacts {
        reason: "no PMU".to_owned(),
        fix: None,
    });
    assert!(text(&report).contains("\nperf counters: not available here (no PMU)\n"));
}

#[test]
fn what_the_instrument_adds_is_said_of_a_batch() {
    let mut report = fixed();
    report.instrument = Some(InstrumentFacts {
        cost_ns: 27,
        part_of_shortest: 0.005,
        samples_ns: Vec::new(),
    });
    let wanted =
        "\nown cost  the instrument adds 27 ns to a batch of 4096 reads, 0.5 % of the shortest\n";
    assert!(text(&report).contains(wanted));
}

#[test]
fn passes_that_were_run_again_are_said() {
    let mut report = fixed();
    report.rows[1].repeated = 2;
    report.rows[5].repeated = 1;
    let wanted = "\nrepeated  3 of 27 passes came to nothing, and were run again (see --json for the rows)\n";
    let text = text(&report);
    assert!(text.contains(wanted), "{text}");
}

#[test]
fn where_both_run_is_said() {
    let head = |foreground, background: &[u32], same_cache, same_core, rate| {
        let mut report = fixed();
        report.cpus = Some(CpuFacts {
            foreground,
            background: background.to_vec(),
            same_cache,
            same_core,
        });
        report.background = Some(BackgroundFacts::new(1 << 30, 2 << 20, rate));
        text(&report)
    };
    assert!(head(3, &[3], None, false, None).contains("on CPU 3, the only one; "));
    assert!(head(0, &[1, 2], Some(true), true, None).contains("on CPU 1-2, on the same core; "));
    assert!(head(0, &[8], Some(false), false, None).contains("a last-level cache of its own"));
    let rated = head(0, &[1], None, false, Some(10 << 30));
    assert!(rated.contains("on CPU 1; 2 MiB at a time at 10 GiB a second, 1 thread\n"));
}

#[test]
fn a_report_without_rows_has_no_text() {
    assert_eq!(text(&NeighbourReport::new()), "");
}
