//! What the reports of all measurements have. Each has it among its own, in the order of its schema.

use super::facts::{ErrorFacts, HostFacts};
use super::machine::MachineFacts;

/// The report of a measurement.
pub(crate) trait BenchReport {
    fn shared(&mut self) -> Shared<'_>;
}

/// What is in every report.
#[derive(Debug)]
pub(crate) struct Shared<'a> {
    pub(crate) host: &'a mut Option<HostFacts>,
    pub(crate) machine: &'a mut Option<MachineFacts>,
    pub(crate) warnings: &'a mut Vec<String>,
    pub(crate) error: &'a mut Option<ErrorFacts>,
}

/// These reports have fields of those names.
macro_rules! bench_reports {
    ($($report:ty),* $(,)?) => {$(
        impl BenchReport for $report {
            fn shared(&mut self) -> Shared<'_> {
                Shared {
                    host: &mut self.host,
                    machine: &mut self.machine,
                    warnings: &mut self.warnings,
                    error: &mut self.error,
                }
            }
        }
    )*};
}

bench_reports!(
    super::bench_clear::ClearReport,
    super::bench_mmap::MmapReport,
    super::bench_neighbour::NeighbourReport,
    super::bench_vm::VmReport,
);
