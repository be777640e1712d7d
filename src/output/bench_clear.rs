//! The figures of `prezero bench clear` for people: a table for each number of threads, with a row for
//! each chunk and a column for each method, and a few lines of what follows from them.

mod chart;
#[cfg(test)]
pub(super) mod tests;

use std::io::{self, Write};

use prezero_memory::ByteSize;

pub(crate) use self::chart::chart;
use super::counters::counters;
use super::figures::{Unique, plus_minus, table};
use super::machine::machine;
use super::own_cost::own_cost;
use crate::measure::clear::{counted, thread_count};
use crate::report::bench_clear::{ClearReport, CrossingFacts, FenceFacts, RowFacts, RowName};

/// With more methods than these a table would be wider than 100 columns; they share two then.
const MOST_COLUMNS: usize = 6;

/// In percent of a pass.
const TOO_NOISY: f64 = 20.0;

/// Tables and lines; nothing where nothing was measured.
pub(crate) fn clear(out: &mut impl Write, report: &ClearReport) -> io::Result<()> {
    let Some(first) = report.rows.first() else {
        return Ok(());
    };
    writeln!(
        out,
        "GB/s (10^9 bytes) of clearing {} on {} that hold other bytes, mean ± σ of {}",
        ByteSize(first.bytes),
        pages(first.page_size),
        counted(first.runs, "run")
    )?;
    for threads in report.rows.iter().map(|row| row.threads).unique() {
        let rows: Vec<&RowFacts> = report
            .rows
            .iter()
            .filter(|row| row.threads == threads)
            .collect();
        let methods: Vec<&str> = rows.iter().map(|row| row.method).unique().collect();
        let tables = methods.len().div_ceil(MOST_COLUMNS).max(1);
        for methods in methods.chunks(methods.len().div_ceil(tables).max(1)) {
            writeln!(out, "\n{}", chunks_by_methods(&rows, methods))?;
        }
    }
    writeln!(out)?;
    if let Some(baseline) = &report.baseline {
        writeln!(
            out,
            "ratio     a method's best chunk to {}",
            name(baseline.method, baseline.chunk, baseline.threads)
        )?;
    }
    for threads in report.rows.iter().map(|row| row.threads).unique() {
        let rows = report.rows.iter().filter(|row| row.threads == threads);
        if let Some(best) = rows.max_by(|a, b| a.gbps_mean.total_cmp(&b.gbps_mean)) {
            writeln!(out, "{}", fastest(best, report.baseline.as_ref()))?;
        }
    }
    if let Some(crossing) = &report.crossing {
        self::crossing(out, crossing)?;
    }
    if let Some(fence) = &report.fence {
        writeln!(out, "{}", self::fence(fence))?;
    }
    if let Some(instrument) = &report.instrument {
        own_cost(out, instrument, "pass")?;
    }
    let rows = report.rows.iter().map(|row| {
        let name = name(row.method, row.chunk, row.threads);
        (name, row.bytes, row.counters.as_ref())
    });
    counters(out, rows, report.counters_unavailable.as_ref())?;
    match &report.machine {
        Some(machine) => self::machine(out, machine),
        None => Ok(()),
    }
}

/// Base pages are what the kernel promises of ordinary memory; it may give larger ones.
pub(super) fn pages(size: u64) -> String {
    match size {
        4096 => "pages of ordinary memory".to_owned(),
        size => format!("{} pages", ByteSize(size)),
    }
}

