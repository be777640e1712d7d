use std::time::Duration;

use prezero_memory::Method;

use super::*;
use crate::measure::vm::pins::{self, Memory, Pins};
use crate::measure::vm::{Measured, Row, Sample, Way, Work};
use crate::report::counters::CountsFacts;
use crate::report::estimate::MeasuredRow;

const GIB: u64 = 1 << 30;

/// A row of two machines, 10 % apart: milliseconds until it is there, and of clearing.
fn row(gib: u64, way: Way, workers: Option<usize>, created: u64, work: Option<u64>) -> Measured {
    let sample = |tenths: u64| {
        let time = |ms: u64| Duration::from_micros(ms * 100 * tenths);
        Sample {
            creation: time(created),
            first_instruction: way.peer().is_none().then(|| time(created + 10)),
            cpu: time(created + 100),
            work: work.map(|work| Work {
                bytes: gib * GIB,
                time: time(work),
            }),
            workers,
            taken: None,
            loose: 0,
            warnings: Vec::new(),
        }
    };
    let row = Row {
        way,
        bytes: gib * GIB,
        workers,
        is_least: workers == Some(1),
    };
    let method = match way {
        Way::RecycledCached => Some(Method::cached()),
        Way::RecycledUncached => Method::named("portable").ok(),
        _ => None,
    };
    Measured::new(row, method, vec![sample(10), sample(11)]).expect("two samples")
}

/// A report of fixed samples of every way at 1 and 4 GiB.
pub(in super::super) fn fixed() -> VmReport {
    let mut rows = Vec::new();
    for gib in [1, 4] {
        rows.extend([
            row(gib, Way::Fresh, Some(1), 20 + 120 * gib, Some(120 * gib)),
            row(gib, Way::Fresh, Some(16), 20 + 60 * gib, Some(60 * gib)),
            row(
                gib,
                Way::RecycledCached,
                Some(1),
                20 + 120 * gib,
                Some(119 * gib),
            ),
            row(
                gib,
                Way::RecycledUncached,
                Some(1),
                20 + 40 * gib,
                Some(40 * gib),
            ),
            row(
                gib,
                Way::RecycledUncached,
                Some(16),
                20 + 20 * gib,
                Some(20 * gib),
            ),
            row(gib, Way::RecycledClean, Some(16), 20 + gib, None),
            row(
                gib,
                Way::QemuOneThread,
                Some(1),
                30 + 120 * gib,
                Some(30 + 120 * gib),
            ),
            row(
                gib,
                Way::QemuThreads,
                Some(16),
                30 + 60 * gib,
                Some(30 + 60 * gib),
            ),
            row(
                gib,
                Way::CloudHypervisor,
                None,
                10 + 90 * gib,
                Some(10 + 90 * gib),
            ),
        ]);
    }
    let mut report = VmReport::new();
    report.set_rows(&rows, 2 << 20);
    let pinned = |memory, gib: u64, ms: u64| pins::Row {
        memory,
        bytes: gib * GIB,
        samples: [10, 11]
            .map(|tenths: u64| Duration::from_micros(ms * 100 * tenths))
            .to_vec(),
    };
    let pins = Pins {
        rows: vec![
            pinned(Memory::Fresh, 1, 120),
            pinned(Memory::Populated, 1, 3),
            pinned(Memory::Fresh, 4, 480),
            pinned(Memory::Populated, 4, 12),
        ],
        not_available: None,
    };
    report.pins = Some(PinsFacts::new(&pins, 2 << 20));
    report.add_peer("qemu", "QEMU emulator version 7.2.17");
    report
}

fn text(report: &VmReport) -> String {
    let mut out = Vec::new();
    vm(&mut out, report).expect("memory takes it");
    String::from_utf8(out).expect("UTF-8")
}

