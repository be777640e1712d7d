use super::*;
use crate::report::counters::UnavailableFacts;
use crate::report::own_cost::InstrumentFacts;

/// A report of fixed figures.
pub(in super::super) fn fixed(threads: usize) -> MmapReport {
    let row = |function, rate| RowFacts {
        function,
        page_size: 2 << 20,
        bytes: 4 << 30,
        threads,
        loops: 5,
        gbps_mean: rate,
        gbps_stdev: Some(0.125),
        gbps_min: rate - 0.25,
        gbps_max: rate + 0.25,
        perf_gib_per_second: rate / 1.073_741_824,
        perf_error_percent: (threads > 1).then_some(0.3),
        samples_ns: Vec::new(),
        counters: None,
    };
    MmapReport {
        rows: vec![row("demand", 12.5), row("populate", 13.25)],
        instrument: Some(InstrumentFacts {
            cost_ns: 48_000,
            part_of_shortest: 0.000_15,
            samples_ns: Vec::new(),
        }),
        counters_unavailable: Some(UnavailableFacts {
            reason: "no PMU".to_owned(),
            fix: None,
        }),
        ..MmapReport::new()
    }
}

fn text(report: &MmapReport) -> String {
    let mut out = Vec::new();
    mmap(&mut out, report).expect("memory takes it");
    String::from_utf8(out).expect("UTF-8")
}

#[test]
fn fixed_figures_have_their_text() {
    let wanted = "\
own cost  the instrument adds 48.0 µs to a loop, 0.015 % of the shortest
perf counters: not available here (no PMU)

# function 'demand' (mmap, then a touch of each page)
# 4 GiB on 2 MiB pages, 1 thread, mean ± σ of 5 loops:
# 12.50 ±0.12 GB/s (12.25 … 12.75), GB = 10^9 bytes
# as perf bench mem mmap prints it, GB = 2^30 bytes:

      11.641532 GB/sec

# function 'populate' (mmap with MAP_POPULATE, then a touch of each page)
# 4 GiB on 2 MiB pages, 1 thread, mean ± σ of 5 loops:
# 13.25 ±0.12 GB/s (13.00 … 13.50), GB = 10^9 bytes
# as perf bench mem mmap prints it, GB = 2^30 bytes:

      12.340024 GB/sec
";
    assert_eq!(text(&fixed(1)), wanted);
}

#[test]
fn several_threads_have_perfs_rate_of_one_and_its_percentage() {
    let text = text(&fixed(2));
    let wanted = "\
# 4 GiB on 2 MiB pages, 2 threads each, mean ± σ of 5 loops:
# 13.25 ±0.12 GB/s (13.00 … 13.50), GB = 10^9 bytes, all together
# as perf bench mem mmap prints it, GB = 2^30 bytes:

      12.340024 GB/sec/thread\t( +-   0.30% )
";
    assert!(text.ends_with(wanted), "{text}");
}

#[test]
fn the_unit_is_the_largest_that_perf_would_take() {
    let mut report = fixed(1);
    for (gib, wanted) in [
        (1.0, "       1.000000 GB/sec\n"),
        (0.5, "     512.000000 MB/sec\n"),
        (1e-6, "       1.048576 KB/sec\n"),
    ] {
        report.rows[1].perf_gib_per_second = gib;
        let text = text(&report);
        assert!(text.ends_with(&format!("\n{wanted}")), "{text}");
    }
}

#[test]
fn a_report_without_rows_has_no_text() {
    assert_eq!(text(&MmapReport::new()), "");
}
