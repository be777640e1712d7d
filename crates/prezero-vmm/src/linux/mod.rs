//! A Linux guest: a kernel, perhaps an initramfs, some vCPUs, a serial port, and ACPI tables that say what there is.
//!
//! ```text
//! Kernel::open, Initramfs::open   the files are what they should be, and whole
//!       │
//! Linux::new                      everything fits into the guest's memory: nothing has been touched so far
//!       │
//! Linux::load                     kernel, initramfs, tables and parameters are in memory
//!       │
//! Linux::run                      one thread per vCPU until the guest powers off, resets, panics, or is stopped
//! ```
//!
//! The platform is as small as Linux likes it: KVM's interrupt controllers, timer and clock, a 16550 at COM1, QEMU's
//! panic device, and registers to power off and reset. There is no PCI bus and no disk.
//!
//! ```no_run
//! # use std::{io::Write, path::Path, sync::atomic::AtomicBool};
//! # use prezero_vmm::*;
//! # use vm_memory::GuestMemoryMmap;
//! # fn boot(kvm: &Kvm, vm: &Vm, memory: &GuestMemoryMmap) -> Result<(), Box<dyn std::error::Error>> {
//! // `vm` has `memory` in its slots: 1 GiB at address 0.
//! let request = LinuxRequest {
//!     kernel: Kernel::open(Path::new("vmlinux"))?,
//!     initramfs: Some(Initramfs::open(Path::new("initramfs"))?),
//!     cmdline: "console=ttyS0 panic=-1 reboot=k,panic_warm".to_owned(),
//!     cpus: 2,
//!     nodes: vec![GuestNode { ram: vec![(0, 1 << 30)], distances: vec![10] }],
//! };
//! let mut linux = Linux::new(request, &kvm.facts())?;
//! vm.create_irqchip()?;
//! linux.load(memory)?;
//! let control = LinuxControl {
//!     cancel: &AtomicBool::new(false),
//!     deadline: None,
//!     on_output: &|bytes| drop(std::io::stdout().write_all(bytes)),
//!     input: None,
//! };
//! let report = linux.run(vm, memory, &LinuxRun::default(), &control)?;
//! assert_eq!(report.end?, LinuxEnd::PowerOff);
//! # Ok(())
//! # }
//! ```

mod acpi;
mod boot_params;
mod console;
mod cpuid;
mod devices;
mod elf;
mod error;
mod initramfs;
mod input;
mod kernel;
mod layout;
mod memory_map;
mod monitor;
mod registers;
mod report;
#[cfg(test)]
mod tests;
mod topology;
mod vcpu;

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use prezero_memory::IdSet;
use vm_memory::{ByteValued, Bytes, GuestAddress, GuestMemory, GuestMemoryBackend};
use vmm_sys_util::eventfd::EventFd;

pub use self::console::Until;
pub use self::error::BootError;
pub use self::initramfs::Initramfs;
pub use self::input::Input;
pub use self::kernel::{BootProtocol, Kernel};
pub use self::monitor::LinuxControl;
pub use self::report::{LinuxEnd, LinuxReport};

use self::acpi::Tables;
use self::boot_params::Told;
use self::console::Console;
use self::devices::{Devices, Interrupt, Wake};
use self::layout::{
    CMDLINE, GDT, MAPPED_END, MEMORY_MAP, MODULE_LIST, PAGE_TABLES, RESET_FLAG, RESET_FLAG_WARM,
    SERIAL_IRQ, START_INFO, ZERO_PAGE,
};
use self::memory_map::{MapEntry, joined, memory_map};
use self::topology::Topology;
use self::vcpu::{Gate, Machine};
use crate::error::GuestError;
use crate::kvm::KvmFacts;
use crate::threads::VcpuThreads;
use crate::vcpu::Registers;
use crate::vm::Vm;

/// A NUMA node as the guest is to see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestNode {
    /// Its RAM: guest-physical address and length in bytes of each range.
    pub ram: Vec<(u64, u64)>,
    /// How far every node is, as ACPI counts: 10 is here. Where there is none, it is 20.
    pub distances: Vec<u8>,
}

/// What a Linux guest is to be.
#[derive(Debug)]
pub struct LinuxRequest {
    /// The kernel.
    pub kernel: Kernel,
    /// The first file system, if there is one.
    pub initramfs: Option<Initramfs>,
    /// The kernel's command line, printable ASCII.
    pub cmdline: String,
    /// How many vCPUs.
    pub cpus: u32,
    /// The guest's memory by nodes. RAM begins at address 0.
    pub nodes: Vec<GuestNode>,
}

