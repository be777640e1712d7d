//! One vCPU: its descriptor, its first state, its run loop.

use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use kvm_bindings::{CpuId, kvm_regs, kvm_sregs};
use kvm_ioctls::{VcpuExit, VcpuFd};

use crate::error::GuestError;
use crate::sys;
use crate::threads::VcpuThread;
use crate::vm::Vm;

/// The registers a vCPU starts with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registers {
    pub(crate) regs: kvm_regs,
    /// Changes KVM's own reset state, which has fields that nobody else should choose.
    pub(crate) set_sregs: fn(&mut kvm_sregs, cr3: u64),
    pub(crate) cr3: u64,
}

/// What becomes of an exit: the guest goes on, or the loop ends with a value, or with what was wrong about the exit.
pub(crate) type Handled<T> = ControlFlow<Result<T, String>>;

/// A vCPU that belongs to the thread that created it.
#[derive(Debug)]
pub(crate) struct Vcpu {
    cpu: u32,
    fd: VcpuFd,
}

/// Puts an ioctl's name and the vCPU's number to KVM's answer.
pub(crate) fn failed(name: &'static str, cpu: u32) -> impl Fn(kvm_ioctls::Error) -> GuestError {
    move |e| GuestError::Ioctl {
        name,
        cpu,
        source: e.into(),
    }
}

impl Vcpu {
    /// Creates the vCPU of a thread, which KVM knows by its APIC id `id`.
    pub(crate) fn create(
        vm: &Vm,
        thread: &VcpuThread<'_>,
        id: u32,
        cpuid: &CpuId,
    ) -> Result<Vcpu, GuestError> {
        let cpu = thread.cpu;
        let fd = vm
            .fd()
            .create_vcpu(id.into())
            .map_err(|e| GuestError::CreateVcpu {
                cpu,
                source: e.into(),
            })?;
        // Before the registers: KVM checks them against what this says of long mode and of the address width.
        fd.set_cpuid2(cpuid)
            .map_err(failed("KVM_SET_CPUID2", cpu))?;
        sys::set_run_mask(&fd, thread.run_mask).map_err(|source| GuestError::Ioctl {
            name: "KVM_SET_SIGNAL_MASK",
            cpu,
            source,
        })?;
        Ok(Vcpu { cpu, fd })
    }

    /// Gives it its first state.
    pub(crate) fn set_registers(&self, registers: &Registers) -> Result<(), GuestError> {
        let failed = |name| failed(name, self.cpu);
        let mut sregs = self.fd.get_sregs().map_err(failed("KVM_GET_SREGS"))?;
        (registers.set_sregs)(&mut sregs, registers.cr3);
        self.fd.set_sregs(&sregs).map_err(failed("KVM_SET_SREGS"))?;
        self.fd
            .set_regs(&registers.regs)
            .map_err(failed("KVM_SET_REGS"))
    }

    pub(crate) fn fd(&self) -> &VcpuFd {
        &self.fd
    }

    /// Runs the guest, hands every exit that is the guest's doing to `handle`, and returns when that breaks the loop.
    ///
    /// # Errors
    ///
    /// [`GuestError::Cancelled`] once the thread is to stop and a kick has ended KVM_RUN; a triple fault; whatever KVM
    /// cannot run on from; an exit that `handle` complains of.
    pub(crate) fn run<T>(
        &mut self,
        thread: &VcpuThread<'_>,
        mut handle: impl FnMut(VcpuExit<'_>) -> Handled<T>,
    ) -> Result<T, GuestError> {
        let cpu = self.cpu;
        loop {
            if thread.stop.load(Ordering::SeqCst) {
                return Err(GuestError::Cancelled);
            }
            let unexpected = match self.fd.run() {
                Ok(VcpuExit::Intr) => continue,
                Ok(VcpuExit::Shutdown) => return Err(GuestError::Shutdown { cpu }),
                Ok(VcpuExit::FailEntry(reason, _)) => {
                    return Err(GuestError::EntryFailure { cpu, reason });
                }
                Ok(VcpuExit::InternalError) => {
                    let suberror = sys::internal_error(&mut self.fd);
                    return Err(GuestError::InternalError {
                        cpu,
                        suberror,
                        rip: self.position(),
                    });
                }
                Ok(exit) => match handle(exit) {
                    ControlFlow::Continue(()) => continue,
                    ControlFlow::Break(Ok(value)) => return Ok(value),
                    ControlFlow::Break(Err(complaint)) => complaint,
                },
                // A kick whose `stop` is checked above, or a signal that is the embedding program's business.
                Err(e) if e.errno() == libc::EINTR => {
                    // A kick that somebody else sent would stay pending and end every KVM_RUN from here on.
                    sys::take_kick();
                    continue;
                }
                // Also of a vCPU that was waiting for its start-up signal.
                Err(e) if e.errno() == libc::EAGAIN => continue,
                Err(e) => {
                    return Err(GuestError::Run {
                        cpu,
                        rip: self.position(),
                        scanning: None,
                        source: io::Error::from(e),
                    });
                }
            };
            return Err(GuestError::UnexpectedExit {
                cpu,
                exit: unexpected,
                rip: self.position(),
            });
        }
    }

    /// The guest's RIP. Zero where KVM does not tell, since it is only for a message.
    fn position(&self) -> u64 {
        self.fd.get_regs().map_or(0, |regs| regs.rip)
    }
}
