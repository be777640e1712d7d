//! What `prezero pool` says to people.

use std::io::{self, Write};

use prezero_memory::ByteSize;
use prezero_memory::pool::ScrubReport as Pass;

use super::figures::table;
use crate::report::pool::{
    Count, CreateReport, HolderFacts, ProblemFacts, StatusReport, TotalFacts,
};
use crate::report::pool_drain::DrainReport;
use crate::report::pool_scrub::ScrubReport;

/// What was added, what there is now and who pays.
pub(crate) fn create(out: &mut impl Write, report: &CreateReport) -> io::Result<()> {
    let Count { segments, bytes } = report.added;
    let each = ByteSize(report.segment_bytes.unwrap_or(0));
    match segments {
        0 => writeln!(out, "nothing added: there is as much already")?,
        _ => writeln!(
            out,
            "added {} in {} of {each}, in {:.1} ms with {} workers ({:.1} GB/s)",
            ByteSize(bytes),
            counted(segments),
            ms(report.ns),
            report.workers,
            rate(bytes, report.ns)
        )?,
    }
    if let Some(pool) = &report.pool {
        writeln!(out, "{}", pool.display())?;
    }
    totals(out, &report.totals)?;
    if segments > 0 {
        match &report.cgroup {
            Some(cgroup) => writeln!(out, "charged to the cgroup {}", cgroup.display())?,
            None => writeln!(out, "charged to no cgroup that can be seen")?,
        }
    }
    Ok(())
}

/// What is said of something that nothing is done to.
pub(crate) fn left_alone(problem: &ProblemFacts) -> String {
    let message = &problem.message;
    match &problem.fix {
        None => format!("{message}: it is left alone"),
        Some(fix) => format!("{message}: it is left alone\n  fix: {fix}"),
    }
}

/// What a pool has.
pub(crate) fn status(out: &mut impl Write, report: &StatusReport) -> io::Result<()> {
    if let (Some(pool), Some(page)) = (&report.pool, report.page_size) {
        let only = match report.exchange_only {
            true => ", exchange-only",
            false => "",
        };
        writeln!(
            out,
            "{}, on pages of {}{only}",
            pool.display(),
            ByteSize(page)
        )?;
    }
    totals(out, &report.totals)?;
    for segment in report.segments.iter().filter(|segment| segment.leased) {
        let path = segment.path.display();
        writeln!(out, "leased   {path} by {}", holders(&segment.holders))?;
    }
    for problem in &report.problems {
        writeln!(out, "problem  {}", problem.message)?;
        if let Some(fix) = &problem.fix {
            writeln!(out, "  fix: {fix}")?;
        }
    }
    for charge in &report.charges {
        writeln!(
            out,
            "charged  {} of pages of this size, the pool's or others, to the cgroup {}",
            ByteSize(charge.bytes),
            charge.cgroup.display()
        )?;
    }
    Ok(())
}

fn holders(holders: &[HolderFacts]) -> String {
    let names = holders
        .iter()
        .map(|holder| format!("{} ({})", holder.pid, holder.comm));
    let names: Vec<String> = names.collect();
    match names.is_empty() {
        true => "a process that cannot be seen".to_owned(),
        false => format!("process {}", names.join(", ")),
    }
}

fn totals(out: &mut impl Write, totals: &[TotalFacts]) -> io::Result<()> {
    if totals.is_empty() {
        return writeln!(out, "no segments");
    }
    let head = [
        "node", "segment", "clean", "dirty", "leased", "retired", "broken",
    ];
    let cell = |count: Count| match count.segments {
        0 => "-".to_owned(),
        n => format!("{n} = {}", ByteSize(count.bytes)),
    };
    let lines = totals.iter().map(|total| {
        vec![
            total.node.to_string(),
            ByteSize(total.segment_bytes).to_string(),
            cell(total.clean),
            cell(total.dirty),
            cell(total.leased),
            cell(total.retired),
            cell(total.incomplete),
        ]
    });
    let head = head.map(str::to_owned).to_vec();
    writeln!(out, "{}", table(head, lines.collect()))
}

/// What was scrubbed.
pub(crate) fn scrub(out: &mut impl Write, report: &ScrubReport) -> io::Result<()> {
    let Count { segments, bytes } = report.cleaned;
    let (how, work) = match report.exchange {
        true => ("exchanged", "populating"),
        false => ("scrubbed", "clearing"),
    };
    write!(out, "{how} {} in {}", ByteSize(bytes), counted(segments))?;
    if segments > 0 {
        let (took, speed) = (ms(report.ns), rate(bytes, report.work_ns));
        write!(out, ", {took:.1} ms, {work} at {speed:.1} GB/s")?;
    }
    for method in &report.methods {
        write!(out, ", node {}: {}", method.node, method.method)?;
    }
    match report.busy {
        0 => writeln!(out),
        busy => writeln!(out, "; dirty and in use: {busy}"),
    }
}

/// One line for a pass of `--watch`, at once.
pub(crate) fn pass(out: &mut impl Write, pass: &Pass) -> io::Result<()> {
    writeln!(
        out,
        "pass: {} in {}, {:.1} ms, {} in use, {} not clean",
        ByteSize(pass.bytes),
        counted(pass.segments),
        pass.time.as_secs_f64() * 1e3,
        pass.busy.len(),
        pass.left.len()
    )?;
    out.flush()
}

/// What was given back, and what is in use.
pub(crate) fn drained(out: &mut impl Write, report: &DrainReport) -> io::Result<()> {
    let Some(Count { segments, bytes }) = report.given_back else {
        return Ok(());
    };
    writeln!(
        out,
        "gave back {} in {}",
        ByteSize(bytes),
        counted(segments)
    )?;
    for busy in &report.busy {
        let by = holders(&busy.holders);
        writeln!(out, "in use   {} by {by}", busy.path.display())?;
    }
    Ok(())
}

fn counted(segments: u64) -> String {
    match segments {
        1 => "1 segment".to_owned(),
        n => format!("{n} segments"),
    }
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