/// The rows of one number of threads. Its last line are ratios, where there are any.
fn chunks_by_methods(rows: &[&RowFacts], methods: &[&str]) -> String {
    let threads = rows.first().map_or(0, |row| row.threads);
    let mut head = vec![thread_count(threads)];
    head.extend(methods.iter().map(|method| (*method).to_owned()));
    let mut lines = Vec::new();
    for chunk in rows.iter().map(|row| row.chunk).unique() {
        let mut line = vec![chunk.map_or("all".to_owned(), |chunk| ByteSize(chunk).to_spec())];
        for method in methods {
            let row = rows
                .iter()
                .find(|row| row.method == *method && row.chunk == chunk);
            line.push(row.map_or(String::new(), |row| {
                plus_minus(row.gbps_mean, row.gbps_stdev, 1)
            }));
        }
        lines.push(line);
    }
    if rows.iter().all(|row| row.ratio.is_some()) {
        let mut line = vec!["ratio".to_owned()];
        for method in methods {
            let of_method = rows.iter().filter(|row| row.method == *method);
            let best = of_method.max_by(|a, b| a.gbps_mean.total_cmp(&b.gbps_mean));
            let ratio = best.and_then(|best| best.ratio);
            line.push(ratio.map_or(String::new(), |ratio| {
                plus_minus(ratio.mean, ratio.stdev, 2)
            }));
        }
        lines.push(line);
    }
    table(head, lines)
}

/// `rep-stosb 4K, 1 thread`.
fn name(method: &str, chunk: Option<u64>, threads: usize) -> String {
    let chunk = chunk.map_or(String::new(), |chunk| {
        format!(" {}", ByteSize(chunk).to_spec())
    });
    format!("{method}{chunk}, {}", thread_count(threads))
}

fn fastest(row: &RowFacts, baseline: Option<&RowName>) -> String {
    let figure = plus_minus(row.gbps_mean, row.gbps_stdev, 1);
    let ratio = match (row.ratio, baseline) {
        (Some(ratio), Some(baseline)) if !is(row, baseline) => {
            format!(
                ", {} times the baseline",
                plus_minus(ratio.mean, ratio.stdev, 2)
            )
        }
        _ => String::new(),
    };
    let name = name(row.method, row.chunk, row.threads);
    let (min, max) = (row.gbps_min, row.gbps_max);
    format!("fastest   {name}: {figure} ({min:.1} … {max:.1}){ratio}")
}

fn is(row: &RowFacts, name: &RowName) -> bool {
    (row.method, row.chunk, row.threads) == (name.method, name.chunk, name.threads)
}

/// Rates over sizes, and where the curves cross.
pub(super) fn crossing(out: &mut impl Write, crossing: &CrossingFacts) -> io::Result<()> {
    let CrossingFacts {
        cached, uncached, ..
    } = crossing;
    let mut head = vec!["one extent".to_owned()];
    let mut lines = [vec![(*cached).to_owned()], vec![(*uncached).to_owned()]];
    for extent in &crossing.extents {
        head.push(ByteSize(extent.bytes).to_spec());
        lines[0].push(format!("{:.1}", extent.cached_gbps));
        lines[1].push(format!("{:.1}", extent.uncached_gbps));
    }
    writeln!(out, "\n{}\n", table(head, lines.to_vec()))?;
    match crossing.from_bytes {
        Some(bytes) => writeln!(
            out,
            "crossing  {uncached} stays ahead of {cached} from extents of {} on (1 thread, out of the cache)",
            ByteSize(bytes)
        ),
        None => writeln!(
            out,
            "crossing  none: {uncached} does not stay ahead of {cached} for any extent measured"
        ),
    }
}

fn fence(fence: &FenceFacts) -> String {
    let cost = plus_minus(fence.cost_percent, fence.stdev_percent, 2);
    let every = ByteSize(fence.every_bytes as u64);
    let method = fence.method;
    // A figure of a few percent cannot be told from such noise.
    if fence.stdev_percent.is_none_or(|stdev| stdev > TOO_NOISY) {
        return format!(
            "fence     one per {every}: too noisy here to tell its cost ({method}, 1 thread)"
        );
    }
    let within = match fence.stdev_percent {
        Some(stdev) if fence.cost_percent <= stdev => ": within the noise",
        _ => "",
    };
    format!("fence     one per {every} costs {cost} % ({method}, 1 thread){within}")
}
