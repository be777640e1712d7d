//! The vCPUs of a Linux guest: what each is given, and what becomes of its exits.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use kvm_bindings::CpuId;
use kvm_ioctls::{Cap, VcpuExit};
use prezero_memory::IdSet;
use vmm_sys_util::eventfd::EventFd;

use super::cpuid::{self, Extras};
use super::devices::Devices;
use super::registers;
use super::report::LinuxEnd;
use super::topology::Topology;
use crate::error::GuestError;
use crate::sys;
use crate::threads::VcpuThread;
use crate::vcpu::{Handled, Registers, Vcpu, failed};
use crate::vm::Vm;

/// How often a vCPU that waits for the others looks whether it is to stop.
const TICK: Duration = Duration::from_millis(20);

/// What all vCPUs of a machine share.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) vm: Vm,
    pub(super) topology: Topology,
    pub(super) devices: Devices,
    /// How the first vCPU starts.
    pub(super) first: Registers,
    /// Host CPUs for each vCPU; empty where it may run anywhere.
    pub(super) affinity: Vec<IdSet>,
    /// Written to when there is something to look at.
    pub(super) wake: EventFd,
    pub(super) gate: Gate,
    pub(super) placed: Vec<OnceLock<IdSet>>,
    pub(super) started: OnceLock<Instant>,
}

/// Holds vCPUs back until all of them exist: the first may start the others at once.
#[derive(Debug, Default)]
pub(super) struct Gate {
    there: Mutex<u32>,
    all: Condvar,
}

impl Gate {
    /// Waits for `count` callers, unless `stop` is set.
    fn pass(&self, count: u32, stop: &AtomicBool) {
        let mut there = self.there.lock().unwrap_or_else(PoisonError::into_inner);
        *there += 1;
        self.all.notify_all();
        while *there < count && !stop.load(Ordering::SeqCst) {
            let waited = self.all.wait_timeout(there, TICK);
            there = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Machine {
    /// Runs a vCPU until the machine ends, in its own thread.
    pub(super) fn run(&self, thread: &VcpuThread<'_>) -> Result<LinuxEnd, GuestError> {
        let end = self.run_vcpu(thread);
        // Where this fails the monitor finds out a little later.
        let _ = self.wake.write(1);
        end
    }

    fn run_vcpu(&self, thread: &VcpuThread<'_>) -> Result<LinuxEnd, GuestError> {
        self.place(thread.cpu);
        let mut vcpu = self.create(thread)?;
        self.gate.pass(self.topology.cpus(), thread.stop);
        if thread.cpu == 0 {
            self.started.get_or_init(Instant::now);
        }
        let handle = |exit: VcpuExit<'_>| self.handle(exit, thread.stop);
        match vcpu.run(thread, handle) {
            Err(GuestError::Shutdown { cpu }) => Ok(LinuxEnd::TripleFault { cpu }),
            ended => ended,
        }
    }

    /// Keeps the thread to its CPUs, before it makes anything that is to be near them. A host that refuses is told of
    /// in the report.
    fn place(&self, cpu: u32) {
        let wanted = &self.affinity[cpu as usize];
        if !wanted.is_empty() {
            let _ = sys::run_on(wanted);
        }
        if let Ok(allowed) = sys::affinity() {
            self.placed[cpu as usize].get_or_init(|| allowed);
        }
    }

    fn create(&self, thread: &VcpuThread<'_>) -> Result<Vcpu, GuestError> {
        let (vm, cpu) = (&self.vm, thread.cpu);
        let extras = Extras::new(vm.fd().check_extension(Cap::TscDeadlineTimer));
        let entries = cpuid::of_vcpu(vm.cpuid(), &self.topology, cpu, extras);
        let cpuid = CpuId::from_entries(&entries).map_err(|_| GuestError::Ioctl {
            name: "KVM_SET_CPUID2",
            cpu,
            source: std::io::Error::from_raw_os_error(libc::E2BIG),
        })?;
        let vcpu = Vcpu::create(vm, thread, self.topology.place(cpu).apic_id, &cpuid)?;
        let failed = |name| failed(name, cpu);
        if let Some(msrs) = registers::msrs() {
            let set = vcpu.fd().set_msrs(&msrs).map_err(failed("KVM_SET_MSRS"))?;
            // KVM sets them in turn, up to the first that it does not know.
            if set == 0 {
                return Err(failed("KVM_SET_MSRS")(kvm_ioctls::Error::new(libc::EINVAL)));
            }
        }
        let mut lapic = vcpu.fd().get_lapic().map_err(failed("KVM_GET_LAPIC"))?;
        registers::set_lint(&mut lapic);
        vcpu.fd()
            .set_lapic(&lapic)
            .map_err(failed("KVM_SET_LAPIC"))?;
        if cpu == 0 {
            vcpu.set_registers(&self.first)?;
        }
        Ok(vcpu)
    }

    fn handle(&self, exit: VcpuExit<'_>, stop: &AtomicBool) -> Handled<LinuxEnd> {
        match exit {
            VcpuExit::IoOut(port, data) => match self.devices.write(port, data, stop) {
                Some(end) => ControlFlow::Break(Ok(end)),
                None => ControlFlow::Continue(()),
            },
            VcpuExit::IoIn(port, data) => {
                self.devices.read(port, data);
                ControlFlow::Continue(())
            }
            VcpuExit::MmioRead(_, data) => {
                data.fill(0xff);
                ControlFlow::Continue(())
            }
            VcpuExit::MmioWrite(..) => ControlFlow::Continue(()),
            exit => ControlFlow::Break(Err(format!("{exit:?}"))),
        }
    }
}
