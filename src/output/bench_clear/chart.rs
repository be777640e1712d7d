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
/// apart. The place is marked where the best cached and the best uncached of the former cross.
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
        fewest.and_then(|threads| crossing(&report.rows, threads)),
    )
}

/// Where the best cached and the best uncached method, each in its best chunk, change places for the last
/// time, and who is ahead from there on. `None` where one is always ahead.
fn crossing(rows: &[RowFacts], threads: usize) -> Option<(f64, String)> {
    let best = |stores| {
        let of = rows
            .iter()
            .filter(|row| row.stores == stores && row.threads == threads);
        let best = of.max_by(|a, b| a.gbps_mean.total_cmp(&b.gbps_mean))?;
        Some(best.method)
    };
    let (cached, uncached) = (best("cached")?, best("uncached")?);
    let rate = |method: &str, chunk| {
        let is = |row: &&RowFacts| (row.method, row.chunk, row.threads) == (method, chunk, threads);
        rows.iter().find(is).map(|row| row.gbps_mean)
    };
    let mut chunks: Vec<u64> = rows.iter().filter_map(|row| row.chunk).collect();
    chunks.sort_unstable();
    chunks.dedup();
    // By how much uncached stores are ahead, on an axis of powers of two, as the lines are drawn.
    let ahead: Vec<(f64, f64)> = chunks
        .into_iter()
        .filter_map(|chunk| {
            let chunk_of = Some(chunk);
            let by = rate(uncached, chunk_of)? - rate(cached, chunk_of)?;
            Some((bytes(chunk).log2(), by))
        })
        .collect();
    let pairs = ahead.windows(2).rev();
    let mut crossed = pairs.filter(|pair| (pair[0].1 > 0.0) != (pair[1].1 > 0.0));
    let [(left, before), (right, after)] = crossed.next()? else {
        return None;
    };
    let at = left + (right - left) * before / (before - after);
    let (first, second) = match *after > 0.0 {
        true => (uncached, cached),
        false => (cached, uncached),
    };
    let threads = thread_count(threads);
    Some((
        at.exp2(),
        format!("from here on {first} is ahead of {second}, {threads}"),
    ))
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
    fn the_chart_has_a_line_for_each_method_and_the_crossing_of_lines() {
        let chart = chart(&crossed()).expect("figures");
        for text in [
            "Clearing 4 GiB on 2 MiB pages",
            "rep-stosb, 1 thread",
            "rep-stosb, 2 threads",
            "movnti, 1 thread",
            "movnti, 2 threads",
            "from here on rep-stosb is ahead of movnti, 1 thread",
            "4 KiB",
            "1 GiB",
        ] {
            assert!(chart.contains(&format!("\n{text}\n")), "{text}: {chart}");
        }
    }

    /// One string instruction over a GiB is faster than uncached stores, as it is on AMD.
    fn crossed() -> ClearReport {
        let mut report = fixed(&["rep-stosb", "movnti"]);
        for row in &mut report.rows {
            match (row.method, row.chunk) {
                ("movnti", _) => row.stores = "uncached",
                // 24.5 − 9 ahead at 4 KiB, 15.5 behind at 1 GiB.
                (_, Some(0x4000_0000)) => row.gbps_mean = 41.0,
                _ => {}
            }
        }
        report
    }

    #[test]
    fn the_mark_is_where_the_lines_cross() {
        let mut report = crossed();
        let (at, _) = crossing(&report.rows, 1).expect("they cross");
        // Half-way between 2^12 and 2^30.
        assert!((at.log2() - 21.0).abs() < 1e-9, "{at}");
        for row in &mut report.rows {
            row.gbps_mean = match (row.method, row.chunk) {
                ("movnti", Some(0x4000_0000)) => 42.0,
                ("movnti", _) => 8.0,
                _ => row.gbps_mean,
            };
        }
        let (_, text) = crossing(&report.rows, 1).expect("they cross");
        assert_eq!(text, "from here on movnti is ahead of rep-stosb, 1 thread");
        report.rows.retain(|row| row.chunk != Some(1 << 30));
        assert_eq!(crossing(&report.rows, 1), None, "one chunk");
        let report = fixed(&["rep-stosb", "movnti"]);
        assert_eq!(crossing(&report.rows, 1), None, "one kind of stores");
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