/// How a Linux guest is run.
#[derive(Clone, Debug, Default)]
pub struct LinuxRun {
    /// Host CPUs for the thread of each vCPU; those without run where the caller may.
    pub affinity: Vec<IdSet>,
    /// Text on the serial port that ends the machine.
    pub until: Option<Until>,
}

/// A Linux guest that fits into its memory, and later is in it.
#[derive(Debug)]
pub struct Linux {
    request: LinuxRequest,
    topology: Topology,
    map: Vec<MapEntry>,
    tables: Tables,
    /// Where the initramfs is to be.
    initramfs_at: Option<u64>,
    first: Option<Registers>,
}

/// Initramfs images begin at a multiple of this.
const PAGE: u64 = crate::slots::PAGE;

impl Linux {
    /// Checks that everything fits. No memory is touched.
    ///
    /// # Errors
    ///
    /// The kernel, its command line, the initramfs or the vCPUs cannot be had in this memory.
    pub fn new(request: LinuxRequest, facts: &KvmFacts) -> Result<Linux, BootError> {
        let topology = Topology::new(request.cpus, request.nodes.len(), facts.max_vcpus)?;
        check_cmdline(&request.cmdline, request.kernel.cmdline_max())?;
        let ram: Vec<_> = request
            .nodes
            .iter()
            .flat_map(|node| &node.ram)
            .copied()
            .collect();
        let first = joined(&ram).first().copied();
        let ram_end = first
            .filter(|range| range.0 == 0)
            .map_or(0, |range| range.1);
        let end = request.kernel.end();
        if end > MAPPED_END {
            return Err(BootError::KernelTooHigh {
                end,
                max: MAPPED_END,
            });
        }
        if end > ram_end {
            return Err(BootError::KernelTooLarge { end, ram_end });
        }
        let max = request.kernel.initramfs_end();
        let initramfs_at = match &request.initramfs {
            Some(initramfs) => Some(initramfs.place(end, ram_end, max)?),
            None => None,
        };
        Ok(Linux {
            map: memory_map(&ram)?,
            tables: Tables::build(&topology, &request.nodes)?,
            request,
            topology,
            initramfs_at,
            first: None,
        })
    }

    /// What it was made of, for another try with other memory.
    #[must_use]
    pub fn into_request(self) -> LinuxRequest {
        self.request
    }

    /// How many vCPUs it has.
    #[must_use]
    pub fn cpus(&self) -> u32 {
        self.topology.cpus()
    }

    /// The kernel.
    #[must_use]
    pub fn kernel(&self) -> &Kernel {
        &self.request.kernel
    }

    /// The guest node of vCPU `cpu`.
    #[must_use]
    pub fn node_of(&self, cpu: u32) -> u32 {
        self.topology.place(cpu).node
    }

