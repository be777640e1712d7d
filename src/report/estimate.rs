//! Predicted creation times, and what they are predicted from. Sizes are bytes, times nanoseconds.

use prezero_memory::Class;
use serde::{Deserialize, Serialize};

use super::bench_vm::RowFacts;
use crate::failure::Failure;
use crate::measure::estimate::{Point, predict};
use crate::measure::warning::Warning;

/// Rates that are further apart than this are not those of one line through the origin and a bit.
const APART: f64 = 1.5;

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
    /// The sizes that this way was measured at.
    pub(crate) from_bytes: Vec<u64>,
    /// All bytes over the time of creation at each of them, in GB/s.
    pub(crate) rates_gbps: Vec<f64>,
    /// How many times the largest of them the predicted size is.
    pub(crate) factor: f64,
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
            let mut of_way: Vec<&MeasuredRow> = rows.iter().filter(alike).copied().collect();
            of_way.sort_unstable_by_key(|row| row.bytes);
            #[allow(clippy::cast_precision_loss)] // a prediction
            let points = of_way.iter().map(|row| Point {
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
                from_bytes: of_way.iter().map(|row| row.bytes).collect(),
                #[allow(clippy::cast_precision_loss)]
                rates_gbps: of_way
                    .iter()
                    .map(|row| row.bytes as f64 / row.creation_ns.mean)
                    .collect(),
                #[allow(clippy::cast_precision_loss)]
                factor: bytes as f64 / of_way.last().map_or(f64::NAN, |row| row.bytes as f64),
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

impl EstimateFacts {
    /// What a reader should know before believing it.
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        let of = self.rows.len();
        let name = |row: &EstimateRow| named(row.peer.as_deref(), &row.way, row.workers);
        let mut found = Vec::new();
        let negative: Vec<&EstimateRow> =
            self.rows.iter().filter(|row| row.fixed_ns < 0.0).collect();
        let worst = negative
            .iter()
            .min_by(|a, b| a.fixed_ns.total_cmp(&b.fixed_ns));
        if let Some(worst) = worst {
            found.push(Warning::NegativeFixedCost {
                rows: negative.len(),
                of,
                worst: name(worst),
                seconds: worst.fixed_ns / 1e9,
            });
        }
        let apart = |row: &EstimateRow| {
            let rates = || row.rates_gbps.iter().copied();
            (
                rates().fold(f64::INFINITY, f64::min),
                rates().fold(0.0, f64::max),
            )
        };
        let ratio = |row: &EstimateRow| apart(row).1 / apart(row).0;
        let far: Vec<&EstimateRow> = self.rows.iter().filter(|row| ratio(row) > APART).collect();
        if let Some(worst) = far.iter().max_by(|a, b| ratio(a).total_cmp(&ratio(b))) {
            let (least, most) = apart(worst);
            found.push(Warning::RatesApart {
                rows: far.len(),
                of,
                worst: name(worst),
                least,
                most,
            });
        }
        found
    }
}

fn name(row: &MeasuredRow) -> String {
    named(row.peer.as_deref(), &row.way, row.workers)
}

fn named(peer: Option<&str>, way: &str, workers: Option<usize>) -> String {
    let peer = peer.map_or(String::new(), |peer| format!("{peer} "));
    let workers = workers.map_or(String::new(), |n| format!(" {n}w"));
    format!("{peer}{way}{workers}")
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
        let row = &found.rows[0];
        assert_eq!(
            (&*row.from_bytes, row.factor),
            (&[1 << 30, 4 << 30][..], 4.0)
        );
        assert_eq!(row.rates_gbps.len(), 2);
        assert!((row.rates_gbps[0] - GIB / 110.0).abs() < 1.0);
        assert_eq!(found.warnings(), []);
    }

    #[test]
    fn a_fixed_cost_below_nothing_and_rates_far_apart_are_said_of_the_worst() {
        let rows = [
            row("fresh", 1, 1, 90.0),
            row("fresh", 1, 4, 410.0),
            row("fresh", 2, 1, 40.0),
            row("fresh", 2, 4, 410.0),
            row("recycled-clean", 2, 1, 20.0),
            row("recycled-clean", 2, 4, 23.0),
        ];
        let found = EstimateFacts::new(&rows, 2 << 20, 16 << 30).expect("two sizes");
        let text: Vec<String> = found.warnings().iter().map(ToString::to_string).collect();
        let [negative, apart] = &text[..] else {
            panic!("{text:?}");
        };
        assert!(
            negative.starts_with("2 of 3 ") && negative.contains("fresh 2w"),
            "{negative}"
        );
        assert!(
            apart.starts_with("2 of 3 ") && apart.contains("recycled-clean 2w"),
            "{apart}"
        );
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
