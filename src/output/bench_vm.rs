//! The figures of `prezero bench vm` for people: a table for each size with the columns of the kernel
//! series, and a few lines of what follows from them.

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
use crate::measure::clear::counted;
use crate::report::bench_vm::{PinsFacts, RowFacts, TimeFacts, VmReport};
use crate::report::estimate::{EstimateFacts, EstimateRow};

/// What the kernel series published for the same pair: 2 MB pages, one thread, a preallocated machine, GB/s
/// of the kernel's stores and of uncached ones ("Use uncached stores while clearing huge pages", v2).
const PUBLISHED: [(&str, f64, f64); 2] = [("Milan", 8.05, 29.94), ("Icelake", 8.25, 21.55)];

/// Tables and lines; nothing where nothing was measured.
pub(crate) fn vm(out: &mut impl Write, report: &VmReport) -> io::Result<()> {
    let Some(first) = report.rows.first() else {
        return Ok(());
    };
    writeln!(
        out,
        "A machine on {} pages from exec to its last memory slot, mean ± σ of {}",
        ByteSize(first.page_size),
        counted(first.runs, "run")
    )?;
    let sizes: Vec<u64> = report.rows.iter().map(|row| row.bytes).unique().collect();
    for &bytes in &sizes {
        writeln!(out, "\n{}", of_size(&report.rows, bytes))?;
    }
    writeln!(
        out,
        "\nGB/s      all bytes (10^9) over the time of creation"
    )?;
    let baseline = way(first.peer, first.way, first.workers);
    writeln!(
        out,
        "diff      to {baseline}; a peer has created at its own event: QMP greeting, booted"
    )?;
    if let Some(&largest) = sizes.last() {
        stores(out, &report.rows, largest)?;
    }
    let counted = report.rows.iter().map(|row| {
        let (way, size) = (way(row.peer, row.way, row.workers), ByteSize(row.bytes));
        (
            format!("{way}, {}", size.to_spec()),
            row.bytes,
            row.counters.as_ref(),
        )
    });
    counters(out, counted, report.counters_unavailable.as_ref())?;
    for peer in &report.peers {
        writeln!(out, "peer      {}: {}", peer.peer, peer.version)?;
    }
    if let Some(own) = &report.instrument {
        own_cost(out, &own.prezero, "machine")?;
        if let Some(peers) = &own.peers {
            own_cost(out, peers, "peer's")?;
        }
    }
    if let Some(pins) = &report.pins {
        self::pins(out, pins)?;
    }
    if let Some(estimate) = &report.estimate {
        self::estimate(out, estimate)?;
    }
    match &report.machine {
        Some(machine) => self::machine(out, machine),
        None => Ok(()),
    }
}

fn of_size(rows: &[RowFacts], bytes: u64) -> String {
    let head = [
        &ByteSize(bytes).to_string(),
        "GB/s",
        "stdev",
        "diff",
        "created s",
        "first instr. s",
        "CPU s",
    ];
    let of_size = rows.iter().filter(|row| row.bytes == bytes);
    let lines = of_size.map(|row| {
        vec![
            way(row.peer, row.way, row.workers),
            format!("{:.2}", row.bw_gbps),
            row.bw_stdev
                .map_or("-".to_owned(), |stdev| format!("{stdev:.2}")),
            format!("{:+.1}%", row.diff_percent),
            seconds(Some(&row.creation_ns)),
            seconds(row.first_instruction_ns.as_ref()),
            format!("{:.3}", ns_as_seconds(row.cpu_ns)),
        ]
    });
    let head = head.iter().map(|name| (*name).to_owned()).collect();
    table(head, lines.collect())
}

/// "recycled, uncached, 1w".
fn way(peer: Option<&str>, way: &str, workers: Option<usize>) -> String {
    let what = match (peer, way) {
        (Some("qemu"), _) => "QEMU prealloc".to_owned(),
        (Some("cloud-hypervisor"), way) => format!("Cloud Hypervisor {way}"),
        (Some(peer), way) => format!("{peer} {way}"),
        (None, way) => way.replacen('-', ", ", 1),
    };
    let pinned = if way == "prealloc-threads" {
        ", pinned"
    } else {
        ""
    };
    match workers {
        Some(workers) => format!("{what}, {workers}w{pinned}"),
        None => what,
    }
}

fn seconds(times: Option<&TimeFacts>) -> String {
    times.map_or("-".to_owned(), |times| {
        plus_minus(times.mean / 1e9, times.stdev.map(|stdev| stdev / 1e9), 3)
    })
}

