//! The summaries for people.

use std::io::{self, Write};

use prezero_host::IdSet;
use prezero_memory::ByteSize;

use super::bench_vm;
use crate::report::boot::Boot;
use crate::report::facts::{HostFacts, Region};
use crate::report::plan::PlanReport;
use crate::report::run::{ClearChoice, Phase, Report};

/// The summary of a run.
pub(crate) fn run(out: &mut impl Write, report: &Report) -> io::Result<()> {
    regions(out, &report.regions)?;
    for pool in &report.grown {
        let size = ByteSize(pool.page_size);
        let node = pool
            .node
            .map_or(String::new(), |node| format!(" on node {node}"));
        let compacted = if pool.compacted {
            ", after compaction"
        } else {
            ""
        };
        writeln!(
            out,
            "{:10}{} pages of {size} added{node} for this run{compacted}",
            "", pool.got_pages
        )?;
    }
    for phase in &report.phases {
        writeln!(
            out,
            "{:10}{}{}",
            phase.name,
            timing(phase),
            remark(report, phase)
        )?;
    }
    if let (Some(created), Some(first)) = (report.creation_ns, report.first_instruction_ns) {
        writeln!(
            out,
            "created   {:>10.1} ms   first instruction after {:.1} ms",
            ms(created),
            ms(first)
        )?;
    }
    if let Some(boot) = &report.boot {
        return linux(out, report, boot);
    }
    if let Some(guest) = &report.guest {
        let found = match (guest.scanned_bytes, guest.nonzero_bytes) {
            (0, _) => "its memory was not read (--verify has it read every byte)".to_owned(),
            (scanned, 0) => format!(
                "it read {} at {:.1} GB/s: every byte is zero",
                ByteSize(scanned),
                rate(scanned, guest.scan_ns)
            ),
            (scanned, wrong) => format!(
                "it read {}: {wrong} bytes are not zero, the first at {:#x}",
                ByteSize(scanned),
                guest.first_nonzero_gpa.unwrap_or(0)
            ),
        };
        writeln!(out, "guest     {}; {found}", guest.exit)?;
    }
    Ok(())
}

/// What is told of a Linux guest.
fn linux(out: &mut impl Write, report: &Report, boot: &Boot) -> io::Result<()> {
    let nodes = match boot.nodes.len() {
        1 => String::new(),
        count => format!(", {count} nodes"),
    };
    let exit = report.guest.as_ref().map_or("", |guest| guest.exit);
    writeln!(
        out,
        "guest     {exit}; Linux ({}, {}), {} vCPUs{nodes}",
        boot.format,
        boot.protocol,
        boot.vcpus.len()
    )?;
    for (what, at) in [
        ("first byte on the serial port", boot.first_serial_ns),
        ("user space", boot.user_space_ns),
        ("the text of --until", boot.until_ns),
        ("the end", boot.ended_ns),
    ] {
        if let Some(at) = at {
            writeln!(out, "{:10}{:>10.1} ms   {what}", "", ms(at))?;
        }
    }
    Ok(())
}

/// The summary of a plan.
pub(crate) fn plan(out: &mut impl Write, report: &PlanReport) -> io::Result<()> {
    regions(out, &report.regions)?;
    if let Some(pool) = &report.pool {
        writeln!(out, "pool      {}", pool.describe())?;
    }
    let several = (report.host.as_ref()).is_some_and(HostFacts::has_several_nodes);
    if several && report.regions.iter().any(Region::follows_free_pages) {
        writeln!(
            out,
            "nodes     where none is asked for, a zone is on the node with the most free pages if it fits there, else on all in proportion to theirs"
        )?;
    }
    let mut rest = report.workers.as_slice();
    while let Some(first) = rest.first() {
        let (mine, others) =
            rest.split_at(rest.partition_point(|worker| worker.node <= first.node));
        let cpus: IdSet = mine.iter().filter_map(|worker| worker.cpu).collect();
        let on = match cpus.is_empty() {
            true => "not pinned".to_owned(),
            false => format!("on CPUs {cpus}"),
        };
        let remote = if first.remote { ", remote" } else { "" };
        writeln!(
            out,
            "workers   {} for node {}, {on}{remote}",
            mine.len(),
            first.node
        )?;
        rest = others;
    }
    match &report.estimate {
        Some(estimate) => bench_vm::estimate(out, estimate),
        None => Ok(()),
    }
}

