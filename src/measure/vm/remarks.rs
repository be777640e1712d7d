//! What prezero's own reports on its machines have to say, beside their figures.

use super::Measured;
use crate::measure::warning::Warning;
use crate::report::run::LOOSE;

/// Workers that may share a CPU, and what the reports warn of: once each, however many machines there were,
/// and not what is among the warnings that have been `given`.
pub(crate) fn of_machines(rows: &[Measured], given: &[String]) -> Vec<Warning> {
    let of_rows = rows.iter().flat_map(|row| {
        let samples = row.samples.iter();
        samples.map(move |sample| (row, sample))
    });
    let loose = of_rows.clone().map(|(_, sample)| sample.loose).max();
    let loose = loose.filter(|workers| *workers > 0);
    let mut found: Vec<Warning> = loose
        .map(|workers| Warning::Loose { workers })
        .into_iter()
        .collect();
    // A monitor that says that it is ready before its memory is there, or takes other pages, is seen in its word only.
    // Others may give pages back meanwhile, so that one time is no proof.
    let short = rows.iter().find_map(|row| {
        let taken = row.samples.iter().filter_map(|sample| sample.taken).max()?;
        let (bytes, row) = (row.row.bytes, row.row.to_string());
        (taken < bytes).then_some(Warning::NotTaken { row, taken, bytes })
    });
    found.extend(short);
    let mut seen: Vec<String> = given.iter().map(|text| without_figures(text)).collect();
    for (row, sample) in of_rows {
        // Those of loose workers are the one above.
        for text in sample.warnings.iter().filter(|text| !text.ends_with(LOOSE)) {
            let shape = without_figures(text);
            if !seen.contains(&shape) {
                seen.push(shape);
                found.push(Warning::OfMachine {
                    row: row.row.to_string(),
                    text: text.clone(),
                });
            }
        }
    }
    found
}

/// What is the same of two machines that differ in their numbers only.
fn without_figures(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_digit()).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Row, Sample, Way};
    use super::*;

    fn row(samples: &[(usize, &[&str])]) -> Measured {
        let samples = samples.iter().map(|(loose, warnings)| Sample {
            loose: *loose,
            warnings: warnings.iter().map(|text| (*text).to_owned()).collect(),
            ..Sample::of_peer(Duration::from_secs(1), Duration::ZERO, Some(2), None)
        });
        let row = Row {
            way: Way::Fresh,
            bytes: 1 << 30,
            workers: Some(2),
            is_least: false,
        };
        Measured::new(row, None, samples.collect()).expect("samples")
    }

    #[test]
    fn workers_that_may_share_a_cpu_are_one_warning() {
        let loose = format!("1 of 2 workers {LOOSE}");
        let rows = [
            row(&[(0, &[]), (1, &[&loose])]),
            row(&[(2, &[&loose]), (0, &[])]),
        ];
        assert_eq!(of_machines(&rows, &[]), [Warning::Loose { workers: 2 }]);
        assert_eq!(of_machines(&[row(&[(0, &[])])], &[]), []);
    }

    #[test]
    fn what_a_report_warns_of_is_said_once_and_not_what_has_been_said() {
        let rows = [
            row(&[(0, &["1 of 512 pages are elsewhere", "2 threads for 1 node"])]),
            row(&[(0, &["3 of 512 pages are elsewhere"])]),
        ];
        let given = ["8 threads for 2 node".to_owned()];
        let wanted = Warning::OfMachine {
            row: "fresh 2w 1G".to_owned(),
            text: "1 of 512 pages are elsewhere".to_owned(),
        };
        assert_eq!(of_machines(&rows, &given), [wanted]);
    }

    #[test]
    fn a_monitor_that_was_ready_before_its_memory_was_is_not_believed() {
        let of = |taken| {
            let sample = Sample::of_peer(Duration::from_secs(1), Duration::ZERO, Some(2), taken);
            let way = Row {
                way: Way::QemuThreads,
                ..row(&[(0, &[])]).row
            };
            of_machines(
                &[Measured::new(way, None, vec![sample]).expect("a sample")],
                &[],
            )
        };
        assert_eq!(of(Some(1 << 30)), []);
        assert_eq!(of(None), []);
        let text = of(Some(3 << 20))[0].to_string();
        assert!(text.contains("only 3 MiB of 1 GiB"), "{text}");
    }
}
