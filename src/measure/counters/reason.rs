//! Why there are no counters, and what to do about it.

use std::fmt;
use std::fs;
use std::io;

use super::Scope;

const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";

/// Why nothing is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unavailable {
    pub(crate) reason: String,
    /// What to type, where that helps.
    pub(crate) fix: Option<String>,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl Unavailable {
    /// Why this machine refused to count.
    pub(super) fn here(error: &io::Error, scope: Scope) -> Self {
        let paranoid = fs::read_to_string(PARANOID).ok();
        let paranoid = paranoid.and_then(|level| level.trim().parse().ok());
        Self::of(error, paranoid, scope)
    }

    /// What an error of perf_event_open(2) means where `kernel.perf_event_paranoid` is this.
    fn of(error: &io::Error, paranoid: Option<i32>, scope: Scope) -> Self {
        // Documentation/admin-guide/sysctl/kernel.rst; above 2 is an addition of distributions that
        // leaves ordinary users nothing.
        let (highest, whose) = match scope {
            Scope::User => (2, "ordinary users"),
            Scope::All => (1, "ordinary users, as far as the kernel's work is counted"),
        };
        let (reason, fix) = match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => (
                "the CPU shows this machine no counters".to_owned(),
                Some(
                    "in a virtual machine, have its monitor pass the PMU on (QEMU: -cpu host,pmu=on)",
                ),
            ),
            Some(libc::EACCES | libc::EPERM) => match paranoid {
                Some(level) if level > highest => {
                    let fix = format!(
                        "sudo sysctl kernel.perf_event_paranoid={highest}, or run it with CAP_PERFMON"
                    );
                    return Self {
                        reason: format!(
                            "kernel.perf_event_paranoid={level} keeps them from {whose}"
                        ),
                        fix: Some(fix),
                    };
                }
                _ => (
                    format!("a seccomp filter or security module refuses them: {error}"),
                    Some("run it with CAP_PERFMON (docker run --cap-add PERFMON …)"),
                ),
            },
            Some(libc::ENOSYS) => (
                format!(
                    "the kernel has none (CONFIG_PERF_EVENTS), or a filter hides them: {error}"
                ),
                None,
            ),
            Some(libc::EMFILE | libc::ENFILE) => (
                format!("each thread takes three descriptors: {error}"),
                Some("ulimit -n 65536"),
            ),
            _ => (format!("perf_event_open failed: {error}"), None),
        };
        Self {
            reason,
            fix: fix.map(str::to_owned),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(errno: i32, paranoid: Option<i32>, scope: Scope) -> (String, String) {
        let error = io::Error::from_raw_os_error(errno);
        let found = Unavailable::of(&error, paranoid, scope);
        (found.reason, found.fix.unwrap_or_default())
    }

    #[test]
    fn a_machine_without_a_pmu_is_told_from_one_that_forbids_it() {
        let (reason, fix) = of(libc::ENOENT, Some(2), Scope::User);
        assert!(reason.contains("no counters") && fix.contains("pmu=on"));
        let (reason, fix) = of(libc::EACCES, Some(3), Scope::User);
        assert!(reason.contains("perf_event_paranoid=3"), "{reason}");
        assert!(fix.starts_with("sudo sysctl kernel.perf_event_paranoid=2"));
    }

    #[test]
    fn the_kernels_work_is_kept_from_users_at_a_lower_level() {
        let (reason, fix) = of(libc::EACCES, Some(2), Scope::All);
        assert!(reason.contains("the kernel's work"), "{reason}");
        assert!(fix.starts_with("sudo sysctl kernel.perf_event_paranoid=1"));
        // What the level allows, something else refused.
        let (reason, fix) = of(libc::EPERM, Some(2), Scope::User);
        assert!(reason.contains("seccomp"), "{reason}");
        assert!(fix.contains("CAP_PERFMON"), "{fix}");
        assert!(of(libc::EPERM, None, Scope::All).0.contains("seccomp"));
    }

    #[test]
    fn any_other_error_is_shown() {
        assert!(
            of(libc::ENOSYS, None, Scope::User)
                .0
                .contains("CONFIG_PERF_EVENTS")
        );
        assert!(of(libc::EMFILE, None, Scope::User).1.contains("ulimit -n"));
        assert!(of(libc::EIO, None, Scope::User).0.contains("Input/output"));
    }
}
