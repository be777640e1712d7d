//! What the running kernel can do, and what is known to be wrong with it.

use prezero_host::PageSize;
use prezero_memory::{Class, Feature, Features, Prealloc};

use super::Case;
use crate::failure::Failure;
use crate::report::doctor::Finding;

/// Tried, not looked up by version.
pub(super) fn features(case: &Case<'_>) -> Vec<Finding> {
    let features = Features::probe(case.host);
    vec![
        populate(&features.populate_write, case.prealloc),
        minor_faults(&features),
        leases(&features.leases),
    ]
}

fn populate(feature: &Feature, prealloc: Prealloc) -> Finding {
    const NAME: &str = "populate";
    let message = format!("MADV_POPULATE_WRITE {feature}");
    let fix = match feature {
        Feature::Works => return Finding::ok(NAME, message),
        Feature::Missing => "leave --prealloc out, or boot Linux 5.14+",
        _ => "grep Seccomp /proc/self/status; leave --prealloc out, or allow madvise(2) advice 23",
    };
    match prealloc {
        Prealloc::Off => Finding::warning(NAME, format!("{message}; --prealloc needs it"), fix),
        Prealloc::Eager => {
            let class = Class::Host;
            let fix = Some(fix.to_owned());
            let failure = Failure {
                class,
                message,
                fix,
            };
            Finding::problem(NAME, failure, "")
        }
    }
}

/// Nothing of `run` depends on them: monitors that bring memory in on demand do.
fn minor_faults(features: &Features) -> Finding {
    const NAME: &str = "minor";
    let (hugetlbfs, shmem) = (&features.minor_hugetlbfs, &features.minor_shmem);
    if hugetlbfs.works() && shmem.works() {
        return Finding::ok(
            NAME,
            "userfaultfd minor faults of hugetlb and shared memory work",
        );
    }
    if matches!(
        (hugetlbfs, shmem),
        (Feature::Forbidden(_), Feature::Forbidden(_))
    ) {
        return Finding::warning(
            NAME,
            "userfaultfd minor faults of accesses by KVM are forbidden to this user (`run` does without)",
            "sudo sysctl vm.unprivileged_userfaultfd=1",
        );
    }
    let message =
        format!("userfaultfd minor faults: hugetlb memory {hugetlbfs}; shared memory {shmem}");
    Finding::warning(
        NAME,
        format!("{message} (`run` does without)"),
        "uname -r; boot Linux 5.14+ with CONFIG_USERFAULTFD",
    )
}

fn leases(feature: &Feature) -> Finding {
    const NAME: &str = "leases";
    let message = format!("F_SETLEASE on hugetlbfs {feature}");
    match feature {
        Feature::Works => Finding::ok(NAME, message),
        _ => Finding::warning(
            NAME,
            format!(
                "{message}; who has a file open is found by searching /proc (`run` does without)"
            ),
            "sudo fuser -vm /dev/hugepages",
        ),
    }
}

/// Kernels with a defect that a run can meet.
pub(super) fn version(case: &Case<'_>) -> Finding {
    const NAME: &str = "kernel";
    let kernel = &case.host.kernel;
    let release = match kernel.release.as_str() {
        "" => "of unknown release",
        release => release,
    };
    let version = kernel.version();
    if version.is_some_and(|version| version < (5, 14)) {
        let message = format!("Linux {release} has no MADV_POPULATE_WRITE");
        let fix = "leave --prealloc out, or boot Linux 5.14+";
        let class = Class::Host;
        return match case.prealloc {
            Prealloc::Off => Finding::warning(NAME, format!("{message}; --prealloc needs it"), fix),
            Prealloc::Eager => {
                let fix = Some(fix.to_owned());
                Finding::problem(
                    NAME,
                    Failure {
                        class,
                        message,
                        fix,
                    },
                    "",
                )
            }
        };
    }
    let gigabytes = case
        .host
        .pool(PageSize::HUGE_1G)
        .map_or(0, |pool| pool.total);
    let loses = version.is_some_and(|version| ((6, 6)..=(6, 8)).contains(&version));
    if loses && gigabytes > 0 {
        return Finding::warning(
            NAME,
            format!(
                "Linux {release} may lose 1 GiB pages when a process exits (6.6 to 6.8 do); there are {gigabytes}"
            ),
            "hugepage_size=2M, or boot Linux 6.9+",
        );
    }
    Finding::ok(
        NAME,
        format!("Linux {release}: no defect is known that matters here"),
    )
}

/// It unmaps ordinary memory again and again to see who uses it, and leaves hugetlb pages alone.
pub(super) fn numa_balancing(case: &Case<'_>) -> Finding {
    const NAME: &str = "balancing";
    if !case.host.numa_balancing {
        return Finding::ok(NAME, "NUMA balancing is off");
    }
    match case.bytes_of(None) {
        0 => Finding::ok(NAME, "NUMA balancing is on, and leaves hugepages alone"),
        bytes => Finding::warning(
            NAME,
            format!(
                "NUMA balancing unmaps the guest's {} of ordinary memory now and then, to move it",
                prezero_memory::ByteSize(bytes)
            ),
            "sudo sysctl kernel.numa_balancing=0",
        ),
    }
}