#[test]
fn fixed_samples_have_their_text() {
    let wanted = "\
A machine on 2 MiB pages from exec to its last memory slot, mean ± σ of 2 runs

                     1 GiB   GB/s  stdev     diff     created s  first instr. s  CPU s
                 fresh, 1w   7.32   0.49    +0.0%  0.147 ±0.010    0.158 ±0.011  0.252
                fresh, 16w  12.81   0.86   +75.0%  0.084 ±0.006    0.095 ±0.006  0.189
      recycled, cached, 1w   7.32   0.49    +0.0%  0.147 ±0.010    0.158 ±0.011  0.252
    recycled, uncached, 1w  17.08   1.15  +133.3%  0.063 ±0.004    0.073 ±0.005  0.168
   recycled, uncached, 16w  25.62   1.73  +250.0%  0.042 ±0.003    0.052 ±0.004  0.147
      recycled, clean, 16w  48.81   3.29  +566.7%  0.022 ±0.001    0.033 ±0.002  0.127
         QEMU prealloc, 1w   6.83   0.46    -6.7%  0.158 ±0.011               -  0.263
QEMU prealloc, 16w, pinned  11.39   0.77   +55.6%  0.095 ±0.006               -  0.200
 Cloud Hypervisor prefault  10.25   0.69   +40.0%  0.105 ±0.007               -  0.210

                     4 GiB    GB/s  stdev      diff     created s  first instr. s  CPU s
                 fresh, 1w    8.20   0.55     +0.0%  0.525 ±0.035    0.535 ±0.036  0.630
                fresh, 16w   15.77   1.06    +92.3%  0.273 ±0.018    0.283 ±0.019  0.378
      recycled, cached, 1w    8.20   0.55     +0.0%  0.525 ±0.035    0.535 ±0.036  0.630
    recycled, uncached, 1w   22.78   1.53   +177.8%  0.189 ±0.013    0.200 ±0.013  0.294
   recycled, uncached, 16w   41.00   2.76   +400.0%  0.105 ±0.007    0.116 ±0.008  0.210
      recycled, clean, 16w  170.82  11.50  +1983.3%  0.025 ±0.002    0.036 ±0.002  0.130
         QEMU prealloc, 1w    8.04   0.54     -2.0%  0.535 ±0.036               -  0.640
QEMU prealloc, 16w, pinned   15.18   1.02    +85.2%  0.283 ±0.019               -  0.389
 Cloud Hypervisor prefault   11.08   0.75    +35.1%  0.389 ±0.026               -  0.493

GB/s      all bytes (10^9) over the time of creation
diff      to fresh, 1w; a peer has created at its own event: QMP greeting, booted
stores    here 8.20 → 22.78 (+178 %), Milan 8.05 → 29.94 (+272 %), Icelake 8.25 → 21.55 (+161 %)
          here: recycled, 1w, 4 GiB, cached by 4 KiB → portable; others as the series published
peer      qemu: QEMU emulator version 7.2.17

Long-term pin (io_uring registered buffers, a stand-in for VFIO), s, in pieces of at most 1 GiB

   memory           1 GiB           4 GiB
    fresh  0.1260 ±0.0085  0.5040 ±0.0339
populated  0.0032 ±0.0002  0.0126 ±0.0008
";
    assert_eq!(text(&fixed()), wanted);
}

#[test]
fn a_prediction_says_that_it_is_one_and_from_what() {
    let report = fixed();
    let rows: Vec<MeasuredRow> = report.rows.iter().map(MeasuredRow::from).collect();
    let estimate = EstimateFacts::new(&rows, 2 << 20, 1550 * GIB).expect("two sizes");
    let mut out = Vec::new();
    super::estimate(&mut out, &estimate).expect("memory takes it");
    let wanted = "
Predicted, not measured: 1550 GiB on 2 MiB pages, by a line through 2 sizes (1 GiB, 4 GiB)
It is 387.5 times the largest that was measured

                                created s  fixed s  s per GiB
                 fresh, 1w  195.32 ±18.95   0.0210     0.1260
                fresh, 16w    97.67 ±9.93   0.0210     0.0630
      recycled, cached, 1w  195.32 ±18.95   0.0210     0.1260
    recycled, uncached, 1w    65.12 ±6.93   0.0210     0.0420
   recycled, uncached, 16w    32.57 ±3.93   0.0210     0.0210
      recycled, clean, 16w     1.65 ±1.16   0.0210     0.0010
         QEMU prealloc, 1w  195.33 ±19.41   0.0315     0.1260
QEMU prealloc, 16w, pinned   97.68 ±10.39   0.0315     0.0630
 Cloud Hypervisor prefault  146.49 ±13.99   0.0105     0.0945
";
    assert_eq!(String::from_utf8(out).expect("UTF-8"), wanted);
}

