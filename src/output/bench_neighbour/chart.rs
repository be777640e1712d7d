//! The chart of `prezero bench neighbour`: how long a read takes, alone and next to each method.

use prezero_memory::ByteSize;

use crate::output::chart::{Axis, Bar, ChartError, Group, bars};
use crate::output::figures::Unique;
use crate::report::bench_neighbour::NeighbourReport;
use crate::report::machine::MachineFacts;

/// Bars that are shorter the less the reads are held up, in a group for each working set.
pub(crate) fn chart(report: &NeighbourReport) -> Result<String, ChartError> {
    let sets = report.rows.iter().map(|row| row.working_set).unique();
    let groups = sets.map(|set| {
        let rows = report.rows.iter().filter(|row| row.working_set == set);
        Group {
            title: format!("working set {}", ByteSize(set)),
            bars: rows
                .map(|row| Bar {
                    label: row.method.unwrap_or("alone").to_owned(),
                    value: row.ns_per_access.mean,
                    stdev: row.ns_per_access.stdev,
                    baseline: row.method.is_none(),
                })
                .collect(),
        }
    });
    let groups: Vec<Group> = groups.collect();
    let axis = Axis {
        title: "ns for a random read, less is better",
        figure: |figure| format!("{figure:.1}"),
    };
    let what = "Random reads next to the clearing of memory".to_owned();
    bars(
        &MachineFacts::below(report.machine.as_ref(), what),
        axis,
        &groups,
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::fixed;
    use super::*;

    #[test]
    fn the_chart_has_a_bar_for_each_method_and_one_for_none() {
        let chart = chart(&fixed()).expect("figures");
        for text in [
            "working set 1 MiB",
            "alone",
            "rep-stosb",
            "4.0 ± 0.1 · baseline",
        ] {
            assert!(chart.contains(&format!("\n{text}\n")), "{text}: {chart}");
        }
    }
}
