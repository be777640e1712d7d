//! The processor state in which the probe guest starts: 64-bit code in ring 3.
//!
//! A normal system starts in ring 0 and works its way up. KVM lets a vCPU start anywhere, and ring 3 runs natively
//! even under a KVM that has no hardware support below it and emulates ring 0. No descriptor table is needed: the
//! segments' hidden parts are given here, nothing reloads them, and any exception is a triple fault.

use kvm_bindings::{kvm_regs, kvm_segment, kvm_sregs};

use super::TSS_GPA;
use super::code::{PORT_ALIVE, PORT_DONE, PORT_PROGRESS};

const CR0_PE: u64 = 1 << 0;
const CR0_ET: u64 = 1 << 4;
const CR0_NE: u64 = 1 << 5;
const CR0_PG: u64 = 1 << 31;
const CR4_PAE: u64 = 1 << 5;
const EFER_LME: u64 = 1 << 8;
const EFER_LMA: u64 = 1 << 10;
const RFLAGS_RESERVED: u64 = 1 << 1;
/// Ring 3 may use port instructions. By the manuals this is enough; a KVM without hardware support was seen to look
/// only at the task's permission bitmap, so there is one, too.
const RFLAGS_IOPL_3: u64 = 3 << 12;

/// Accessed, readable code. VMX refuses a segment in use that is not marked accessed (SDM volume 3, 28.3.1.2).
const CODE: u8 = 0xb;
/// Accessed, writable data.
const DATA: u8 = 0x3;
/// VMX refuses any other kind in 64-bit mode.
const BUSY_TSS: u8 = 0xb;

/// Bytes of a 64-bit task state segment before its permission bitmap.
const TSS_HEAD: u16 = 104;
/// One bit for each port up to the last byte of the last one, and the byte of ones that must follow them.
const TSS_BYTES: u16 = TSS_HEAD + (PORT_DONE + 4).div_ceil(8) + 1;

/// A task state segment of which only the permission bitmap counts (SDM volume 1, 20.5.2): a clear bit allows a port,
/// and only the probe's ports have one.
pub(crate) fn tss() -> [u8; TSS_BYTES as usize] {
    let mut tss = [0; TSS_BYTES as usize];
    let (head, bitmap) = tss.split_at_mut(TSS_HEAD.into());
    head[102..].copy_from_slice(&TSS_HEAD.to_le_bytes());
    bitmap.fill(0xff);
    for first in [PORT_ALIVE, PORT_PROGRESS, PORT_DONE] {
        for port in usize::from(first)..usize::from(first) + 4 {
            bitmap[port / 8] &= !(1 << (port % 8));
        }
    }
    tss
}

/// A flat segment of ring 3. VMX wants the selector's low bits to be the ring, too.
fn flat(selector: u16, type_: u8) -> kvm_segment {
    let code = u8::from(type_ == CODE);
    kvm_segment {
        base: 0,
        limit: 0xffff_ffff,
        selector: selector | 3,
        type_,
        present: 1,
        dpl: 3,
        db: 1 - code,
        s: 1,
        l: code,
        g: 1,
        ..Default::default()
    }
}

/// Changes KVM's reset state into paged long mode in ring 3.
pub(crate) fn set_sregs(sregs: &mut kvm_sregs, cr3: u64) {
    sregs.cr0 = CR0_PE | CR0_ET | CR0_NE | CR0_PG;
    sregs.cr3 = cr3;
    sregs.cr4 = CR4_PAE;
    sregs.efer = EFER_LME | EFER_LMA;
    sregs.cs = flat(0x10, CODE);
    for data in [
        &mut sregs.ss,
        &mut sregs.ds,
        &mut sregs.es,
        &mut sregs.fs,
        &mut sregs.gs,
    ] {
        *data = flat(0x18, DATA);
    }
    sregs.tr = kvm_segment {
        base: TSS_GPA,
        limit: u32::from(TSS_BYTES) - 1,
        selector: 0x20,
        type_: BUSY_TSS,
        present: 1,
        ..Default::default()
    };
    sregs.ldt = kvm_segment {
        unusable: 1,
        ..Default::default()
    };
    sregs.gdt.limit = 0;
    sregs.idt.limit = 0;
}

/// The first instruction and the mailbox; the probe has no stack.
pub(crate) fn regs(entry: u64, mailbox: u64) -> kvm_regs {
    kvm_regs {
        rip: entry,
        rdi: mailbox,
        rflags: RFLAGS_RESERVED | RFLAGS_IOPL_3,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_task_allows_only_the_probes_ports() {
        let bitmap = &tss()[TSS_HEAD.into()..];
        let allowed = |port: u16| bitmap[usize::from(port) / 8] & 1 << (port % 8) == 0;
        let ports: Vec<u16> = (0..PORT_DONE + 8).filter(|&port| allowed(port)).collect();
        assert_eq!(ports, (PORT_ALIVE..PORT_DONE + 4).collect::<Vec<_>>());
        assert_eq!(bitmap.last(), Some(&0xff));
    }
}