fn regions(out: &mut impl Write, regions: &[Region]) -> io::Result<()> {
    for (n, region) in Region::joined(regions).iter().enumerate() {
        let title = if n == 0 { "memory" } else { "" };
        writeln!(out, "{title:10}{}", region.describe())?;
    }
    Ok(())
}

/// Milliseconds, and the rate where the phase's time grows with its bytes.
fn timing(phase: &Phase) -> String {
    let time = format!("{:>10.1} ms", ms(phase.ns));
    let moves_bytes =
        matches!(phase.name, "populate" | "clear") || (phase.name == "boot" && phase.bytes > 0);
    match moves_bytes {
        true => format!("{time}   {:.1} GB/s", rate(phase.bytes, phase.ns)),
        false => time,
    }
}

fn remark(report: &Report, phase: &Phase) -> String {
    match (phase.name, &report.placement) {
        ("populate", _) => {
            let pinned = report.workers.iter().filter(|worker| worker.pinned).count();
            let remote = report.workers.iter().filter(|worker| worker.remote).count();
            let remote = if remote > 0 {
                format!(", {remote} remote")
            } else {
                String::new()
            };
            format!(
                "   {} workers, {pinned} pinned{remote}",
                report.workers.len()
            )
        }
        ("lease", _) => {
            (report.pool.as_ref()).map_or(String::new(), |pool| format!("   {}", pool.describe()))
        }
        ("calibrate", _) => {
            let tried = report.clear.iter().map(describe_trials);
            format!("   {}", tried.collect::<Vec<_>>().join("; "))
        }
        ("clear", _) => {
            let chosen = report.clear.iter().map(describe_choice);
            format!("   {}", chosen.collect::<Vec<_>>().join("; "))
        }
        ("verify", Some(placement)) => {
            let by = match placement.method {
                "numa_maps" => " (by /proc/self/numa_maps)",
                _ => "",
            };
            format!(
                "   {} pages checked{by}, {} on another node than planned",
                placement.checked_pages, placement.misplaced_pages
            )
        }
        _ => String::new(),
    }
}

/// All are in the JSON document.
const TRIALS_SHOWN: usize = 2;

/// "node 0: clzero 44.1, avx2-nt 43.0, … GB/s per worker", fastest first.
fn describe_trials(choice: &ClearChoice) -> String {
    let mut trials: Vec<_> = choice.trials.iter().collect();
    trials.sort_by(|a, b| b.gbps.total_cmp(&a.gbps));
    let shown = trials.iter().take(TRIALS_SHOWN);
    let shown = shown.map(|trial| format!("{} {:.1}", trial.method, trial.gbps));
    let shown = shown.collect::<Vec<_>>().join(", ");
    let more = if trials.len() > TRIALS_SHOWN {
        ", …"
    } else {
        ""
    };
    format!("node {}: {shown}{more} GB/s per worker", choice.node)
}

/// "node 0: clzero, the fastest of 6".
fn describe_choice(choice: &ClearChoice) -> String {
    let why = match choice.reason {
        "requested" => "as asked".to_owned(),
        "measured" => format!("the fastest of {}", choice.trials.len()),
        "small" => "too little to measure on".to_owned(),
        _ => "known to be the fastest".to_owned(),
    };
    format!("node {}: {}, {why}", choice.node, choice.method)
}

#[allow(clippy::cast_precision_loss)] // for display, three digits
fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// GB/s, 10^9 bytes: bytes per nanosecond.
#[allow(clippy::cast_precision_loss)] // for display, three digits
fn rate(bytes: u64, ns: u64) -> f64 {
    bytes as f64 / ns.max(1) as f64
}
