//! The figures of `prezero bench mmap` for people, and for scripts that read perf's.

mod chart;
#[cfg(test)]
pub(super) mod tests;

use std::io::{self, Write};

use prezero_memory::ByteSize;

pub(crate) use self::chart::chart;
use super::counters::counters;
use super::figures::plus_minus;
use super::machine::machine;
use super::own_cost::own_cost;
use crate::measure::clear::{counted, thread_count};
use crate::report::bench_mmap::{MmapReport, RowFacts};

/// A block for each function, whose last line is perf's; nothing where nothing was measured.
pub(crate) fn mmap(out: &mut impl Write, report: &MmapReport) -> io::Result<()> {
    if report.rows.is_empty() {
        return Ok(());
    }
    if let Some(machine) = &report.machine {
        self::machine(out, machine)?;
    }
    if let Some(instrument) = &report.instrument {
        own_cost(out, instrument, "loop")?;
    }
    let rows = report.rows.iter().map(|row| {
        let bytes = row.bytes.saturating_mul(row.threads as u64);
        (row.function.to_owned(), bytes, row.counters.as_ref())
    });
    counters(out, rows, report.counters_unavailable.as_ref())?;
    for row in &report.rows {
        writeln!(out)?;
        block(out, row)?;
    }
    Ok(())
}

fn block(out: &mut impl Write, row: &RowFacts) -> io::Result<()> {
    let how = match row.function {
        "populate" => "mmap with MAP_POPULATE, then a touch of each page",
        _ => "mmap, then a touch of each page",
    };
    let (bytes, page) = (ByteSize(row.bytes), ByteSize(row.page_size));
    let (threads, loops) = (thread_count(row.threads), counted(row.loops, "loop"));
    let each = if row.threads > 1 { " each" } else { "" };
    writeln!(out, "# function '{}' ({how})", row.function)?;
    writeln!(
        out,
        "# {bytes} on {page} pages, {threads}{each}, mean ± σ of {loops}:"
    )?;
    let rate = plus_minus(row.gbps_mean, row.gbps_stdev, 2);
    let (min, max) = (row.gbps_min, row.gbps_max);
    let together = if row.threads > 1 {
        ", all together"
    } else {
        ""
    };
    writeln!(
        out,
        "# {rate} GB/s ({min:.2} … {max:.2}), GB = 10^9 bytes{together}"
    )?;
    writeln!(
        out,
        "# as perf bench mem mmap prints it, GB = 2^30 bytes:\n"
    )?;
    perf(out, row)
}

/// perf's form: `print_bps` of its mem-functions.c, with its units of 1024, and its spread of the threads.
fn perf(out: &mut impl Write, row: &RowFacts) -> io::Result<()> {
    let units = [
        (1.0, "GB/sec"),
        (1024.0, "MB/sec"),
        (1024.0 * 1024.0, "KB/sec"),
    ];
    let rate = row.perf_gib_per_second;
    let fits = |unit: &&(f64, &str)| rate * unit.0 >= 1.0;
    let (factor, unit) = units.iter().find(fits).unwrap_or(&units[2]);
    write!(out, " {:14.6} {unit}", rate * factor)?;
    match row.perf_error_percent {
        Some(percent) => writeln!(out, "/thread\t( +- {percent:6.2}% )"),
        None => writeln!(out),
    }
}
