//! The state in which the first vCPU enters the kernel, and what every vCPU has from the start.

use kvm_bindings::{Msrs, kvm_lapic_state, kvm_msr_entry, kvm_regs, kvm_segment, kvm_sregs};

use super::kernel::BootProtocol;
use super::layout::{GDT, PAGE_TABLES, START_INFO, ZERO_PAGE};
use crate::slots::PAGE;
use crate::vcpu::Registers;

const CR0_PE: u64 = 1 << 0;
const CR0_ET: u64 = 1 << 4;
const CR0_PG: u64 = 1 << 31;
const CR4_PAE: u64 = 1 << 5;
const EFER_LME: u64 = 1 << 8;
const EFER_LMA: u64 = 1 << 10;
const RFLAGS_RESERVED: u64 = 1 << 1;

/// Selectors of the Linux boot protocol: `__BOOT_CS`, `__BOOT_DS` and a task that nobody switches to.
const CODE_SELECTOR: u16 = 0x10;
const DATA_SELECTOR: u16 = 0x18;
const TASK_SELECTOR: u16 = 0x20;
const CODE: u8 = 0xb;
const DATA: u8 = 0x3;
const BUSY_TASK: u8 = 0xb;

/// Descriptors for code, data and task, as the boot protocol has them; KVM is given the same in the segments.
pub(super) fn gdt(protocol: BootProtocol) -> Vec<u8> {
    let segments = [code(protocol), data(), task()];
    let descriptors = [0, 0].into_iter().chain(segments.iter().map(descriptor));
    descriptors.flat_map(u64::to_le_bytes).collect()
}

fn descriptor(segment: &kvm_segment) -> u64 {
    let limit = match segment.g {
        0 => u64::from(segment.limit),
        _ => u64::from(segment.limit >> 12),
    };
    let access =
        u64::from(segment.type_ | segment.s << 4 | segment.dpl << 5 | segment.present << 7);
    let flags = u64::from(segment.avl | segment.l << 1 | segment.db << 2 | segment.g << 3);
    limit & 0xffff
        | (segment.base & 0xff_ffff) << 16
        | access << 40
        | (limit >> 16 & 0xf) << 48
        | flags << 52
        | (segment.base >> 24 & 0xff) << 56
}

fn flat(selector: u16, type_: u8) -> kvm_segment {
    kvm_segment {
        limit: 0xffff_ffff,
        selector,
        type_,
        present: 1,
        db: 1,
        s: 1,
        g: 1,
        ..Default::default()
    }
}

fn code(protocol: BootProtocol) -> kvm_segment {
    let long = u8::from(protocol == BootProtocol::Linux64);
    kvm_segment {
        l: long,
        db: 1 - long,
        ..flat(CODE_SELECTOR, CODE)
    }
}

fn data() -> kvm_segment {
    flat(DATA_SELECTOR, DATA)
}

fn task() -> kvm_segment {
    kvm_segment {
        limit: 0x67,
        selector: TASK_SELECTOR,
        type_: BUSY_TASK,
        present: 1,
        ..Default::default()
    }
}

/// Three page tables that map the first GiB to itself, 2 MiB at a time.
pub(super) fn page_tables() -> Vec<u8> {
    const PRESENT_WRITABLE: u64 = 0b11;
    const LARGE: u64 = 1 << 7;
    let entries = usize::try_from(PAGE).unwrap_or(0) / 8;
    let table = |first: u64| {
        let mut table = vec![0; entries];
        table[0] = first;
        table
    };
    let root = table((PAGE_TABLES + PAGE) | PRESENT_WRITABLE);
    let gigabytes = table((PAGE_TABLES + 2 * PAGE) | PRESENT_WRITABLE);
    let pages = (0..512).map(|n: u64| n << 21 | PRESENT_WRITABLE | LARGE);
    let all = root.into_iter().chain(gigabytes).chain(pages);
    all.flat_map(u64::to_le_bytes).collect()
}

/// How the first vCPU starts. The others wait for the kernel to start them, in the local APIC.
pub(super) fn first(protocol: BootProtocol, entry: u64) -> Registers {
    let regs = kvm_regs {
        rip: entry,
        rflags: RFLAGS_RESERVED,
        ..Default::default()
    };
    match protocol {
        BootProtocol::Linux64 => Registers {
            regs: kvm_regs {
                rsi: ZERO_PAGE,
                ..regs
            },
            set_sregs: set_linux64,
            cr3: PAGE_TABLES,
        },
        BootProtocol::Pvh => Registers {
            regs: kvm_regs {
                rbx: START_INFO,
                ..regs
            },
            set_sregs: set_pvh,
            cr3: 0,
        },
    }
}

