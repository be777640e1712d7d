//! The probe guest: it proves that a virtual machine runs, and that its RAM is zero.
//!
//! The first port write of any vCPU says that the guest is alive. If asked to verify, the vCPUs then read every byte
//! of RAM, each its own share, and count the bytes that are not zero. The guest needs a memory slot of its own at
//! [`PROBE_GPA`], where no machine has RAM; it never writes to RAM, which its page tables map read-only.
//!
//! ```text
//! PROBE_GPA ┌──────────────┐
//!           │ code         │
//!     + 2 K │ task segment │  which ports ring 3 may write to
//!     + 4 K ├──────────────┤
//!           │ mailboxes    │  64 bytes per vCPU
//!           │ pieces       │  16 bytes each: what to scan
//!           ├──────────────┤  next 4 KiB boundary
//!           │ page tables  │  the root first
//!           └──────────────┘  PROBE_GPA + Probe::slot_len()
//! ```

// Assembly counts as unsafe code, also where it is only data.
#[allow(unsafe_code)]
pub(crate) mod code;
mod mailbox;
mod monitor;
mod registers;
mod request;
mod tables;
#[cfg(test)]
mod tests;
mod vcpu;

use std::sync::Arc;
use std::time::{Duration, Instant};

use vm_memory::{Bytes, GuestAddress, GuestMemory};

pub use self::monitor::ProbeControl;
pub use self::request::ProbeRequest;

use crate::error::GuestError;
use crate::kvm::KvmFacts;
use crate::slots::PAGE;
use crate::sys;
use crate::threads::VcpuThreads;
use crate::vcpu::Registers;
use crate::vm::Vm;
use mailbox::{FIRST, MAILBOX_BYTES, NONZERO, Piece, SCANNED};
use tables::Tables;
use vcpu::{Lifetime, Pulse};

/// Where the probe's memory slot begins: between 3 GiB and 4 GiB, where devices are and RAM never is.
pub const PROBE_GPA: u64 = 0xd000_0000;

/// The probe ends below the I/O APIC's page.
const PROBE_END: u64 = 0xfec0_0000;

/// What the probe guest said. Times are the host's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeReport {
    /// When the first port write of any vCPU arrived.
    pub alive_at: Instant,
    /// Bytes of RAM that were read; zero without `verify`.
    pub scanned_bytes: u64,
    /// From `alive_at` to the last vCPU's last port write; zero without `verify`.
    pub scan_time: Duration,
    /// How many of the bytes read were not zero.
    pub nonzero_bytes: u64,
    /// Guest-physical address of the first of them, lowest within the share of each vCPU and over all vCPUs.
    pub first_nonzero_gpa: Option<u64>,
}

/// Where everything is in the probe's slot, and what is in it.
struct Layout {
    shares: Vec<Vec<Piece>>,
    control: Vec<u8>,
    tables_gpa: u64,
    tables: Tables,
    len: u64,
}

const CODE_GPA: u64 = PROBE_GPA;
const TSS_GPA: u64 = PROBE_GPA + PAGE / 2;
const MAILBOXES_GPA: u64 = PROBE_GPA + PAGE;

impl Layout {
    fn new(request: &ProbeRequest, facts: &KvmFacts) -> Result<Layout, GuestError> {
        request.check(facts)?;
        // A guest that is only to say that it is alive has nothing to scan, and needs no page tables for RAM.
        let ram = if request.verify {
            &request.ram[..]
        } else {
            &[]
        };
        let shares = mailbox::split(ram, request.cpus);
        let control = mailbox::encode(MAILBOXES_GPA, &shares);
        let tables_gpa = (MAILBOXES_GPA + control.len() as u64).next_multiple_of(PAGE);
        let tables = Tables::build(tables_gpa, ram, facts.gib_pages);
        let len = tables_gpa + PAGE * tables.as_slice().len() as u64 - PROBE_GPA;
        let room = PROBE_END - PROBE_GPA;
        if len > room {
            return Err(GuestError::ProbeTooLarge { bytes: len, room });
        }
        Ok(Layout {
            shares,
            control,
            tables_gpa,
            tables,
            len,
        })
    }
}

/// A probe guest in memory, ready to run once. A machine can run one probe in its life: KVM numbers vCPUs only once.
#[derive(Debug)]
pub struct Probe {
    /// What each vCPU is to scan, and how many bytes that is.
    shares: Vec<Vec<Piece>>,
    assigned: Vec<u64>,
    cr3: u64,
    len: u64,
}

impl Probe {
    /// Bytes, a multiple of 4 KiB, that a memory slot at [`PROBE_GPA`] must have for this request.
    ///
    /// # Errors
    ///
    /// The request cannot be met on this host: too many vCPUs, RAM that the guest cannot address, or that is
    /// unaligned or overlaps.
    pub fn slot_len(request: &ProbeRequest, facts: &KvmFacts) -> Result<u64, GuestError> {
        Ok(Layout::new(request, facts)?.len)
    }

