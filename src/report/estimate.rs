//! Predicted creation times, and what they are predicted from. Sizes are bytes, times nanoseconds.

use prezero_memory::Class;
use serde::{Deserialize, Serialize};

use super::bench_vm::RowFacts;
use crate::failure::Failure;
use crate::measure::estimate::{Point, predict};

const GIB: f64 = 1_073_741_824.0;

/// What a machine of a size that was not measured would take, by way. A prediction, not a measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct EstimateFacts {
    pub(crate) bytes: u64,
    pub(crate) page_size: u64,
    /// The sizes that were measured.
    pub(crate) from_bytes: Vec<u64>,
    pub(crate) rows: Vec<EstimateRow>,
    /// Ways that took no longer where they were larger, or were measured at one size: a line says
    /// nothing of them.
    pub(crate) without: Vec<String>,
}

/// A line through the mean creation times of one way.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct EstimateRow {
    pub(crate) way: String,
    pub(crate) peer: Option<String>,
    pub(crate) workers: Option<usize>,
    pub(crate) creation_ns: f64,
    /// What the spread of the measured rows comes to at this size, if it is known. How far the line
    /// itself holds is not in it.
    pub(crate) creation_ns_stdev: Option<f64>,
    /// What does not depend on the size.
    pub(crate) fixed_ns: f64,
    pub(crate) ns_per_gib: f64,
}

/// A measured row, as far as a prediction needs it. The fields are those of schema prezero/bench-vm/1.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct MeasuredRow {
    pub(crate) way: String,
    pub(crate) peer: Option<String>,
    pub(crate) workers: Option<usize>,
    pub(crate) bytes: u64,
    pub(crate) page_size: u64,
    pub(crate) creation_ns: Spread,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub(crate) struct Spread {
    pub(crate) mean: f64,
    pub(crate) stdev: Option<f64>,
}

impl From<&RowFacts> for MeasuredRow {
    fn from(row: &RowFacts) -> Self {
        Self {
            way: row.way.to_owned(),
            peer: row.peer.map(str::to_owned),
            workers: row.workers,
            bytes: row.bytes,
            page_size: row.page_size,
            creation_ns: Spread {
                mean: row.creation_ns.mean,
                stdev: row.creation_ns.stdev,
            },
        }
    }
}

impl EstimateFacts {
    /// Predicts for every way that was measured at two sizes or more, on pages of this size.
    pub(crate) fn new(rows: &[MeasuredRow], page_size: u64, bytes: u64) -> Result<Self, Failure> {
        let rows: Vec<&MeasuredRow> = rows.iter().filter(|r| r.page_size == page_size).collect();
        let mut from: Vec<u64> = rows.iter().map(|row| row.bytes).collect();
        from.sort_unstable();
        from.dedup();
        if from.len() < 2 {
            return Err(too_few());
        }
        let (mut found, mut without): (Vec<EstimateRow>, Vec<String>) = Default::default();
        let mut seen: Vec<&MeasuredRow> = Vec::new();
        for first in &rows {
            let alike = |row: &&&MeasuredRow| same_way(row, first);
            if seen.iter().any(|seen| same_way(seen, first)) {
                continue;
            }
            seen.push(*first);
            #[allow(clippy::cast_precision_loss)] // a prediction
            let points = rows.iter().filter(alike).map(|row| Point {
                at: row.bytes as f64 / GIB,
                mean: row.creation_ns.mean,
                stdev: row.creation_ns.stdev,
            });
            #[allow(clippy::cast_precision_loss)]
            let predicted = predict(&points.collect::<Vec<_>>(), bytes as f64 / GIB);
            let Some(predicted) = predicted.filter(|predicted| predicted.slope > 0.0) else {
                without.push(name(first));
                continue;
            };
            found.push(EstimateRow {
                way: first.way.clone(),
                peer: first.peer.clone(),
                workers: first.workers,
                creation_ns: predicted.mean,
                creation_ns_stdev: predicted.stdev,
                fixed_ns: predicted.intercept,
                ns_per_gib: predicted.slope,
            });
        }
        Ok(Self {
            bytes,
            page_size,
            from_bytes: from,
            rows: found,
            without,
        })
    }
}

fn name(row: &MeasuredRow) -> String {
    let peer = row
        .peer
        .as_deref()
        .map_or(String::new(), |peer| format!("{peer} "));
    let workers = row.workers.map_or(String::new(), |n| format!(" {n}w"));
    format!("{peer}{}{workers}", row.way)
}

fn same_way(row: &MeasuredRow, other: &MeasuredRow) -> bool {
    row.way == other.way && row.peer == other.peer && row.workers == other.workers
}

/// One size says nothing about another.
pub(crate) fn too_few() -> Failure {
    Failure {
        class: Class::Usage,
        message: "A prediction needs measurements of two sizes or more with this page size"
            .to_owned(),
        fix: Some("prezero bench vm --memory 1G,4G".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(way: &str, workers: usize, gib: u64, mean: f64) -> MeasuredRow {
        MeasuredRow {
            way: way.to_owned(),
            peer: None,
            workers: Some(workers),
            bytes: gib << 30,
            page_size: 2 << 20,
            creation_ns: Spread {
                mean,
                stdev: Some(1.0),
            },
        }
    }

    #[test]
    fn every_way_has_its_own_line() {
        let rows = [
            row("fresh", 1, 1, 110.0),
            row("fresh", 2, 1, 60.0),
            row("fresh", 1, 4, 410.0),
            row("fresh", 2, 4, 210.0),
            // At one size only.
            row("recycled-clean", 2, 4, 5.0),
        ];
        let found = EstimateFacts::new(&rows, 2 << 20, 16 << 30).expect("two sizes");
        assert_eq!(found.from_bytes, [1 << 30, 4 << 30]);
        let rows = found.rows.iter();
        let figures = rows.map(|row| (row.workers, row.creation_ns.round(), row.fixed_ns.round()));
        let wanted = [(Some(1), 1610.0, 10.0), (Some(2), 810.0, 10.0)];
        assert_eq!(figures.collect::<Vec<_>>(), wanted);
        assert_eq!(found.without, ["recycled-clean 2w"]);
    }

    #[test]
    fn one_size_or_other_pages_predict_nothing() {
        let rows = [row("fresh", 1, 1, 110.0), row("fresh", 1, 4, 410.0)];
        for (rows, page) in [(&rows[..1], 2 << 20), (&rows[..], 1 << 30)] {
            let failure = EstimateFacts::new(rows, page, 16 << 30).expect_err("too little");
            assert_eq!(failure.class, Class::Usage);
        }
    }
}