fn set_segments(sregs: &mut kvm_sregs, protocol: BootProtocol) {
    sregs.cs = code(protocol);
    for segment in [
        &mut sregs.ds,
        &mut sregs.es,
        &mut sregs.fs,
        &mut sregs.gs,
        &mut sregs.ss,
    ] {
        *segment = data();
    }
    sregs.tr = task();
    sregs.gdt.base = GDT;
    sregs.gdt.limit = 5 * 8 - 1;
    sregs.idt.base = 0;
    sregs.idt.limit = 0;
}

fn set_linux64(sregs: &mut kvm_sregs, cr3: u64) {
    set_segments(sregs, BootProtocol::Linux64);
    sregs.cr0 = CR0_PE | CR0_ET | CR0_PG;
    sregs.cr3 = cr3;
    sregs.cr4 = CR4_PAE;
    sregs.efer = EFER_LME | EFER_LMA;
}

fn set_pvh(sregs: &mut kvm_sregs, _cr3: u64) {
    set_segments(sregs, BootProtocol::Pvh);
    sregs.cr0 = CR0_PE | CR0_ET;
    sregs.cr4 = 0;
    sregs.efer = 0;
}

/// MSRs that a BIOS would have set: memory is cacheable, and string instructions are fast. Without the second one a
/// kernel is only slower.
pub(super) fn msrs() -> Option<Msrs> {
    const MISC_ENABLE: u32 = 0x1a0;
    const FAST_STRINGS: u64 = 1;
    const MTRR_DEFAULT: u32 = 0x2ff;
    const MTRR_ENABLED: u64 = 1 << 11;
    const WRITE_BACK: u64 = 6;
    let entry = |index, data| kvm_msr_entry {
        index,
        data,
        ..Default::default()
    };
    Msrs::from_entries(&[
        entry(MTRR_DEFAULT, MTRR_ENABLED | WRITE_BACK),
        entry(MISC_ENABLE, FAST_STRINGS),
    ])
    .ok()
}

/// The local APIC's pins as a BIOS leaves them: pin 0 takes the old interrupt controller, pin 1 the NMI.
pub(super) fn set_lint(lapic: &mut kvm_lapic_state) {
    const LINT0: usize = 0x350;
    const LINT1: usize = 0x360;
    const EXTERNAL: u32 = 7;
    const NMI: u32 = 4;
    for (at, mode) in [(LINT0, EXTERNAL), (LINT1, NMI)] {
        // Delivery mode is bits 8 to 10; the register is 4 bytes, lowest first.
        let delivery = &mut lapic.regs[at + 1];
        let [byte, ..] = (delivery.to_ne_bytes()[0] as u32 & !7 | mode).to_le_bytes();
        *delivery = byte.cast_signed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_those_of_the_boot_protocol() {
        let words = |protocol| {
            let bytes = gdt(protocol);
            let words = bytes.chunks_exact(8);
            let words = words.map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
            words.collect::<Vec<_>>()
        };
        let data = 0x00cf_9300_0000_ffff;
        let task = 0x0000_8b00_0000_0067;
        assert_eq!(
            words(BootProtocol::Linux64),
            [0, 0, 0x00af_9b00_0000_ffff, data, task]
        );
        assert_eq!(
            words(BootProtocol::Pvh),
            [0, 0, 0x00cf_9b00_0000_ffff, data, task]
        );
    }

    #[test]
    fn the_first_gib_is_mapped_to_itself() {
        let bytes = page_tables();
        assert_eq!(bytes.len() as u64, 3 * PAGE);
        let entry = |table: usize, n: usize| {
            let at = table * 4096 + n * 8;
            u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
        };
        assert_eq!((entry(0, 0), entry(0, 1)), (0xa003, 0));
        assert_eq!((entry(1, 0), entry(1, 1)), (0xb003, 0));
        assert_eq!((entry(2, 0), entry(2, 511)), (0x83, 0x3fe0_0083));
    }

    #[test]
    fn pins_of_the_local_apic_keep_their_other_bits() {
        let mut lapic = kvm_lapic_state::default();
        // Masked, and some delivery mode.
        lapic.regs[0x351] = 0x12;
        lapic.regs[0x352] = 1;
        set_lint(&mut lapic);
        assert_eq!(lapic.regs[0x350..0x354], [0, 0x17, 1, 0]);
        assert_eq!(lapic.regs[0x360..0x364], [0, 4, 0, 0]);
    }
}