#[allow(clippy::cast_precision_loss)] // for display, three digits
fn ns_as_seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// What only the kind of stores changes, beside what the kernel series has of it.
fn stores(out: &mut impl Write, rows: &[RowFacts], bytes: u64) -> io::Result<()> {
    let of = |way: &str| {
        let mut rows = rows.iter();
        // The first of a way has the fewest workers.
        let row = rows.find(|row| row.bytes == bytes && row.way == way);
        row.and_then(|row| Some((row.bw_gbps, row.method?, row.workers?)))
    };
    let pair = of("recycled-cached").zip(of("recycled-uncached"));
    let Some(((cached, kernels, workers), (uncached, method, _))) = pair else {
        return Ok(());
    };
    let mut pairs = vec![gain("here", cached, uncached)];
    pairs.extend(PUBLISHED.map(|(cpu, from, to)| gain(cpu, from, to)));
    let bytes = ByteSize(bytes);
    writeln!(out, "stores    {}", pairs.join(", "))?;
    writeln!(
        out,
        "          here: recycled, {workers}w, {bytes}, {kernels} by 4 KiB → {method}; others as the series published"
    )
}

/// "Milan 8.05 → 29.94 (+272 %)".
fn gain(what: &str, from: f64, to: f64) -> String {
    format!(
        "{what} {from:.2} → {to:.2} ({:+.0} %)",
        (to / from - 1.0) * 100.0
    )
}

/// A line for each kind of memory, a column for each size.
fn pins(out: &mut impl Write, pins: &PinsFacts) -> io::Result<()> {
    let what = format!("Long-term pin ({}, a stand-in for VFIO)", pins.by);
    if let Some(why) = &pins.not_available {
        return writeln!(out, "\n{what}: not available here: {why}");
    }
    writeln!(
        out,
        "\n{what}, s, in pieces of at most {}\n",
        ByteSize(pins.piece_bytes)
    )?;
    let mut head = vec!["memory".to_owned()];
    let sizes: Vec<u64> = pins.rows.iter().map(|row| row.bytes).unique().collect();
    head.extend(sizes.iter().map(|bytes| ByteSize(*bytes).to_string()));
    let memories = pins.rows.iter().map(|row| row.memory).unique();
    let lines = memories.map(|memory| {
        let of_memory = pins.rows.iter().filter(|row| row.memory == memory);
        let times = of_memory.map(|row| {
            let stdev = row.pin_ns.stdev.map(|stdev| stdev / 1e9);
            plus_minus(row.pin_ns.mean / 1e9, stdev, 4)
        });
        std::iter::once(memory.to_owned()).chain(times).collect()
    });
    writeln!(out, "{}", table(head, lines.collect()))
}

/// What it says is marked as what it is.
pub(super) fn estimate(out: &mut impl Write, estimate: &EstimateFacts) -> io::Result<()> {
    let spec = |bytes: &u64| ByteSize(*bytes).to_string();
    let from: Vec<String> = estimate.from_bytes.iter().map(spec).collect();
    writeln!(
        out,
        "\nPredicted, not measured: {} on {} pages, by a line through {} ({})",
        ByteSize(estimate.bytes),
        ByteSize(estimate.page_size),
        counted(from.len(), "size"),
        from.join(", ")
    )?;
    let factors = estimate.rows.iter().map(|row| row.factor);
    let factor = factors.fold(0.0, f64::max);
    writeln!(
        out,
        "It is {factor:.1} times the largest that was measured\n"
    )?;
    let head = ["", "created s", "fixed s", "s per GiB"];
    let head = head.iter().map(|name| (*name).to_owned()).collect();
    let line = |row: &EstimateRow| {
        let stdev = row.creation_ns_stdev.map(|stdev| stdev / 1e9);
        vec![
            way(row.peer.as_deref(), &row.way, row.workers),
            plus_minus(row.creation_ns / 1e9, stdev, 2),
            format!("{:.4}", row.fixed_ns / 1e9),
            format!("{:.4}", row.ns_per_gib / 1e9),
        ]
    };
    let lines = estimate.rows.iter().map(line).collect();
    writeln!(out, "{}", table(head, lines))?;
    match estimate.without.is_empty() {
        true => Ok(()),
        false => writeln!(
            out,
            "without: {} (took no longer where it was larger, or was measured at one size)",
            estimate.without.join(", ")
        ),
    }
}
