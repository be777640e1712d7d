//! CPU time that cgroups withheld while memory was populated.

use std::path::Path;

use prezero_host::CpuThrottling;

use crate::measure::warning;
use crate::report::run::{Report, nanoseconds};

/// The counters as they were before the workers were started.
pub(super) fn start() -> CpuThrottling {
    CpuThrottling::start(Path::new("/"))
}

/// Puts the time since then into the report, and warns where there is any.
pub(super) fn note(report: &mut Report, throttling: &CpuThrottling) {
    let Some(throttled) = throttling.so_far() else {
        return;
    };
    report.throttled_ns = Some(nanoseconds(throttled.time));
    if !throttled.time.is_zero() {
        report.warn(warning::throttling(
            &throttled,
            "while memory was populated",
        ));
    }
}