    /// Bytes that are loaded from files.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        let initramfs = self.request.initramfs.as_ref();
        self.request.kernel.len() + initramfs.map_or(0, Initramfs::len)
    }

    /// The guest-physical addresses that are loaded first, one for each 2 MiB. Who clears the RAM may leave them in the
    /// cache.
    #[must_use]
    pub fn loads_first(&self) -> Vec<u64> {
        // More is not left in a cache.
        const PAGES_MAX: usize = 16;
        let (first, end) = self.request.kernel.loaded();
        let kernel = (first..end).step_by(2 << 20);
        std::iter::once(ZERO_PAGE)
            .chain(kernel)
            .take(PAGES_MAX)
            .collect()
    }

    /// Reads kernel and initramfs into `mem` and writes what the kernel is told.
    ///
    /// # Errors
    ///
    /// A file has changed since it was opened, or `mem` is not what was said.
    pub fn load<M: GuestMemoryBackend>(&mut self, mem: &M) -> Result<(), BootError> {
        let loaded = self.request.kernel.load(mem)?;
        let mut initramfs = None;
        if let (Some(file), Some(at)) = (&mut self.request.initramfs, self.initramfs_at) {
            file.load(mem, at)?;
            initramfs = Some((at, file.len()));
        }
        let protocol = self.request.kernel.protocol();
        let told = Told {
            map: &self.map,
            initramfs,
            cmdline_len: self.request.cmdline.len() as u64,
        };
        let mut cmdline = self.request.cmdline.clone().into_bytes();
        cmdline.push(0);
        write(mem, CMDLINE, &cmdline)?;
        write(mem, GDT, &registers::gdt(protocol))?;
        match protocol {
            BootProtocol::Linux64 => {
                write(mem, PAGE_TABLES, &registers::page_tables())?;
                let params = boot_params::zero_page(&told, loaded.header);
                write(mem, ZERO_PAGE, params.as_slice())?;
            }
            BootProtocol::Pvh => {
                let (info, module, map) = boot_params::start_info(&told);
                write(mem, START_INFO, info.as_slice())?;
                if let Some(module) = module {
                    write(mem, MODULE_LIST, module.as_slice())?;
                }
                let map: Vec<u8> = map
                    .iter()
                    .flat_map(|entry| entry.as_slice().to_vec())
                    .collect();
                write(mem, MEMORY_MAP, &map)?;
            }
        }
        for (gpa, table) in self.tables.iter() {
            write(mem, gpa, table)?;
        }
        self.first = Some(registers::first(protocol, loaded.entry));
        Ok(())
    }

    /// Runs the guest to its end, with one thread per vCPU. `vm` has `mem` in its slots and interrupt controllers
    /// ([`Vm::create_irqchip`]). When this returns, however it does, threads and descriptors are gone.
    ///
    /// # Errors
    ///
    /// A slot is missing, nothing has been loaded, or a thread or device cannot be made: the guest has not run. What goes
    /// wrong from there on, also that `control` says to stop, is the report's [`end`](LinuxReport::end).
    pub fn run<M: GuestMemory + ?Sized>(
        self,
        vm: &Vm,
        mem: &M,
        run: &LinuxRun,
        control: &LinuxControl<'_>,
    ) -> Result<LinuxReport, GuestError> {
        for &(gpa, len) in self.request.nodes.iter().flat_map(|node| &node.ram) {
            if !vm.covers(gpa, len) {
                return Err(GuestError::NotRegistered { gpa, len });
            }
        }
        let device = |source: io::Error| GuestError::Device { source };
        let event = || EventFd::new(libc::EFD_NONBLOCK | libc::EFD_CLOEXEC).map_err(device);
        let interrupt = event()?;
        vm.fd()
            .register_irqfd(&interrupt, SERIAL_IRQ)
            .map_err(|e| device(e.into()))?;
        let wake = event()?;
        let more = wake.try_clone().map_err(device)?;
        let cpus = self.topology.cpus();
        let affinity = (0..cpus as usize).map(|cpu| run.affinity.get(cpu).cloned());
        let machine = Arc::new(Machine {
            vm: vm.clone(),
            topology: self.topology,
            devices: Devices::new(
                Interrupt(interrupt),
                Wake(more),
                Console::new(run.until.clone()),
            ),
            first: self.first.ok_or(GuestError::NotLoaded)?,
            affinity: affinity.map(Option::unwrap_or_default).collect(),
            wake,
            gate: Gate::default(),
            placed: (0..cpus).map(|_| OnceLock::new()).collect(),
            started: OnceLock::new(),
        });
        let threads = {
            let machine = Arc::clone(&machine);
            VcpuThreads::start(cpus, move |thread| machine.run(thread))?
        };
        let end = monitor::watch(&threads, &machine, control);
        let ended = Instant::now();
        // Joins the threads, so that nothing writes any more.
        drop(threads);
        monitor::show(&machine, control);
        let seen = machine.devices.console.seen();
        let places = self.topology.places().zip(&machine.placed);
        Ok(LinuxReport {
            end: end.map(|end| end.in_the_light_of(seen.panicked, wants_warm_reset(mem))),
            started: machine.started.get().copied(),
            first_byte: seen.first_byte,
            user_space: seen.user_space,
            until: seen.until,
            ended,
            vcpus: places
                .map(|(place, cpus)| (place.node, cpus.get().cloned().unwrap_or_default()))
                .collect(),
        })
    }
}

fn write<M: GuestMemoryBackend>(mem: &M, gpa: u64, bytes: &[u8]) -> Result<(), BootError> {
    mem.write_slice(bytes, GuestAddress(gpa))
        .map_err(|source| BootError::Memory { gpa, source })
}

/// Whether the kernel left the word that asks a BIOS for a warm reset (`native_machine_emergency_restart`).
fn wants_warm_reset<M: GuestMemory + ?Sized>(mem: &M) -> bool {
    let flag = mem.read_obj::<u16>(GuestAddress(RESET_FLAG));
    flag.is_ok_and(|flag| flag == RESET_FLAG_WARM)
}

fn check_cmdline(cmdline: &str, max: u64) -> Result<(), BootError> {
    let bytes = cmdline.as_bytes();
    let len = bytes.len() as u64;
    if len > max {
        return Err(BootError::CmdlineTooLong { len, max });
    }
    match bytes.iter().position(|byte| !matches!(byte, b' '..=b'~')) {
        Some(at) => Err(BootError::CmdlineByte {
            byte: bytes[at],
            at,
        }),
        None => Ok(()),
    }
}
