//! The chart of `prezero bench clear`: rates over chunks, or bars where there is one chunk only.

use prezero_memory::ByteSize;

use crate::measure::clear::thread_count;
use crate::output::chart::{Axis, Bar, ChartError, Group, Line, bars, lines};
use crate::output::figures::Unique;
use crate::report::bench_clear::{ClearReport, RowFacts};
use crate::report::machine::MachineFacts;

/// What suits the rows.
pub(crate) fn chart(report: &ClearReport) -> Result<String, ChartError> {
    let first = report.rows.first().ok_or(ChartError::Empty)?;
    match report.rows.iter().all(|row| row.chunk == first.chunk) {
        true => methods(report, first),
        false => over_chunks(report, first),
    }
}

/// A bar for each method, in a group for each number of threads.
fn methods(report: &ClearReport, first: &RowFacts) -> Result<String, ChartError> {
    let counts = report.rows.iter().map(|row| row.threads).unique();
    let groups = counts.map(|threads| {
        let rows = report.rows.iter().filter(|row| row.threads == threads);
        Group {
            title: thread_count(threads),
            bars: rows
                .map(|row| Bar {
                    label: row.method.to_owned(),
                    value: row.gbps_mean,
                    stdev: row.gbps_stdev,
                    baseline: (report.baseline.as_ref())
                        .is_some_and(|baseline| baseline.method == row.method),
                })
                .collect(),
        }
    });
    let groups: Vec<Group> = groups.collect();
    let what = match first.chunk {
        Some(chunk) => format!("{}, in chunks of {}", what(first), ByteSize(chunk)),
        None => what(first),
    };
    let axis = Axis {
        title: "GB/s (10⁹ bytes), more is better",
        figure: |figure| format!("{figure:.1}"),
    };
    bars(
        &MachineFacts::below(report.machine.as_ref(), what),
        axis,
        &groups,
    )
}

/// A line for each method with the fewest and with the most threads: more of them could not be told
/// apart. The crossing is marked.
fn over_chunks(report: &ClearReport, first: &RowFacts) -> Result<String, ChartError> {
    let counts = || report.rows.iter().map(|row| row.threads);
    let (fewest, most) = (counts().min(), counts().max());
    let methods: Vec<&str> = report.rows.iter().map(|row| row.method).unique().collect();
    let mut drawn = Vec::new();
    for threads in [fewest, most].into_iter().flatten().unique() {
        for (series, method) in methods.iter().enumerate() {
            let is = |row: &&RowFacts| row.method == *method && row.threads == threads;
            let mut points: Vec<(f64, f64)> = (report.rows.iter().filter(is))
                .filter_map(|row| Some((bytes(row.chunk?), row.gbps_mean)))
                .collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            drawn.push(Line {
                label: format!("{method}, {}", thread_count(threads)),
                series,
                dashed: fewest != Some(threads),
                points,
            });
        }
    }
    let mark = report.crossing.as_ref().and_then(|crossing| {
        let from = crossing.from_bytes?;
        let text = format!(
            "single extents: {} is ahead of {} from {} on",
            crossing.uncached,
            crossing.cached,
            ByteSize(from)
        );
        Some((bytes(from), text))
    });
    let x_axis = Axis {
        title: "chunk: how much one instruction or loop covers",
        figure: size,
    };
    let y_axis = Axis {
        title: "GB/s (10⁹ bytes)",
        figure: |figure| figure.to_string(),
    };
    lines(
        &MachineFacts::below(report.machine.as_ref(), what(first)),
        x_axis,
        y_axis,
        &drawn,
        mark,
    )
}

fn what(row: &RowFacts) -> String {
    let pages = super::pages(row.page_size);
    format!("Clearing {} on {pages}", ByteSize(row.bytes))
}

#[allow(clippy::cast_precision_loss)] // a place on an axis
fn bytes(size: u64) -> f64 {
    size as f64
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a power of two
fn size(figure: f64) -> String {
    ByteSize(figure as u64).to_string()
}

#[cfg(test)]
mod tests {
    use super::super::tests::fixed;
    use super::*;

    #[test]
    fn the_chart_has_a_line_for_each_method_and_the_crossing() {
        let chart = chart(&fixed(&["rep-stosb", "movnti"])).expect("figures");
        for text in [
            "Clearing 4 GiB on 2 MiB pages",
            "rep-stosb, 1 thread",
            "rep-stosb, 2 threads",
            "movnti, 1 thread",
            "movnti, 2 threads",
            "single extents: movnti is ahead of cached from 64 KiB on",
            "4 KiB",
            "1 GiB",
        ] {
            assert!(chart.contains(&format!("\n{text}\n")), "{text}: {chart}");
        }
    }

    #[test]
    fn rows_of_one_chunk_are_bars() {
        let mut report = fixed(&["rep-stosb", "movnti"]);
        report.rows.retain(|row| row.chunk == Some(4 << 10));
        let chart = chart(&report).expect("figures");
        for text in [
            "Clearing 4 GiB on 2 MiB pages, in chunks of 4 KiB",
            "2 threads",
            "18.0 ± 0.2 · baseline",
            "49.0 ± 0.2 · ×2.72",
        ] {
            assert!(chart.contains(&format!("\n{text}\n")), "{text}: {chart}");
        }
    }

    #[test]
    fn of_many_numbers_of_threads_the_fewest_and_the_most_are_drawn() {
        let mut report = fixed(&["movnti"]);
        let mut more = report.rows.clone();
        more.iter_mut().for_each(|row| row.threads *= 4);
        report.rows.extend(more);
        let chart = chart(&report).expect("figures");
        assert!(chart.contains("movnti, 1 thread\n") && chart.contains("movnti, 8 threads"));
        assert!(
            !chart.contains("2 threads") && !chart.contains("4 threads"),
            "{chart}"
        );
    }
}
