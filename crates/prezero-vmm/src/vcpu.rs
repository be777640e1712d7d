//! One vCPU: its descriptor, its first state, its run loop.

use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use kvm_bindings::{kvm_regs, kvm_sregs};
use kvm_ioctls::{VcpuExit, VcpuFd};

use crate::error::GuestError;
use crate::sys;
use crate::vm::Vm;

/// What a vCPU starts with.
#[derive(Clone, Debug)]
pub(crate) struct VcpuStart {
    pub(crate) regs: kvm_regs,
    /// Changes KVM's own reset state, which has fields that nobody else should choose.
    pub(crate) set_sregs: fn(&mut kvm_sregs, cr3: u64),
    pub(crate) cr3: u64,
}

/// A vCPU that belongs to the thread that created it.
#[derive(Debug)]
pub(crate) struct Vcpu {
    cpu: u32,
    fd: VcpuFd,
}

impl Vcpu {
    /// Creates vCPU number `cpu` of `vm` and gives it its first state. `run_mask` is the signal mask of KVM_RUN.
    pub(crate) fn create(
        vm: &Vm,
        cpu: u32,
        start: &VcpuStart,
        run_mask: u64,
    ) -> Result<Vcpu, GuestError> {
        let fd = vm
            .fd()
            .create_vcpu(cpu.into())
            .map_err(|e| GuestError::CreateVcpu {
                cpu,
                source: e.into(),
            })?;
        let failed = |name| {
            move |e: kvm_ioctls::Error| GuestError::Ioctl {
                name,
                cpu,
                source: e.into(),
            }
        };
        // Before the registers: KVM checks them against what this says of long mode and of the address width.
        fd.set_cpuid2(vm.cpuid())
            .map_err(failed("KVM_SET_CPUID2"))?;
        let mut sregs = fd.get_sregs().map_err(failed("KVM_GET_SREGS"))?;
        (start.set_sregs)(&mut sregs, start.cr3);
        fd.set_sregs(&sregs).map_err(failed("KVM_SET_SREGS"))?;
        fd.set_regs(&start.regs).map_err(failed("KVM_SET_REGS"))?;
        sys::set_run_mask(&fd, run_mask).map_err(|source| GuestError::Ioctl {
            name: "KVM_SET_SIGNAL_MASK",
            cpu,
            source,
        })?;
        Ok(Vcpu { cpu, fd })
    }

    /// Runs the guest, hands every 32-bit port write to `on_port`, and returns when that breaks the loop.
    ///
    /// # Errors
    ///
    /// [`GuestError::Cancelled`] once `stop` is set and a kick has ended KVM_RUN; any exit but a 32-bit port write.
    pub(crate) fn run<T>(
        &mut self,
        stop: &AtomicBool,
        mut on_port: impl FnMut(u16, u32) -> ControlFlow<T>,
    ) -> Result<T, GuestError> {
        let cpu = self.cpu;
        loop {
            if stop.load(Ordering::SeqCst) {
                return Err(GuestError::Cancelled);
            }
            let unexpected = match self.fd.run() {
                Ok(VcpuExit::IoOut(port, data)) => match <[u8; 4]>::try_from(data) {
                    Ok(data) => match on_port(port, u32::from_le_bytes(data)) {
                        ControlFlow::Continue(()) => continue,
                        ControlFlow::Break(value) => return Ok(value),
                    },
                    Err(_) => format!("write of {} bytes to port {port:#x}", data.len()),
                },
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
                        rip: self.position().0,
                    });
                }
                Ok(VcpuExit::MmioRead(gpa, data)) => {
                    format!(
                        "read of {} bytes at guest address {gpa:#x}, where there is no memory",
                        data.len()
                    )
                }
                Ok(VcpuExit::MmioWrite(gpa, data)) => {
                    format!(
                        "write of {} bytes at guest address {gpa:#x}, where there is no memory",
                        data.len()
                    )
                }
                Ok(exit) => format!("{exit:?}"),
                // A kick whose `stop` is checked above, or a signal that is the embedding program's business.
                Err(e) if e.errno() == libc::EINTR => {
                    // A kick that somebody else sent would stay pending and end every KVM_RUN from here on.
                    sys::take_kick();
                    continue;
                }
                Err(e) if e.errno() == libc::EAGAIN => continue,
                Err(e) => {
                    let (rip, near) = self.position();
                    return Err(GuestError::Run {
                        cpu,
                        rip,
                        near,
                        source: io::Error::from(e),
                    });
                }
            };
            return Err(GuestError::UnexpectedExit {
                cpu,
                exit: unexpected,
                rip: self.position().0,
            });
        }
    }

    /// The guest's RIP and RBX; the probe scans with RBX. Zeros where KVM does not tell, since it is only for a
    /// message.
    fn position(&self) -> (u64, u64) {
        self.fd
            .get_regs()
            .map_or((0, 0), |regs| (regs.rip, regs.rbx))
    }
}
