use super::*;
use crate::report::bench_clear::{ExtentFacts, RatioFacts};
use crate::report::own_cost::InstrumentFacts;

/// A report of fixed figures: these methods in two chunks with one and two threads.
pub(in super::super) fn fixed(methods: &[&'static str]) -> ClearReport {
    let mut rows = Vec::new();
    for threads in [1_u32, 2] {
        for (method, rate) in methods
            .iter()
            .zip([9.0, 24.5, 25.25, 118.5, 25.5, 44.0, 10.0, 8.0])
        {
            let chunks = [(4 << 10, rate), (1 << 30, rate + 1.0)];
            rows.extend(chunks.map(|(chunk, rate)| RowFacts {
                method,
                stores: "cached",
                chunk: Some(chunk),
                threads: threads as usize,
                page_size: 2 << 20,
                bytes: 4 << 30,
                runs: 5,
                gbps_mean: rate * f64::from(threads),
                gbps_stdev: Some(0.25),
                gbps_min: rate * f64::from(threads) - 0.5,
                gbps_max: rate * f64::from(threads) + 0.5,
                samples_ns: Vec::new(),
                counters: None,
                ratio: Some(RatioFacts {
                    mean: rate * f64::from(threads) / 9.0,
                    stdev: Some(0.0625),
                    median: rate / 9.0,
                }),
            }));
        }
    }
    let extent = |bytes, cached_gbps, uncached_gbps| ExtentFacts {
        bytes,
        cached_gbps,
        uncached_gbps,
        cached_samples_gbps: Vec::new(),
        uncached_samples_gbps: Vec::new(),
    };
    ClearReport {
        baseline: Some(RowName {
            method: "rep-stosb",
            chunk: Some(4 << 10),
            threads: 1,
        }),
        rows,
        crossing: Some(CrossingFacts {
            cached: "cached",
            uncached: "movnti",
            from_bytes: Some(64 << 10),
            extents: vec![extent(4 << 10, 8.0, 5.0), extent(64 << 10, 9.5, 20.25)],
        }),
        fence: Some(FenceFacts {
            method: "movnti",
            every_bytes: 2 << 20,
            bytes: 1 << 30,
            cost_percent: 0.125,
            stdev_percent: Some(0.5),
            each_samples_ns: Vec::new(),
            once_samples_ns: Vec::new(),
        }),
        instrument: Some(InstrumentFacts {
            cost_ns: 12_250,
            part_of_shortest: 0.000_125,
            samples_ns: Vec::new(),
        }),
        ..ClearReport::new()
    }
}

fn text(report: &ClearReport) -> String {
    let mut out = Vec::new();
    clear(&mut out, report).expect("memory takes it");
    String::from_utf8(out).expect("UTF-8")
}

#[test]
fn fixed_figures_have_their_text() {
    let wanted = "\
GB/s (10^9 bytes) of clearing 4 GiB on 2 MiB pages that hold other bytes, mean ± σ of 5 runs

1 thread   rep-stosb      movnti
      4K    9.0 ±0.2   24.5 ±0.2
      1G   10.0 ±0.2   25.5 ±0.2
   ratio  1.11 ±0.06  2.83 ±0.06

2 threads   rep-stosb      movnti
       4K   18.0 ±0.2   49.0 ±0.2
       1G   20.0 ±0.2   51.0 ±0.2
    ratio  2.22 ±0.06  5.67 ±0.06

ratio     a method's best chunk to rep-stosb 4K, 1 thread
fastest   movnti 1G, 1 thread: 25.5 ±0.2 (25.0 … 26.0), 2.83 ±0.06 times the baseline
fastest   movnti 1G, 2 threads: 51.0 ±0.2 (50.5 … 51.5), 5.67 ±0.06 times the baseline

one extent   4K   64K
    cached  8.0   9.5
    movnti  5.0  20.2

crossing  movnti stays ahead of cached from extents of 64 KiB on (1 thread, out of the cache)
fence     one per 2 MiB costs 0.12 ±0.50 % (movnti, 1 thread): within the noise
own cost  the instrument adds 12.2 µs to a pass, 0.013 % of the shortest
";
    assert_eq!(text(&fixed(&["rep-stosb", "movnti"])), wanted);
}

#[test]
fn every_method_there_is_fits_in_100_columns() {
    let text = text(&fixed(prezero_clear::Method::NAMES));
    for line in text.lines() {
        assert!(
            line.chars().count() <= 100,
            "{}: {line}",
            line.chars().count()
        );
    }
}

#[test]
fn a_report_without_rows_has_no_text() {
    assert_eq!(text(&ClearReport::new()), "");
}

#[test]
fn without_ratios_there_is_no_line_of_them() {
    let mut report = fixed(&["rep-stosb", "movnti"]);
    report.baseline = None;
    for row in &mut report.rows {
        row.ratio = None;
    }
    assert!(!text(&report).contains("ratio") && !text(&report).contains("times"));
}

#[test]
fn a_crossing_that_is_none_is_said() {
    let mut report = fixed(&["rep-stosb"]);
    if let Some(crossing) = &mut report.crossing {
        crossing.from_bytes = None;
    }
    assert!(text(&report).contains("crossing  none: movnti does not stay ahead of cached"));
}
