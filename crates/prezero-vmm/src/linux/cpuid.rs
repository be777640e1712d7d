//! What CPUID tells each vCPU: what KVM supports, without nested virtualisation, and with the vCPU's place in the
//! guest's topology in place of the host CPU's that KVM happened to ask.

use std::arch::x86_64::__cpuid;

use kvm_bindings::{CpuId, KVM_CPUID_FLAG_SIGNIFCANT_INDEX, kvm_cpuid_entry2};

use super::topology::{Place, Topology};

const EXTENDED_TOPOLOGY: u32 = 0xb;
const EXTENDED_TOPOLOGY_V2: u32 = 0x1f;

const LEVEL_THREAD: u32 = 1;
const LEVEL_CORE: u32 = 2;

const VMX: u32 = 1 << 5;
const TSC_DEADLINE: u32 = 1 << 24;
const HYPERVISOR: u32 = 1 << 31;
const HTT: u32 = 1 << 28;
const SVM: u32 = 1 << 2;
/// Of KVM's own features (Documentation/virt/kvm/x86/cpuid.rst).
const PV_EOI: u32 = 1 << 6;
const COMPATIBILITY_MULTICORE: u32 = 1 << 1;

/// Puts `value` into `bits` bits of a register from bit `at` on.
fn set(register: &mut u32, at: u32, bits: u32, value: u32) {
    let mask = ((1 << bits) - 1) << at;
    *register = *register & !mask | (value << at) & mask;
}

/// What KVM can do, or is better not asked for, that is not in its list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extras {
    /// Its local APIC has that timer (api.rst, KVM_CAP_TSC_DEADLINE_TIMER).
    pub(super) tsc_deadline: bool,
    /// Interrupts may be acknowledged without leaving the guest.
    pub(super) pv_eoi: bool,
}

impl Extras {
    /// QEMU's emulation of SVM may deliver an injected interrupt again, although the guest has disabled interrupts, if
    /// the emulator is called to something else before the guest has left for any reason (`helper_vmrun` leaves the
    /// vector in `exception_index`). A guest that leaves to acknowledge the interrupt, first of all, holds no lock by
    /// then: what remains at risk are the first instructions after an interrupt of a program.
    pub(super) fn new(tsc_deadline: bool) -> Extras {
        Extras {
            tsc_deadline,
            pv_eoi: !host_is_emulated(),
        }
    }
}

/// Whether this host is QEMU's emulator.
fn host_is_emulated() -> bool {
    const PRESENT: u32 = 1 << 31;
    const NAME: u32 = 0x4000_0000;
    if __cpuid(1).ecx & PRESENT == 0 {
        return false;
    }
    let name = __cpuid(NAME);
    [name.ebx, name.ecx, name.edx].map(u32::to_le_bytes) == [*b"TCGT", *b"CGTC", *b"GTCG"]
}

/// CPUID of vCPU `cpu`.
pub(super) fn of_vcpu(
    supported: &CpuId,
    topology: &Topology,
    cpu: u32,
    extras: Extras,
) -> Vec<kvm_cpuid_entry2> {
    let place = topology.place(cpu);
    let bits = topology.core_bits();
    let highest = supported
        .as_slice()
        .iter()
        .find(|entry| entry.function == 0);
    let highest = highest.map_or(0, |entry| entry.eax);
    let mut entries = supported.as_slice().to_vec();
    entries.retain(|entry| !matches!(entry.function, EXTENDED_TOPOLOGY | EXTENDED_TOPOLOGY_V2));
    for entry in &mut entries {
        adapt(entry, &place, bits, extras);
    }
    for leaf in [EXTENDED_TOPOLOGY, EXTENDED_TOPOLOGY_V2] {
        if highest >= leaf {
            entries.extend(levels(leaf, &place, bits));
        }
    }
    entries
}

fn adapt(entry: &mut kvm_cpuid_entry2, place: &Place, bits: u32, extras: Extras) {
    let several = place.cores > 1;
    match entry.function {
        1 => {
            set(&mut entry.ebx, 24, 8, place.apic_id);
            set(&mut entry.ebx, 16, 8, 1 << bits);
            entry.ecx = entry.ecx & !(VMX | TSC_DEADLINE) | HYPERVISOR;
            if extras.tsc_deadline {
                entry.ecx |= TSC_DEADLINE;
            }
            entry.edx &= !HTT;
            if several {
                entry.edx |= HTT;
            }
        }
        // Intel's caches: how many APIC ids share it, and cores of the package, less one each.
        4 if entry.eax & 0x1f != 0 => {
            let shared = if entry.eax >> 5 & 7 >= 3 {
                (1 << bits) - 1
            } else {
                0
            };
            set(&mut entry.eax, 14, 12, shared);
            set(&mut entry.eax, 26, 6, (1 << bits.min(6)) - 1);
        }
        0x4000_0001 if !extras.pv_eoi => entry.eax &= !PV_EOI,
        0x8000_0001 => {
            entry.ecx &= !(SVM | COMPATIBILITY_MULTICORE);
            if several {
                entry.ecx |= COMPATIBILITY_MULTICORE;
            }
        }
        // AMD's: cores less one, and bits of an APIC id that number them.
        0x8000_0008 => {
            set(&mut entry.ecx, 0, 8, place.cores - 1);
            set(&mut entry.ecx, 12, 4, bits);
        }
        // APIC ids that share it, less one: those of a package are a power of two apart.
        0x8000_001d if entry.eax & 0x1f != 0 => {
            let shared = if entry.eax >> 5 & 7 >= 3 {
                (1 << bits) - 1
            } else {
                0
            };
            set(&mut entry.eax, 14, 12, shared);
        }
        0x8000_001e => {
            entry.eax = place.apic_id;
            // One thread for each core, one node for each package.
            set(&mut entry.ebx, 0, 16, place.core);
            set(&mut entry.ecx, 0, 11, place.package);
        }
        _ => {}
    }
}

