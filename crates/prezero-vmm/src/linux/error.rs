//! Why a Linux guest cannot be started with what it was given.

use std::io;
use std::path::PathBuf;

use prezero_memory::{ByteSize, Class};
use thiserror::Error;
use vm_memory::GuestMemoryError;

use super::console::Until;

/// Why a Linux guest cannot be started with this kernel, initramfs or command line. Nearly all of it is found before
/// memory is touched.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BootError {
    /// A file is absent, forbidden or cannot be read.
    #[error("The {what} {} cannot be read", path.display())]
    Unreadable {
        /// "kernel" or "initramfs".
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is a directory, a pipe or a device.
    #[error("The {what} {} is not a regular file", path.display())]
    NotAFile {
        /// "kernel" or "initramfs".
        what: &'static str,
        /// Its path.
        path: PathBuf,
    },
    /// It has no bytes.
    #[error("The initramfs {} is empty", path.display())]
    EmptyInitramfs {
        /// Its path.
        path: PathBuf,
    },
    /// It is neither a bzImage nor an ELF kernel for x86-64.
    #[error("{} is not a kernel for x86-64: {why}", path.display())]
    NotAKernel {
        /// Its path.
        path: PathBuf,
        /// What is missing or wrong.
        why: &'static str,
    },
    /// The file ends before what its header announces.
    #[error("The kernel {} is truncated: it has {len} bytes, its header says {needed}", path.display())]
    Truncated {
        /// Its path.
        path: PathBuf,
        /// Its length in bytes.
        len: u64,
        /// What it should have at least, in bytes.
        needed: u64,
    },
    /// The kernel does not fit into the first range of RAM.
    #[error(
        "The kernel needs memory up to guest address {end:#x}, the guest's first memory ends at {ram_end:#x}"
    )]
    KernelTooLarge {
        /// The first address after the kernel.
        end: u64,
        /// The first address after the RAM that begins at 0.
        ram_end: u64,
    },
    /// The kernel wants to be above what the first page tables map.
    #[error("The kernel wants guest addresses up to {end:#x}, which ends above {max:#x}")]
    KernelTooHigh {
        /// The first address after the kernel.
        end: u64,
        /// The first address that it may not have.
        max: u64,
    },
    /// The initramfs does not fit into RAM beside the kernel.
    #[error(
        "The initramfs of {} does not fit into the guest's memory beside the kernel: there is room for {}",
        ByteSize(*.len), ByteSize(*.room)
    )]
    InitramfsTooLarge {
        /// Its length in bytes.
        len: u64,
        /// What there is room for, in bytes.
        room: u64,
        /// Where RAM would have to end for it, a guest address.
        end: u64,
        /// The first address after the RAM that begins at 0.
        ram_end: u64,
    },
    /// The initramfs does not fit between the kernel and the highest address where that kernel looks for one.
    #[error(
        "The initramfs of {} does not fit below guest address {max:#x}, where this kernel wants it, in any memory: beside the kernel there is room for {}",
        ByteSize(*.len), ByteSize(*.room)
    )]
    InitramfsTooHigh {
        /// Its length in bytes.
        len: u64,
        /// What there would be room for, in bytes.
        room: u64,
        /// The first guest address that it may not have.
        max: u64,
    },
    /// The command line is longer than the kernel takes.
    #[error("The kernel's command line has {len} bytes, at most {max} are possible")]
    CmdlineTooLong {
        /// Its length in bytes.
        len: u64,
        /// The kernel's limit.
        max: u64,
    },
    /// The command line has a byte that is not printable ASCII.
    #[error(
        "The kernel's command line has a byte {byte:#04x} at {at}, only printable ASCII is possible"
    )]
    CmdlineByte {
        /// The byte.
        byte: u8,
        /// How many bytes are before it.
        at: usize,
    },
    /// No vCPU was asked for, or more than a machine can have.
    #[error(
        "{cpus} vCPUs were asked for, a Linux guest of {nodes} NUMA nodes can have 1 to {max}: {}",
        why_so_few(*.by_kvm)
    )]
    VcpuCount {
        /// What was asked for.
        cpus: u32,
        /// The guest's NUMA nodes.
        nodes: usize,
        /// The limit.
        max: u32,
        /// Whether it is KVM's (`KVM_CAP_MAX_VCPUS`), not that of APIC ids of 8 bits.
        by_kvm: bool,
    },
    /// The tables that say which CPUs and memory are on which node are larger than the area they are in.
    #[error(
        "{nodes} NUMA nodes need {} of ACPI tables, there is room for {}, which is {max} nodes",
        ByteSize(*.bytes), ByteSize(*.room)
    )]
    TooManyNodes {
        /// The guest's NUMA nodes.
        nodes: usize,
        /// What their tables take, in bytes.
        bytes: u64,
        /// What there is room for, in bytes.
        room: u64,
        /// Nodes whose tables fit.
        max: usize,
    },
    /// The text that is to end the machine would never be found.
    #[error("The text to wait for on the guest's console {why}")]
    Until {
        /// What is wrong with it.
        why: String,
    },
    /// The memory map has more entries than a kernel takes.
    #[error("The guest's memory has {ranges} ranges, at most {max} are possible")]
    TooManyRanges {
        /// Ranges of RAM.
        ranges: usize,
        /// The limit.
        max: usize,
    },
    /// The file changed while it was loaded, or cannot be read any more.
    #[error("The {what} {} cannot be loaded", path.display())]
    Load {
        /// "kernel" or "initramfs".
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Guest memory could not be written.
    #[error("Guest address {gpa:#x} cannot be written")]
    Memory {
        /// Guest address.
        gpa: u64,
        /// Why.
        #[source]
        source: GuestMemoryError,
    },
}

