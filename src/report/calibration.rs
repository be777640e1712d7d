//! The long calibration of `prezero doctor` as data: a part of schema `prezero/doctor/1`.

use serde::Serialize;

use super::bench_clear::{CrossingFacts, RowFacts};
use crate::measure::clear::calibration::Calibration;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct CalibrationFacts {
    /// Of the memory that was cleared.
    pub(crate) page_size: u64,
    pub(crate) bytes: u64,
    /// Whether that was hugepages; otherwise ordinary memory, whose page faults and TLB misses count.
    pub(crate) hugepages: bool,
    /// Every method with one and with all threads, in chunks as large as those of a run.
    pub(crate) rows: Vec<RowFacts>,
    /// `None` where this CPU has no uncached stores.
    pub(crate) crossing: Option<CrossingFacts>,
    /// What a run would clear with, and why.
    pub(crate) chosen: Chosen,
    pub(crate) warnings: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Chosen {
    pub(crate) method: &'static str,
    pub(crate) why: String,
}

impl From<&Calibration> for CalibrationFacts {
    fn from(calibration: &Calibration) -> Self {
        let (page_size, bytes) = (calibration.page_size.bytes(), calibration.bytes);
        let rows = calibration.rows.iter();
        Self {
            page_size,
            bytes,
            hugepages: calibration.hugepages,
            rows: rows
                .map(|row| RowFacts::of(row, page_size, bytes))
                .collect(),
            crossing: calibration.crossing.as_ref().map(Into::into),
            chosen: Chosen {
                method: calibration.choice.method.name(),
                why: calibration.choice.why.clone(),
            },
            warnings: calibration
                .warnings
                .iter()
                .map(ToString::to_string)
                .collect(),
        }
    }
}
