//! The chart of `prezero bench mmap`: a bar of GB/s for each function.

use prezero_memory::ByteSize;

use crate::measure::clear::thread_count;
use crate::output::chart::{Axis, Bar, ChartError, Group, bars};
use crate::report::bench_mmap::MmapReport;
use crate::report::machine::MachineFacts;

/// Bars that are longer the faster it goes.
pub(crate) fn chart(report: &MmapReport) -> Result<String, ChartError> {
    let first = report.rows.first().ok_or(ChartError::Empty)?;
    let group = Group {
        title: thread_count(first.threads),
        bars: (report.rows.iter().enumerate())
            .map(|(n, row)| Bar {
                label: row.function.to_owned(),
                value: row.gbps_mean,
                stdev: row.gbps_stdev,
                baseline: n == 0,
            })
            .collect(),
    };
    let what = format!(
        "Mapping and touching {} on {} pages",
        ByteSize(first.bytes),
        ByteSize(first.page_size)
    );
    let axis = Axis {
        title: "GB/s (10⁹ bytes), more is better",
        figure: |figure| format!("{figure:.1}"),
    };
    bars(
        &MachineFacts::below(report.machine.as_ref(), what),
        axis,
        &[group],
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::fixed;
    use super::*;

    #[test]
    fn the_chart_has_a_bar_for_each_function() {
        let chart = chart(&fixed(2)).expect("figures");
        for text in [
            "Mapping and touching 4 GiB on 2 MiB pages",
            "2 threads",
            "demand",
            "populate",
        ] {
            assert!(chart.contains(&format!("\n{text}\n")), "{text}: {chart}");
        }
    }
}
