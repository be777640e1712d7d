//! A minimal KVM virtual machine monitor for memory that prezero has prepared.
//!
//! It opens `/dev/kvm` ([`Kvm`]), creates a virtual machine ([`Vm`]), registers memory given as plain addresses
//! ([`SlotRange`]), and runs a guest: the [`probe`], which says that it is alive and, when asked, reads every byte of
//! its RAM and reports the first one that is not zero; or [`linux`], a kernel on a machine without disks.
//!
//! | module | subject |
//! |---|---|
//! | `kvm` | `/dev/kvm`: what it can do, and why it may not be there |
//! | `vm` | a virtual machine and its memory |
//! | `slots` | memory slots, checked before KVM sees them |
//! | `vcpu` | one vCPU: its descriptor, its run loop |
//! | `threads` | one thread per vCPU, and how to get it out of the guest |
//! | [`probe`] | the guest itself: code, page tables, mailboxes, and the monitor that watches it |
//! | [`linux`] | Linux guests: kernel images, ACPI tables, a serial port, and how such a guest ends |
//! | `error` | why a guest failed |
//! | `sys` | every system call that Rust cannot check |
//!
//! ```no_run
//! # use std::{path::Path, sync::atomic::AtomicBool, time::Duration};
//! # use prezero_vmm::*;
//! # use vm_memory::{GuestAddress, GuestMemoryBackend, GuestMemoryMmap};
//! let kvm = Kvm::open(Path::new("/dev/kvm"))?;
//! let request = ProbeRequest { cpus: 2, verify: true, ram: vec![(0, 1 << 30)] };
//! let probe_len = Probe::slot_len(&request, &kvm.facts())? as usize;
//! let mem = GuestMemoryMmap::<()>::from_ranges(&[
//!     (GuestAddress(0), 1 << 30),
//!     (GuestAddress(PROBE_GPA), probe_len),
//! ])?;
//! let vm = kvm.create_vm()?;
//! for (slot, gpa, len) in [(0, 0, 1 << 30), (1, PROBE_GPA, probe_len as u64)] {
//!     let hva = mem.get_host_address(GuestAddress(gpa))? as u64;
//!     // SAFETY: `mem` stays mapped until after `vm` is dropped.
//!     unsafe { vm.add_slot(&SlotRange { slot, gpa, len, hva })? };
//! }
//! let control = ProbeControl {
//!     cancel: &AtomicBool::new(false),
//!     deadline: None,
//!     silence: Duration::from_secs(10),
//!     on_progress: None,
//! };
//! let report = Probe::load(&mem, &kvm.facts(), &request)?.run(&vm, &mem, &control)?;
//! assert_eq!(report.nonzero_bytes, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The crate runs on Linux on x86-64 and is empty elsewhere. It installs no signal handler, keeps no global state and
//! leaves no thread and no descriptor behind.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![deny(unsafe_code)]

mod error;
mod kvm;
pub mod linux;
pub mod probe;
mod slots;
#[allow(unsafe_code)]
mod sys;
mod threads;
mod vcpu;
mod vm;

pub use error::GuestError;
pub use kvm::{Kvm, KvmError, KvmFacts};
pub use linux::{
    BootError, BootProtocol, GuestNode, Initramfs, Input, Kernel, Linux, LinuxControl, LinuxEnd,
    LinuxReport, LinuxRequest, LinuxRun, Until,
};
pub use prezero_memory::SlotRange;
pub use probe::{PROBE_GPA, Probe, ProbeControl, ProbeReport, ProbeRequest};
pub use slots::SlotError;
pub use vm::Vm;

/// Compiles the library example of the project's README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}