#[test]
fn no_line_is_wider_than_100_columns() {
    for line in text(&fixed()).lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn pins_that_are_refused_are_said_with_the_reason() {
    let mut report = fixed();
    report.pins = Some(PinsFacts {
        by: "io_uring",
        not_available: Some("no io_uring".to_owned()),
        ..PinsFacts::default()
    });
    let text = text(&report);
    let wanted = "Long-term pin (io_uring, a stand-in for VFIO): not available here: no io_uring\n";
    assert!(text.ends_with(wanted), "{text}");
}

#[test]
fn a_report_without_rows_has_no_text() {
    assert_eq!(text(&VmReport::new()), "");
}

#[test]
fn every_figure_of_a_row_is_that_of_its_own_samples() {
    let report = fixed();
    let clean = report.rows.iter().find(|row| row.way == "recycled-clean");
    let clean = clean.expect("it is there");
    assert_eq!((clean.work, clean.work_gbps), (None, None));
    let [baseline, ..] = &report.rows[..] else {
        panic!("no rows");
    };
    assert_eq!(baseline.diff_percent.to_bits(), 0.0_f64.to_bits());
    // 140 and 154 ms for 1 GiB, of which 120 and 132 ms are the kernel's clearing.
    let gib = 1.073_741_824;
    let mean = |a: f64, b: f64| (gib / a + gib / b) / 2.0;
    assert!((baseline.bw_gbps - mean(0.140, 0.154)).abs() < 1e-9);
    let work = baseline.work_gbps.expect("the kernel clears");
    assert!((work - mean(0.120, 0.132)).abs() < 1e-9, "{work}");
    let speedup = baseline.speedup.expect("of itself");
    assert_eq!(
        (speedup.mean, speedup.stdev, speedup.median),
        (1.0, Some(0.0), 1.0)
    );
    // 150 ms against 140.
    let qemu = report.rows.iter().find(|row| row.way == "prealloc");
    let diff = qemu.expect("it is there").diff_percent;
    assert!(
        (diff - (140.0 / 150.0 - 1.0) * 100.0).abs() < 1e-9,
        "{diff}"
    );
    assert_eq!(baseline.creation_ns.samples, [140_000_000, 154_000_000]);
    assert_eq!(baseline.cpu_ns, 252_000_000);
    assert_eq!(baseline.cpu_time_ns.samples, [240_000_000, 264_000_000]);
    let near = |samples: &[f64], seconds: [f64; 2]| {
        let wanted = seconds.map(|seconds| gib / seconds);
        let near = |(a, b): (&f64, f64)| (a - b).abs() < 1e-9;
        samples.len() == 2 && samples.iter().zip(wanted).all(near)
    };
    assert!(near(&baseline.bw_samples, [0.140, 0.154]));
    let of_work = baseline.work_samples.as_deref().unwrap_or_default();
    assert!(near(of_work, [0.120, 0.132]), "{of_work:?}");
}

#[test]
fn what_a_process_counted_is_per_base_page_of_its_machine() {
    let mut report = fixed();
    report.rows[0].counters = Some(CountsFacts {
        scope: "user and kernel",
        cycles: Some(GIB / 4096 * 900),
        l1_dcache_loads: Some(GIB / 4096 * 40),
        l1_dcache_load_misses: Some(GIB / 4096 * 10),
    });
    let wanted = "
perf counters (user and kernel):
    per 4 KiB  cycles  L1d loads  misses  missed
fresh, 1w, 1G   900.0       40.0    10.0  25.0 %
";
    let mut out = Vec::new();
    vm(&mut out, &report).expect("memory takes it");
    let text = String::from_utf8(out).expect("UTF-8");
    assert!(text.contains(wanted), "{text}");
}
