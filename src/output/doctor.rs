//! The findings of `prezero doctor` for people: one line each, and a table of the pools.

use std::io::{self, Write};

use comfy_table::{CellAlignment, Table, presets};
use prezero_memory::ByteSize;

use crate::report::doctor::{DoctorReport, Finding, PoolRow};

/// The summary of an examination.
pub(crate) fn doctor(out: &mut impl Write, report: &DoctorReport) -> io::Result<()> {
    for finding in &report.findings {
        line(out, finding)?;
    }
    if !report.pools.is_empty() {
        writeln!(out, "\n{}", table(&report.pools))?;
    }
    if let Some(calibration) = &report.calibration {
        super::calibration::calibration(out, calibration)?;
    }
    if !report.recorded.is_empty() {
        writeln!(
            out,
            "\nrecorded {} files, which hold no names of users, hosts or cgroups, no private paths and no ids:",
            report.recorded.len()
        )?;
    }
    for file in &report.recorded {
        writeln!(out, "  {}", file.display())?;
    }
    Ok(())
}

fn line(out: &mut impl Write, finding: &Finding) -> io::Result<()> {
    let Finding { name, message, .. } = finding;
    writeln!(out, "{:8}{name:10}{message}", finding.level.name())?;
    for (n, fix) in finding.fix.iter().flat_map(|fix| fix.lines()).enumerate() {
        let title = if n == 0 { "fix:" } else { "" };
        writeln!(out, "  {title:5}{fix}")?;
    }
    Ok(())
}

fn table(pools: &[PoolRow]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "hugepages",
        "node",
        "total",
        "free",
        "reserved",
        "surplus",
        "available",
    ]);
    for pool in pools {
        let figure = |figure: Option<u64>| figure.map_or("-".to_owned(), |n| n.to_string());
        table.add_row([
            ByteSize(pool.page_size).to_string(),
            pool.node.map_or("all".to_owned(), |node| node.to_string()),
            pool.total.to_string(),
            pool.free.to_string(),
            figure(pool.reserved),
            pool.surplus.to_string(),
            figure(pool.available),
        ]);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}