    /// Writes code, mailboxes and page tables to [`PROBE_GPA`] in `mem`.
    ///
    /// # Errors
    ///
    /// As for [`Probe::slot_len`], or `mem` has less than that many bytes there.
    pub fn load<M: GuestMemory + ?Sized>(
        mem: &M,
        facts: &KvmFacts,
        request: &ProbeRequest,
    ) -> Result<Probe, GuestError> {
        Probe::load_code(mem, facts, request, sys::probe_code())
    }

    fn load_code<M: GuestMemory + ?Sized>(
        mem: &M,
        facts: &KvmFacts,
        request: &ProbeRequest,
        code: &[u8],
    ) -> Result<Probe, GuestError> {
        let layout = Layout::new(request, facts)?;
        let write = |gpa: u64, bytes: &[u8]| {
            mem.write_slice(bytes, GuestAddress(gpa))
                .map_err(|source| GuestError::Memory { gpa, source })
        };
        write(CODE_GPA, code)?;
        write(TSS_GPA, &registers::tss())?;
        write(MAILBOXES_GPA, &layout.control)?;
        for (gpa, table) in (layout.tables_gpa..)
            .step_by(4096)
            .zip(layout.tables.as_slice())
        {
            let bytes: Vec<u8> = table.iter().flat_map(|entry| entry.to_le_bytes()).collect();
            write(gpa, &bytes)?;
        }
        let assigned = layout
            .shares
            .iter()
            .map(|share| share.iter().map(|piece| piece.len).sum())
            .collect();
        Ok(Probe {
            shares: layout.shares,
            assigned,
            cr3: layout.tables_gpa,
            len: layout.len,
        })
    }

    /// Runs the guest to its end, with one thread per vCPU. `mem` is the memory that the probe was loaded into, and
    /// `vm` has it in its slots, with all RAM to be scanned. When this returns, however it does, threads and
    /// descriptors are gone.
    ///
    /// # Errors
    ///
    /// A slot is missing; a vCPU cannot be created, fails, falls silent or has not read everything; `control` says to
    /// stop.
    pub fn run<M: GuestMemory + ?Sized>(
        self,
        vm: &Vm,
        mem: &M,
        control: &ProbeControl<'_>,
    ) -> Result<ProbeReport, GuestError> {
        for Piece { gpa, len } in self.shares.concat().into_iter().chain([Piece {
            gpa: PROBE_GPA,
            len: self.len,
        }]) {
            if !vm.covers(gpa, len) {
                return Err(GuestError::NotRegistered { gpa, len });
            }
        }
        let starts = self.mailboxes().map(|(_, mailbox, _)| Registers {
            regs: registers::regs(CODE_GPA, mailbox),
            set_sregs: registers::set_sregs,
            cr3: self.cr3,
        });
        let starts: Vec<Registers> = starts.collect();
        let pulses: Arc<[Pulse]> = starts.iter().map(|_| Pulse::default()).collect();
        let threads = {
            let (vm, pulses) = (vm.clone(), Arc::clone(&pulses));
            let cpus = u32::try_from(starts.len()).unwrap_or(u32::MAX);
            VcpuThreads::start(cpus, move |thread| {
                let cpu = thread.cpu as usize;
                vcpu::run(&vm, thread, &starts[cpu], &pulses[cpu])
            })?
        };
        let lifetime = monitor::watch(&threads, &pulses, self.assigned.iter().sum(), control);
        // Joins the threads, so that nothing writes to the mailboxes any more.
        drop(threads);
        self.read_report(mem, lifetime?)
    }

    /// Number, mailbox and bytes to scan of each vCPU.
    fn mailboxes(&self) -> impl Iterator<Item = (u32, u64, u64)> {
        let mailboxes = (0..).map(|cpu: u32| MAILBOXES_GPA + MAILBOX_BYTES * u64::from(cpu));
        (0..)
            .zip(mailboxes)
            .zip(&self.assigned)
            .map(|((cpu, mailbox), &assigned)| (cpu, mailbox, assigned))
    }

    fn read_report<M: GuestMemory + ?Sized>(
        &self,
        mem: &M,
        lifetime: Lifetime,
    ) -> Result<ProbeReport, GuestError> {
        let read = |gpa: u64| {
            mem.read_obj::<u64>(GuestAddress(gpa))
                .map_err(|source| GuestError::Memory { gpa, source })
        };
        let mut report = ProbeReport {
            alive_at: lifetime.alive,
            scanned_bytes: 0,
            scan_time: lifetime.done - lifetime.alive,
            nonzero_bytes: 0,
            first_nonzero_gpa: None,
        };
        for (cpu, mailbox, expected) in self.mailboxes() {
            let scanned = read(mailbox + SCANNED)?;
            if scanned != expected {
                return Err(GuestError::Incomplete {
                    cpu,
                    scanned,
                    expected,
                });
            }
            report.scanned_bytes += scanned;
            report.nonzero_bytes += read(mailbox + NONZERO)?;
            let first = Some(read(mailbox + FIRST)?).filter(|&gpa| gpa != u64::MAX);
            report.first_nonzero_gpa = report.first_nonzero_gpa.into_iter().chain(first).min();
        }
        if report.scanned_bytes == 0 {
            report.scan_time = Duration::ZERO;
        }
        Ok(report)
    }
}
