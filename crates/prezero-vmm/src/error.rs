//! Why a guest could not be started, or did not end as it should.

use std::io;

use prezero_memory::Class;
use thiserror::Error;
use vm_memory::GuestMemoryError;

/// Why a guest could not be started, or did not end as it should. vCPUs are counted from 0.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GuestError {
    /// No vCPU was asked for, or more than KVM offers (`KVM_CAP_MAX_VCPUS`).
    #[error("{cpus} vCPUs were asked for, KVM here offers 1 to {max}")]
    VcpuCount {
        /// What was asked for.
        cpus: u32,
        /// KVM's limit.
        max: u32,
    },
    /// A RAM range is empty or not a multiple of 4 KiB.
    #[error("Guest RAM at {gpa:#x} of {len} bytes is empty or not aligned to 4096 bytes")]
    RamUnaligned {
        /// First guest address.
        gpa: u64,
        /// Length in bytes.
        len: u64,
    },
    /// A RAM range ends beyond what the guest can address.
    #[error("Guest RAM at {gpa:#x} of {len} bytes ends beyond {bits} address bits")]
    RamTooHigh {
        /// First guest address.
        gpa: u64,
        /// Length in bytes.
        len: u64,
        /// Address bits: the guest CPU's, at most 47, the lower half of a four-level page table.
        bits: u8,
    },
    /// Two RAM ranges overlap, or one lies where the probe lives.
    #[error("Guest RAM at {gpa:#x} of {len} bytes overlaps what is at {other:#x}")]
    RamOverlap {
        /// First guest address.
        gpa: u64,
        /// Length in bytes.
        len: u64,
        /// First guest address of the other range.
        other: u64,
    },
    /// Page tables and mailboxes do not fit below the firmware area at the end of the 32-bit hole.
    #[error(
        "The probe guest needs {bytes} bytes for page tables and mailboxes, there is room for {room}"
    )]
    ProbeTooLarge {
        /// What it needs.
        bytes: u64,
        /// What there is.
        room: u64,
    },
    /// No memory slot stands behind a range that the guest would read.
    #[error("No memory slot stands behind all of guest address {gpa:#x}, {len} bytes")]
    NotRegistered {
        /// First guest address.
        gpa: u64,
        /// Length in bytes.
        len: u64,
    },
    /// The probe's own memory could not be written or read by the host.
    #[error("The probe's memory at guest address {gpa:#x} cannot be accessed")]
    Memory {
        /// Guest address.
        gpa: u64,
        /// Why.
        #[source]
        source: GuestMemoryError,
    },
    /// A vCPU's thread could not be started or prepared.
    #[error("The thread of vCPU {cpu} cannot be started")]
    Thread {
        /// Which vCPU.
        cpu: u32,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A vCPU's thread panicked: a defect of this crate.
    #[error("The thread of vCPU {cpu} panicked")]
    Panicked {
        /// Which vCPU.
        cpu: u32,
    },
    /// `KVM_CREATE_VCPU` failed; EEXIST where a probe has already run in this machine.
    #[error("KVM cannot create vCPU {cpu}")]
    CreateVcpu {
        /// Which vCPU.
        cpu: u32,
        /// KVM's answer.
        #[source]
        source: io::Error,
    },
    /// An ioctl that prepares a vCPU failed.
    #[error("{name} failed for vCPU {cpu}")]
    Ioctl {
        /// The ioctl's name in `linux/kvm.h`.
        name: &'static str,
        /// Which vCPU.
        cpu: u32,
        /// KVM's answer.
        #[source]
        source: io::Error,
    },
    /// `KVM_RUN` failed. EFAULT means that the host has no page behind an address that the guest used.
    #[error("KVM cannot run vCPU {cpu} any further, at instruction {rip:#x}{}{}", at_scan(*.scanning), meaning(.source))]
    Run {
        /// Which vCPU.
        cpu: u32,
        /// Guest instruction pointer.
        rip: u64,
        /// The guest address that the probe's scan had reached.
        scanning: Option<u64>,
        /// KVM's answer.
        #[source]
        source: io::Error,
    },
    /// The guest did something the probe never does.
    #[error("vCPU {cpu} left the guest unexpectedly: {exit}, instruction {rip:#x}")]
    UnexpectedExit {
        /// Which vCPU.
        cpu: u32,
        /// The exit, as KVM names it, with its details.
        exit: String,
        /// Guest instruction pointer.
        rip: u64,
    },
    /// A triple fault: the guest raised an exception, which it cannot handle.
    #[error("vCPU {cpu} shut down with a triple fault")]
    Shutdown {
        /// Which vCPU.
        cpu: u32,
    },
    /// KVM gave up on the guest; sub-error 1 is an instruction it cannot emulate.
    #[error("KVM gave up on vCPU {cpu}: internal error {suberror}, instruction {rip:#x}")]
    InternalError {
        /// Which vCPU.
        cpu: u32,
        /// `KVM_INTERNAL_ERROR_*` of `linux/kvm.h`.
        suberror: u32,
        /// Guest instruction pointer.
        rip: u64,
    },
    /// The processor refused the guest's state.
    #[error("The processor refused to enter vCPU {cpu}: hardware reason {reason:#x}")]
    EntryFailure {
        /// Which vCPU.
        cpu: u32,
        /// The hardware's reason.
        reason: u64,
    },
    /// A Linux guest was to run that nothing has been loaded for.
    #[error("The guest has not been loaded")]
    NotLoaded,
    /// An eventfd or its interrupt could not be made.
    #[error("The serial port's interrupt cannot be made")]
    Device {
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The deadline passed while a Linux guest ran.
    #[error("The deadline passed while the guest ran")]
    LinuxDeadline,
    /// A vCPU wrote to no port for the whole time that was allowed.
    #[error("vCPU {cpu} gave no sign of life for {seconds:.1} s")]
    Silent {
        /// Which vCPU.
        cpu: u32,
        /// How long, in seconds.
        seconds: f64,
    },
    /// The caller asked to stop.
    #[error("The guest was cancelled")]
    Cancelled,
    /// The deadline passed.
    #[error("The deadline passed with {scanned} of {total} bytes scanned")]
    Deadline {
        /// Bytes scanned so far.
        scanned: u64,
        /// Bytes to scan.
        total: u64,
    },
    /// The guest says it is done but has not read everything: its answer cannot be trusted.
    #[error("vCPU {cpu} scanned {scanned} of its {expected} bytes")]
    Incomplete {
        /// Which vCPU.
        cpu: u32,
        /// What it says it read.
        scanned: u64,
        /// What it was given to read.
        expected: u64,
    },
}

/// How far a scan had come.
fn at_scan(gpa: Option<u64>) -> String {
    gpa.map_or(String::new(), |gpa| {
        format!(", reading guest address {gpa:#x}")
    })
}

/// What KVM's answer means for the guest, where it has a meaning of its own.
fn meaning(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EFAULT) => ": the host has no page for an address that the guest used",
        Some(libc::EHWPOISON) => ": the guest used memory with a hardware error",
        _ => "",
    }
}

