//! The figures of `prezero bench neighbour` for people: a table for each working set, and what follows
//! from it.

mod chart;
#[cfg(test)]
pub(super) mod tests;

use std::io::{self, Write};

use prezero_memory::{ByteSize, IdSet};

pub(crate) use self::chart::chart;
use super::bench_clear::pages as pages_of;
use super::counters::{Per, counters_per};
use super::figures::{plus_minus, table};
use super::machine::machine;
use super::own_cost::own_cost;
use crate::measure::clear::counted;
use crate::report::bench_neighbour::{
    BackgroundFacts, CpuFacts, FigureFacts, NeighbourReport, RowFacts, SetFacts, VerdictFacts,
};

/// Tables and lines; nothing where nothing was measured.
pub(crate) fn neighbour(out: &mut impl Write, report: &NeighbourReport) -> io::Result<()> {
    let Some(first) = report.rows.first() else {
        return Ok(());
    };
    if let Some((cpus, background)) = report.cpus.as_ref().zip(report.background.as_ref()) {
        head(out, cpus, background)?;
    }
    writeln!(out, "mean ± σ of {}", counted(first.runs, "run"))?;
    for set in &report.working_sets {
        let rows = report
            .rows
            .iter()
            .filter(|row| row.working_set == set.bytes);
        writeln!(out, "\n{}", set_table(set, rows))?;
    }
    writeln!(
        out,
        "\nms/GiB    time that the reads lose for each GiB (2^30 bytes) cleared: this decides"
    )?;
    for verdict in &report.verdicts {
        writeln!(out, "{}", self::verdict(verdict))?;
    }
    repeated(out, &report.rows)?;
    if let Some(instrument) = &report.instrument {
        let batch = format!("batch of {} reads", report.batch_accesses);
        own_cost(out, instrument, &batch)?;
    }
    let rows = report.rows.iter().map(|row| {
        let set = ByteSize(row.working_set).to_spec();
        let name = format!("{set} {}", row.method.unwrap_or("alone"));
        (name, row.accesses(), row.counters.as_ref())
    });
    let unavailable = report.counters_unavailable.as_ref();
    counters_per(out, Per::READ, rows, unavailable)?;
    match &report.machine {
        Some(machine) => self::machine(out, machine),
        None => Ok(()),
    }
}

fn head(out: &mut impl Write, cpus: &CpuFacts, background: &BackgroundFacts) -> io::Result<()> {
    let others: IdSet = cpus.background.iter().copied().collect();
    let together = match (cpus.same_core, cpus.same_cache) {
        _ if cpus.background.contains(&cpus.foreground) => ", the only one",
        (true, _) => ", on the same core",
        (_, Some(true)) => ", with the same last-level cache",
        (_, Some(false)) => ", with a last-level cache of its own",
        (_, None) => "",
    };
    let rate = background.rate.map_or(String::new(), |rate| {
        format!(" at {} a second", ByteSize(rate))
    });
    writeln!(
        out,
        "Random reads on CPU {}, next to clearing {} on {} that hold other bytes",
        cpus.foreground,
        ByteSize(background.bytes),
        pages_of(background.page_size)
    )?;
    writeln!(
        out,
        "on CPU {others}{together}; {} at a time{rate}, {}",
        ByteSize(background.piece_bytes as u64),
        counted(cpus.background.len(), "thread")
    )
}

fn set_table<'a>(set: &SetFacts, rows: impl Iterator<Item = &'a RowFacts>) -> String {
    let head = vec![
        format!("{} on {}", ByteSize(set.bytes).to_spec(), pages(set)),
        "ns/read".to_owned(),
        "reads/µs".to_owned(),
        "slower by %".to_owned(),
        "GB/s cleared".to_owned(),
        "lost ms/GiB".to_owned(),
    ];
    let lines = rows.map(|row| {
        let optional = |figure: &Option<FigureFacts>, digits| {
            figure.map_or(String::new(), |figure| self::figure(&figure, digits))
        };
        let per_microsecond = row.accesses_per_second;
        vec![
            row.method.unwrap_or("alone").to_owned(),
            figure(&row.ns_per_access, 1),
            plus_minus(
                per_microsecond.mean / 1e6,
                per_microsecond.stdev.map(|stdev| stdev / 1e6),
                1,
            ),
            optional(&row.slowdown_percent, 1),
            optional(&row.background_gbps, 1),
            optional(&row.lost_ms_per_gib, 2),
        ]
    });
    table(head, lines.collect())
}

fn pages(set: &SetFacts) -> &'static str {
    match set.huge_bytes {
        0 => "base pages",
        huge if huge >= set.bytes => "THP",
        _ => "some THP",
    }
}

fn figure(figure: &FigureFacts, digits: usize) -> String {
    plus_minus(figure.mean, figure.stdev, digits)
}

/// Passes without a figure. Each row has one more that is not counted.
fn repeated(out: &mut impl Write, rows: &[RowFacts]) -> io::Result<()> {
    let repeated: usize = rows.iter().map(|row| row.repeated).sum();
    if repeated == 0 {
        return Ok(());
    }
    let passes: usize = rows.iter().map(|row| row.runs + 1).sum();
    writeln!(
        out,
        "repeated  {repeated} of {} passes came to nothing, and were run again (see --json for the rows)",
        passes + repeated
    )
}

/// Where uncached stores are the better neighbour, and where they are not, with the figures.
fn verdict(verdict: &VerdictFacts) -> String {
    let (uncached, cached) = (&verdict.uncached, &verdict.cached);
    let set = ByteSize(verdict.working_set).to_spec();
    let what = match (verdict.per_gib, verdict.meanwhile) {
        ("less", "more") => {
            "help for each GiB, as they are done sooner; meanwhile the reads are slower"
        }
        ("less", _) => "help",
        ("same", _) => "do not help: what the reads lose for each GiB is within the noise",
        (_, "less") => {
            "do not help: the reads are faster meanwhile, but for so long that they lose more"
        }
        _ => "do not help: the reads lose more",
    };
    format!(
        "{set:<9} uncached stores {what}\n          {} against {}: {} and {} ms/GiB, {:+.1} and {:+.1} %, {:.1} and {:.1} GB/s",
        uncached.method,
        cached.method,
        lost(uncached.lost_ms_per_gib),
        lost(cached.lost_ms_per_gib),
        uncached.slowdown_percent,
        cached.slowdown_percent,
        uncached.background_gbps,
        cached.background_gbps,
    )
}

/// Hundredths only where there are not thousands, which is noise.
fn lost(ms: f64) -> String {
    match ms.abs() < 100.0 {
        true => format!("{ms:.2}"),
        false => format!("{ms:.0}"),
    }
}
