//! Why memory could not be pinned through io_uring, told apart by the error.

use std::fs;
use std::io;

use prezero_memory::ByteSize;
use rustix::process::{Resource, getrlimit};

/// `CAP_IPC_LOCK` of linux/capability.h: whoever has it has no limit.
const IPC_LOCK: u32 = 14;

/// There is no ring.
pub(super) fn no_ring(error: &io::Error) -> String {
    let disabled = fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    let disabled = disabled.ok().map(|value| value.trim().to_owned());
    of_ring(error, disabled.as_deref())
}

/// `disabled` is the sysctl kernel.io_uring_disabled.
fn of_ring(error: &io::Error, disabled: Option<&str>) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM) => match disabled {
            Some(value @ ("1" | "2")) => {
                format!(
                    "io_uring is switched off: {error} (sysctl kernel.io_uring_disabled={value})"
                )
            }
            _ => format!("io_uring is refused: {error} (a seccomp filter)"),
        },
        Some(libc::ENOSYS) => {
            format!("this kernel has no io_uring, or a seccomp filter hides it: {error}")
        }
        _ => format!("no io_uring: {error}"),
    }
}

/// This much memory was not pinned.
pub(super) fn not_pinned(error: &io::Error, bytes: u64) -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let limit = match effective.is_some_and(|mask| mask & (1 << IPC_LOCK) != 0) {
        true => None,
        false => getrlimit(Resource::Memlock).current,
    };
    of_pin(error, bytes, limit)
}

/// `limit` is that of locked memory in bytes, where there is one for this process.
fn of_pin(error: &io::Error, bytes: u64, limit: Option<u64>) -> String {
    let size = ByteSize(bytes);
    match (error.raw_os_error(), limit.filter(|limit| *limit < bytes)) {
        (Some(libc::ENOMEM), Some(limit)) => format!(
            "{size} are more than may be locked, {}: {error} (ulimit -l)",
            ByteSize(limit)
        ),
        (Some(libc::ENOMEM), None) => format!("the kernel has no memory to pin {size}: {error}"),
        (Some(libc::EFAULT), _) => format!(
            "{size} could not be faulted in under the pin: {error} (a page was taken meanwhile, or a cgroup has too few)"
        ),
        (Some(libc::EOPNOTSUPP), _) => {
            format!("this kernel does not pin memory of such a file for good: {error}")
        }
        (Some(libc::EPERM | libc::EACCES), _) => {
            format!("io_uring may not pin: {error} (a seccomp filter or security module)")
        }
        _ => format!("the pin of {size} failed: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_its_own_and_only_a_limit_is_blamed_on_the_limit() {
        let error = io::Error::from_raw_os_error;
        let (mib, small) = (1 << 20, Some(8 << 20));
        let pin = |errno, limit| of_pin(&error(errno), 64 * mib, limit);
        assert!(pin(libc::ENOMEM, small).starts_with("64 MiB are more than may be locked, 8 MiB:"));
        let others = [
            (pin(libc::ENOMEM, None), "no memory"),
            (pin(libc::ENOMEM, Some(64 * mib)), "no memory"),
            (pin(libc::EFAULT, small), "faulted in"),
            (pin(libc::EOPNOTSUPP, small), "does not pin"),
            (pin(libc::EPERM, small), "may not pin"),
            (pin(libc::EINVAL, small), "failed"),
            (
                of_ring(&error(libc::EPERM), Some("2")),
                "io_uring_disabled=2",
            ),
            (of_ring(&error(libc::EPERM), Some("0")), "seccomp"),
            (of_ring(&error(libc::EPERM), None), "seccomp"),
            (of_ring(&error(libc::ENOSYS), None), "has no io_uring"),
            (of_ring(&error(libc::EMFILE), None), "no io_uring"),
        ];
        for (why, part) in others {
            assert!(
                why.contains(part) && !why.contains("ulimit"),
                "{part}: {why}"
            );
        }
    }
}
