//! What a test needs from the machine, and what happens when the machine lacks it.

use std::env;
use std::fs::OpenOptions;
use std::io::{self, Write};

/// Says that the calling test is skipped; the test then returns and passes.
///
/// `capability` is one of `hugepages`, `hugetlbfs`, `cgroup`, `kvm`, `numa`, `perf`, `lab`. The line is written past
/// the test harness's capture, so that a log shows what was not tested.
///
/// # Panics
///
/// When `PREZERO_REQUIRE`, a comma-separated list, names the capability.
#[track_caller]
pub fn skip(capability: &str, why: &str) {
    if is_required(capability) {
        panic!("PREZERO_REQUIRE names {capability}, but: {why}");
    }
    note_skip(capability, why);
}

/// Whether `PREZERO_REQUIRE` names the capability: it is then an error that the machine lacks it.
#[must_use]
pub fn is_required(capability: &str) -> bool {
    let required = env::var("PREZERO_REQUIRE").unwrap_or_default();
    required.split(',').any(|name| name.trim() == capability)
}

/// Prints the line of [`skip`] for something that no machine can be required to have, such as a CPU feature.
pub(crate) fn note_skip(capability: &str, why: &str) {
    // A closed stderr must not turn a skipped test into a failed one.
    let _ = writeln!(io::stderr(), "skipped: {capability}: {why}");
}

/// Whether `/dev/kvm` opens for reading and writing; where it does not, the test is skipped.
///
/// # Panics
///
/// As [`skip`] does, when `kvm` is required.
#[must_use = "the test has to return when there is no KVM"]
#[track_caller]
pub fn require_kvm() -> bool {
    match OpenOptions::new().read(true).write(true).open("/dev/kvm") {
        Ok(_) => true,
        Err(error) => {
            skip("kvm", &format!("/dev/kvm: {error}"));
            false
        }
    }
}
