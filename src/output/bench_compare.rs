//! A comparison for people: first why to doubt it, then what differs, then the ratios.

#[cfg(test)]
mod tests;

use std::io::{self, Write};

use super::figures::{Unique, plus_minus, table};
use crate::report::bench_compare::{CompareReport, PairFacts, SideFacts, SpreadFacts};

/// Longer facts are cut in the table; the document has them whole.
const LONGEST: usize = 36;

/// Of rows that one document has alone.
const MOST_NAMES: usize = 6;

/// Nothing where nothing was compared.
pub(crate) fn compare(out: &mut impl Write, report: &CompareReport) -> io::Result<()> {
    let (Some(a), Some(b)) = (&report.a, &report.b) else {
        return Ok(());
    };
    // Part of the result and not beside it: whoever keeps the ratios keeps these.
    for warning in &report.warnings {
        writeln!(out, "warning: {warning}")?;
    }
    side(out, "A", a)?;
    side(out, "B", b)?;
    if !report.differences.is_empty() {
        let head = ["differs", "A", "B"].map(str::to_owned).to_vec();
        let lines = report.differences.iter().map(|differing| {
            let side = |fact: &Option<String>| fact.as_deref().map_or("?".to_owned(), cut);
            vec![
                differing.fact.to_owned(),
                side(&differing.a),
                side(&differing.b),
            ]
        });
        writeln!(out, "\n{}", table(head, lines.collect()))?;
    }
    for figure in report.rows.iter().map(|row| row.figure).unique() {
        let rows: Vec<&PairFacts> = report
            .rows
            .iter()
            .filter(|row| row.figure == figure)
            .collect();
        writeln!(out, "\n{}", figures(&rows))?;
    }
    for (which, names) in [("A", &report.only_a), ("B", &report.only_b)] {
        if names.is_empty() {
            continue;
        }
        writeln!(out, "\nonly in {which}")?;
        for name in names.iter().take(MOST_NAMES) {
            writeln!(out, "  {name}")?;
        }
        if let Some(more @ 1..) = names.len().checked_sub(MOST_NAMES) {
            writeln!(out, "  and {more} more")?;
        }
    }
    Ok(())
}

fn side(out: &mut impl Write, which: &str, side: &SideFacts) -> io::Result<()> {
    let unknown = || "unknown".to_owned();
    writeln!(
        out,
        "{which:9} {}: Linux {}, {}",
        side.file,
        side.kernel.clone().unwrap_or_else(unknown),
        side.cpu.clone().unwrap_or_else(unknown)
    )
}

fn cut(fact: &str) -> String {
    match fact.chars().count() > LONGEST {
        true => fact.chars().take(LONGEST - 1).chain(['…']).collect(),
        false => fact.to_owned(),
    }
}

/// The rows of one figure, with a unit that suits them.
fn figures(rows: &[&PairFacts]) -> String {
    let Some(first) = rows.first() else {
        return String::new();
    };
    let means = || rows.iter().flat_map(|row| [row.a.mean, row.b.mean]);
    let largest = means().fold(0.0, f64::max);
    let (unit, scale) = match first.unit {
        "ns" if largest >= 10e9 => ("s", 1e9),
        "ns" => ("ms", 1e6),
        unit => (unit, 1.0),
    };
    // The smallest has three digits, too.
    let digits = match means().map(f64::abs).fold(f64::INFINITY, f64::min) / scale {
        ..1.0 => 3,
        1.0..10.0 => 2,
        _ => 1,
    };
    let figure = |spread: SpreadFacts| {
        plus_minus(
            spread.mean / scale,
            spread.stdev.map(|stdev| stdev / scale),
            digits,
        )
    };
    let head = [unit, "A", "B", "B/A", "B is"];
    let head = head.map(str::to_owned).to_vec();
    let lines = rows.iter().map(|row| {
        vec![
            row.row.clone(),
            figure(row.a),
            figure(row.b),
            row.ratio.map_or("none".to_owned(), |ratio| {
                plus_minus(ratio.mean, ratio.stdev, 2)
            }),
            match row.verdict {
                "unclear" if row.ratio.is_some_and(|ratio| ratio.stdev.is_some()) => "within σ",
                "unclear" => "unclear",
                verdict => verdict,
            }
            .to_owned(),
        ]
    });
    let title = format!("{}: {} is better", first.title, first.better);
    format!("{title}\n{}", table(head, lines.collect()))
}