/// The sub-leaves of an extended topology: one thread for each core, and the cores of the package.
fn levels(leaf: u32, place: &Place, bits: u32) -> [kvm_cpuid_entry2; 3] {
    let level = |index: u32, kind: u32, shift: u32, count: u32| kvm_cpuid_entry2 {
        function: leaf,
        index,
        flags: KVM_CPUID_FLAG_SIGNIFCANT_INDEX,
        eax: shift,
        ebx: count,
        ecx: kind << 8 | index,
        edx: place.apic_id,
        ..Default::default()
    };
    [
        level(0, LEVEL_THREAD, 0, 1),
        level(1, LEVEL_CORE, bits, place.cores),
        level(2, 0, 0, 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Extras = Extras {
        tsc_deadline: true,
        pv_eoi: true,
    };
    const NONE: Extras = Extras {
        tsc_deadline: false,
        pv_eoi: false,
    };

    fn entry(function: u32, index: u32, registers: [u32; 4]) -> kvm_cpuid_entry2 {
        let [eax, ebx, ecx, edx] = registers;
        kvm_cpuid_entry2 {
            function,
            index,
            eax,
            ebx,
            ecx,
            edx,
            ..Default::default()
        }
    }

    fn found(entries: &[kvm_cpuid_entry2], function: u32, index: u32) -> Vec<[u32; 4]> {
        let of = |entry: &&kvm_cpuid_entry2| (entry.function, entry.index) == (function, index);
        let registers = |entry: &kvm_cpuid_entry2| [entry.eax, entry.ebx, entry.ecx, entry.edx];
        entries.iter().filter(of).map(registers).collect()
    }

    #[test]
    fn the_host_cpus_place_is_replaced_by_the_vcpus() {
        let all = u32::MAX;
        let supported = CpuId::from_entries(&[
            entry(0, 0, [0x1f, 0, 0, 0]),
            entry(1, 0, [0, all, all, all]),
            entry(4, 0, [0xffff_c021, 0, 0, 0]), // first level
            entry(4, 3, [0xffff_c063, 0, 0, 0]), // third level
            entry(4, 4, [0, 0, 0, 0]),
            entry(0xb, 0, [9, 9, 9, 9]),
            entry(0xb, 1, [9, 9, 9, 9]),
            entry(0x4000_0001, 0, [all, 0, 0, 0]),
            entry(0x8000_0001, 0, [0, 0, all, 0]),
            entry(0x8000_0008, 0, [0x3030, 0, all, 0]),
            entry(0x8000_001d, 3, [0xffff_c063, 0, 0, 0]),
            entry(0x8000_001e, 0, [all, all, all, 0]),
        ])
        .expect("few entries");
        // Packages of 3 and 2, two bits each; the last vCPU is the second of the second.
        let topology = Topology::new(5, 2, 64).expect("it fits");
        let entries = of_vcpu(&supported, &topology, 4, NONE);
        let [_, ebx, ecx, edx] = found(&entries, 1, 0)[0];
        assert_eq!(ebx, 0x0504_ffff);
        assert_eq!(ecx & (VMX | TSC_DEADLINE | HYPERVISOR), HYPERVISOR);
        assert_eq!(edx, all);
        assert_eq!(found(&entries, 4, 0)[0][0], 0x0c00_0021);
        assert_eq!(found(&entries, 4, 3)[0][0], 0x0c00_c063);
        for leaf in [0xb, 0x1f] {
            assert_eq!(found(&entries, leaf, 0), [[0, 1, 0x100, 5]]);
            assert_eq!(found(&entries, leaf, 1), [[2, 2, 0x201, 5]]);
            assert_eq!(found(&entries, leaf, 2), [[0, 0, 2, 5]]);
        }
        assert_eq!(found(&entries, 0x8000_0001, 0)[0][2], all & !SVM);
        assert_eq!(found(&entries, 0x8000_0008, 0)[0][2], 0xffff_2f01);
        assert_eq!(found(&entries, 0x8000_001d, 3)[0][0], 0xfc00_c063);
        assert_eq!(
            found(&entries, 0x8000_001e, 0)[0],
            [5, 0xffff_0001, 0xffff_f801, 0]
        );
        assert_eq!(found(&entries, 0x4000_0001, 0)[0][0], all & !PV_EOI);
        let with_timer = of_vcpu(&supported, &topology, 4, ALL);
        assert_ne!(found(&with_timer, 1, 0)[0][2] & TSC_DEADLINE, 0);
        assert_eq!(found(&with_timer, 0x4000_0001, 0)[0][0], all);
    }

    #[test]
    fn a_single_vcpu_is_alone_in_its_package() {
        let supported = CpuId::from_entries(&[
            entry(0, 0, [0xd, 0, 0, 0]),
            entry(1, 0, [0, 0, 0, HTT]),
            entry(0x8000_0001, 0, [0, 0, COMPATIBILITY_MULTICORE, 0]),
        ])
        .expect("few entries");
        let topology = Topology::new(1, 1, 64).expect("it fits");
        let entries = of_vcpu(&supported, &topology, 0, ALL);
        assert_eq!(
            found(&entries, 1, 0),
            [[0, 0x1_0000, HYPERVISOR | TSC_DEADLINE, 0]]
        );
        assert_eq!(found(&entries, 0x8000_0001, 0)[0][2], 0);
        assert_eq!(found(&entries, 0xb, 1), [[0, 1, 0x201, 0]]);
        assert!(found(&entries, 0x1f, 0).is_empty());
    }
}