fn why_so_few(by_kvm: bool) -> &'static str {
    match by_kvm {
        true => "KVM offers no more here",
        false => "APIC ids have 8 bits, and each node's begin at a power of two",
    }
}

impl BootError {
    /// Where the guest's memory would have to end, a guest address, and how many bytes more that is. None where more
    /// memory does not help.
    #[must_use]
    pub fn wants_memory(&self) -> Option<(u64, u64)> {
        match self {
            BootError::KernelTooLarge { end, ram_end }
            | BootError::InitramfsTooLarge { end, ram_end, .. } => Some((*end, end - ram_end)),
            _ => None,
        }
    }

    /// What kind of error it is.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            BootError::KernelTooLarge { .. } | BootError::InitramfsTooLarge { .. } => {
                Class::Shortage
            }
            BootError::Load { .. } | BootError::Memory { .. } => Class::Internal,
            _ => Class::Usage,
        }
    }

    /// Something the user can type, where there is something.
    #[must_use]
    pub fn fix(&self) -> Option<String> {
        match self {
            BootError::Unreadable { what, path, .. } | BootError::NotAFile { what, path } => {
                Some(format!("`ls -l {}`; `--{what} FILE`", path.display()))
            }
            BootError::EmptyInitramfs { .. } => {
                Some("`--initramfs FILE` with a cpio archive, or leave it out".into())
            }
            BootError::NotAKernel { path, .. } => Some(format!(
                "`file {}`; `--kernel FILE` takes a bzImage (/boot/vmlinuz-*) or an uncompressed vmlinux",
                path.display()
            )),
            BootError::Truncated { path, .. } => Some(format!(
                "copy it again: `ls -l {0}`, `sha256sum {0}`",
                path.display()
            )),
            BootError::KernelTooLarge { end, .. } | BootError::InitramfsTooLarge { end, .. } => {
                Some(format!(
                    "`--memory {}M` or more",
                    end.next_multiple_of(64 << 20) >> 20
                ))
            }
            BootError::InitramfsTooHigh { room, .. } => Some(format!(
                "`--initramfs FILE` of {} MiB at most: compress it, or leave out what the guest does not need",
                room >> 20
            )),
            BootError::TooManyNodes { max, .. } => {
                Some(format!("{max} times `--memory-zone` at most"))
            }
            BootError::Until { .. } => Some(format!(
                "`--until STRING` with 1 to {} bytes of one line",
                Until::MAX
            )),
            BootError::VcpuCount { max, .. } => Some(format!("`--cpus N` with N from 1 to {max}")),
            BootError::CmdlineTooLong { max, .. } => {
                Some(format!("`--cmdline STR` with at most {max} bytes"))
            }
            _ => None,
        }
    }
}
