//! CPU time that cgroups withheld while memory was populated.

use std::path::Path;

use prezero_host::CpuThrottling;

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
        let seconds = throttled.time.as_secs_f64();
        let cgroup = throttled.cgroup.display();
        report.warn(format!(
            "The CPU quota of {cgroup} held its threads back for {seconds:.3} s of CPU time while memory was populated (raise its cpu.max, or use fewer --threads)"
        ));
    }
}
