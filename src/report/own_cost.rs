//! What a measurement's own work adds to its passes, as data.

use std::time::Duration;

use serde::Serialize;

use super::run::nanoseconds;
use crate::measure::own_cost::OwnCost;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct InstrumentFacts {
    /// The time of a pass in which nothing is done: the median.
    pub(crate) cost_ns: u64,
    /// That over the shortest pass that was measured.
    pub(crate) part_of_shortest: f64,
    /// What the median is of, in the order of the passes.
    pub(crate) samples_ns: Vec<u64>,
}

impl InstrumentFacts {
    /// `shortest` is the shortest pass that was measured.
    pub(crate) fn new(own: &OwnCost, shortest: Duration) -> Self {
        let samples = own.samples.iter().copied();
        Self {
            cost_ns: nanoseconds(own.time),
            part_of_shortest: own.part_of(shortest),
            samples_ns: samples.map(nanoseconds).collect(),
        }
    }
}
