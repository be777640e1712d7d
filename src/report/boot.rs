//! A Linux guest in the report of a run.

use serde::Serialize;

/// What a Linux guest was made of, and when it got how far. Times count from the start of `main`; null is what did not
/// happen.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Boot {
    pub(crate) kernel: String,
    /// "bzImage" or "vmlinux".
    pub(crate) format: &'static str,
    /// "linux64" or "pvh".
    pub(crate) protocol: &'static str,
    /// Of kernel and initramfs.
    pub(crate) file_bytes: u64,
    pub(crate) cmdline: String,
    /// The nodes that the guest sees, one for each zone.
    pub(crate) nodes: Vec<BootNode>,
    pub(crate) vcpus: Vec<BootVcpu>,
    /// The first byte on the serial port.
    pub(crate) first_serial_ns: Option<u64>,
    /// The kernel's line that it runs its first program.
    pub(crate) user_space_ns: Option<u64>,
    /// The text of `--until`.
    pub(crate) until_ns: Option<u64>,
    pub(crate) ended_ns: Option<u64>,
}

/// A node that the guest sees.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BootNode {
    pub(crate) node: u32,
    pub(crate) bytes: u64,
    /// Those that its memory is planned on.
    pub(crate) host_nodes: Vec<u32>,
}

/// A virtual CPU and its thread.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BootVcpu {
    pub(crate) vcpu: u32,
    /// The guest's node.
    pub(crate) node: u32,
    /// The host CPUs that its thread was found to be allowed on.
    pub(crate) host_cpus: Vec<u32>,
    /// Whether that is one CPU, which was asked for.
    pub(crate) pinned: bool,
}
