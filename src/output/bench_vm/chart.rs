//! The chart of `prezero bench vm`: a bar of creation time for each way, in a group for each size.

use prezero_memory::ByteSize;

use super::way;
use crate::output::chart::{Axis, Bar, ChartError, Group, bars};
use crate::output::figures::Unique;
use crate::report::bench_vm::VmReport;
use crate::report::machine::MachineFacts;

/// Bars that are shorter the sooner the machine is there.
pub(crate) fn chart(report: &VmReport) -> Result<String, ChartError> {
    let first = report.rows.first().ok_or(ChartError::Empty)?;
    let sizes = report.rows.iter().map(|row| row.bytes).unique();
    let groups = sizes.map(|bytes| {
        let rows = report.rows.iter().filter(|row| row.bytes == bytes);
        Group {
            title: ByteSize(bytes).to_string(),
            bars: rows
                .enumerate()
                .map(|(n, row)| Bar {
                    label: way(row.peer, row.way, row.workers),
                    value: row.creation_ns.mean / 1e6,
                    stdev: row.creation_ns.stdev.map(|stdev| stdev / 1e6),
                    baseline: n == 0,
                })
                .collect(),
        }
    });
    let groups: Vec<Group> = groups.collect();
    let what = format!(
        "Creating a virtual machine on {} pages",
        ByteSize(first.page_size)
    );
    let axis = Axis {
        title: "creation: milliseconds from exec to memory ready (a peer: to its own event), less is better",
        figure: |ms| match ms {
            ms if ms < 100.0 => format!("{ms:.1}"),
            ms => format!("{ms:.0}"),
        },
    };
    let title = MachineFacts::below(report.machine.as_ref(), what);
    bars(&title, axis, &groups)
}

#[cfg(test)]
mod tests {
    use super::super::tests::fixed;
    use super::*;

    #[test]
    fn the_chart_has_a_bar_for_each_way_of_each_size() {
        let chart = chart(&fixed()).expect("figures");
        for text in [
            "Creating a virtual machine on 2 MiB pages",
            "1 GiB",
            "4 GiB",
            "recycled, uncached, 16w",
            "QEMU prealloc, 16w, pinned",
            "147 ± 9.9 · baseline",
            "22.1 ± 1.5 · ×0.15",
        ] {
            assert!(chart.contains(&format!("\n{text}\n")), "{text}: {chart}");
        }
    }

    #[test]
    fn nothing_measured_is_no_chart() {
        assert_eq!(chart(&VmReport::new()), Err(ChartError::Empty));
    }
}
