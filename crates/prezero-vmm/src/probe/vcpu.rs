//! The probe's vCPUs: what each says by its port writes, and when.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use kvm_bindings::kvm_regs;
use kvm_ioctls::VcpuExit;

use super::code::{PORT_ALIVE, PORT_DONE, PORT_PROGRESS};
use crate::error::GuestError;
use crate::slots::PAGE;
use crate::threads::VcpuThread;
use crate::vcpu::{Handled, Registers, Vcpu};
use crate::vm::Vm;

/// When a vCPU spoke for the first time and for the last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetime {
    pub(super) alive: Instant,
    pub(super) done: Instant,
}

/// What a vCPU tells while it runs; a cache line of its own, as each is written by another CPU.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Pulse {
    /// Port writes so far.
    beats: AtomicU64,
    /// Bytes scanned so far.
    scanned: AtomicU64,
}

impl Pulse {
    pub(super) fn beats(&self) -> u64 {
        self.beats.load(Ordering::Relaxed)
    }

    pub(super) fn scanned(&self) -> u64 {
        self.scanned.load(Ordering::Relaxed)
    }
}

/// Runs a vCPU of the probe to its end, in its own thread.
pub(super) fn run(
    vm: &Vm,
    thread: &VcpuThread<'_>,
    registers: &Registers,
    pulse: &Pulse,
) -> Result<Lifetime, GuestError> {
    let cpu = thread.cpu;
    let mut vcpu = Vcpu::create(vm, thread, cpu, vm.cpuid())?;
    vcpu.set_registers(registers)?;
    let mut alive = None;
    let mut on_port = |port, value| {
        let now = Instant::now();
        pulse.beats.fetch_add(1, Ordering::Relaxed);
        match (port, alive) {
            (PORT_ALIVE, None) => alive = Some(now),
            (PORT_PROGRESS, Some(_)) => {
                pulse
                    .scanned
                    .fetch_add(u64::from(value) * PAGE, Ordering::Relaxed);
            }
            (PORT_DONE, Some(alive)) => {
                return ControlFlow::Break(Ok(Lifetime { alive, done: now }));
            }
            _ => {
                let complaint = format!("write to port {port:#x} out of turn");
                return ControlFlow::Break(Err(complaint));
            }
        }
        ControlFlow::Continue(())
    };
    let ended = vcpu.run(thread, |exit| -> Handled<Lifetime> {
        let complaint = match exit {
            VcpuExit::IoOut(port, data) => match <[u8; 4]>::try_from(data) {
                Ok(data) => return on_port(port, u32::from_le_bytes(data)),
                Err(_) => format!("write of {} bytes to port {port:#x}", data.len()),
            },
            VcpuExit::MmioRead(gpa, data) => absent("read", data.len(), gpa),
            VcpuExit::MmioWrite(gpa, data) => absent("write", data.len(), gpa),
            exit => format!("{exit:?}"),
        };
        ControlFlow::Break(Err(complaint))
    });
    ended.map_err(|error| match error {
        GuestError::Run {
            cpu, rip, source, ..
        } => GuestError::Run {
            cpu,
            rip,
            scanning: vcpu.fd().get_regs().ok().and_then(|regs| cursor(&regs)),
            source,
        },
        error => error,
    })
}

/// Where the scan is, while it is in a stretch: before the first and between two there is nothing before the end.
fn cursor(regs: &kvm_regs) -> Option<u64> {
    (regs.rbx < regs.r10).then_some(regs.rbx)
}

fn absent(access: &str, len: usize, gpa: u64) -> String {
    format!("{access} of {len} bytes at guest address {gpa:#x}, where there is no memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_that_has_not_begun_is_nowhere() {
        let at = |rbx, r10| {
            cursor(&kvm_regs {
                rbx,
                r10,
                ..kvm_regs::default()
            })
        };
        assert_eq!(at(0, 0), None);
        assert_eq!(at(0, 0x1000), Some(0), "the first block of memory");
        assert_eq!(at(0x1000, 0x1000), None, "the stretch is read");
    }
}