/// Whether a limit is reached or something used up, so that more of it would help.
pub(crate) fn is_shortage(source: &io::Error) -> bool {
    let number = source.raw_os_error();
    matches!(
        number,
        Some(libc::EMFILE | libc::ENFILE | libc::EAGAIN | libc::ENOMEM)
    )
}

impl GuestError {
    /// What kind of error it is.
    pub fn class(&self) -> Class {
        match self {
            GuestError::Cancelled | GuestError::Deadline { .. } | GuestError::LinuxDeadline => {
                Class::Stopped
            }
            GuestError::VcpuCount { .. }
            | GuestError::RamTooHigh { .. }
            | GuestError::ProbeTooLarge { .. } => Class::Usage,
            GuestError::Thread { source, .. }
            | GuestError::Device { source }
            | GuestError::CreateVcpu { source, .. }
            | GuestError::Ioctl { source, .. } => match is_shortage(source) {
                true => Class::Shortage,
                false => Class::Host,
            },
            GuestError::RamUnaligned { .. }
            | GuestError::RamOverlap { .. }
            | GuestError::NotRegistered { .. }
            | GuestError::Memory { .. }
            | GuestError::NotLoaded
            | GuestError::Panicked { .. } => Class::Internal,
            _ => Class::Guest,
        }
    }

    /// Something the user can type, where there is something.
    pub fn fix(&self) -> Option<String> {
        match self {
            GuestError::VcpuCount { max, .. } => Some(format!("`--cpus N` with N from 1 to {max}")),
            GuestError::RamTooHigh { bits, .. } => {
                Some(format!("use less memory: guest addresses end at {} GiB here", 1u64 << bits.saturating_sub(30).min(63)))
            }
            GuestError::Thread { source, .. } if source.raw_os_error() == Some(libc::EAGAIN) => {
                Some("`--cpus N` with a smaller N, or raise the limit: `ulimit -u`, `cat /sys/fs/cgroup/pids.max`".into())
            }
            GuestError::CreateVcpu { source, .. }
                if matches!(source.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) =>
            {
                Some("`ulimit -n 1024`, or `--cpus N` with a smaller N".into())
            }
            GuestError::Run { source, .. } if source.raw_os_error() == Some(libc::EFAULT) => {
                Some("`--prealloc`, which takes every page before the guest starts; if it was given: `sudo dmesg | tail`".into())
            }
            GuestError::InternalError { .. } | GuestError::EntryFailure { .. } | GuestError::Silent { .. } => {
                Some("`sudo dmesg | tail` has KVM's account".into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kvm_run_says_is_put_into_words() {
        let run = |errno| GuestError::Run {
            cpu: 1,
            rip: 0x10_0000,
            scanning: None,
            source: io::Error::from_raw_os_error(errno),
        };
        assert_eq!(
            run(libc::EFAULT).to_string(),
            "KVM cannot run vCPU 1 any further, at instruction 0x100000: the host has no page for an address that the guest used"
        );
        let fix = run(libc::EFAULT).fix().expect("a fix");
        assert!(fix.contains("--prealloc") && fix.contains("dmesg"), "{fix}");
        assert!(run(libc::EHWPOISON).to_string().contains("hardware error"));
        let mut other = run(libc::EINVAL);
        assert!(other.to_string().ends_with("0x100000") && other.fix().is_none());
        assert_eq!(other.class(), Class::Guest);
        if let GuestError::Run { scanning, .. } = &mut other {
            *scanning = Some(0x5000);
        }
        assert!(
            other
                .to_string()
                .ends_with(", reading guest address 0x5000")
        );
    }
}
