//! Memory slots on the real `/dev/kvm`, through the public API.

use std::path::Path;

use prezero_testkit::require_kvm;
use prezero_vmm::{Kvm, SlotError, SlotRange};
use vm_memory::{GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

const MIB: u64 = 1 << 20;

fn kvm() -> Option<Kvm> {
    let open = || Kvm::open(Path::new("/dev/kvm")).expect("it has just been opened");
    require_kvm().then(open)
}

#[test]
fn slots_are_kept_removed_and_never_overlap() {
    let Some(kvm) = kvm() else { return };
    let mem = GuestMemoryMmap::<()>::from_ranges(&[(GuestAddress(0), 8 << 20)]).unwrap();
    let hva = mem.get_host_address(GuestAddress(0)).unwrap() as u64;
    let vm = kvm.create_vm().unwrap();
    let add = |slot, gpa, len, offset| {
        let range = SlotRange {
            slot,
            gpa,
            len,
            hva: hva + offset,
        };
        // SAFETY: `mem` is declared before `vm`, so it outlives the machine.
        unsafe { vm.add_slot(&range) }.map(|()| range)
    };
    let high = add(1, 4 << 30, 2 * MIB, 2 * MIB).unwrap();
    let low = add(0, 0, 2 * MIB, 0).unwrap();
    assert_eq!(vm.slots(), [low, high]);

    let error = add(2, MIB, 2 * MIB, 4 * MIB).unwrap_err();
    assert!(matches!(error, SlotError::Overlap { present, .. } if present == low));
    let text = error.to_string();
    for part in [
        "slot 2",
        "0x100000",
        "2 MiB",
        &format!("{:#x}", hva + 4 * MIB),
        "slot 0",
    ] {
        assert!(text.contains(part), "{part} is missing in: {text}");
    }
    assert!(matches!(
        add(1, 5 << 30, MIB, 4 * MIB),
        Err(SlotError::InUse { .. })
    ));
    let max = vm.max_slots();
    assert!(matches!(
        add(u32::try_from(max).unwrap(), 5 << 30, MIB, 4 * MIB),
        Err(SlotError::Number { .. })
    ));
    assert_eq!(vm.slots(), [low, high]);

    vm.remove_slot(0).unwrap();
    assert!(matches!(
        vm.remove_slot(0),
        Err(SlotError::Absent { slot: 0 })
    ));
    // KVM has forgotten it too: number and addresses are free again.
    add(0, MIB, MIB, 0).unwrap();
    let clone = vm.clone();
    drop(vm);
    assert_eq!(clone.slots().len(), 2);
}

#[test]
fn what_kvm_refuses_is_not_in_the_table() {
    let Some(kvm) = kvm() else { return };
    let vm = kvm.create_vm().unwrap();
    // Above every user address, which only KVM checks.
    let range = SlotRange {
        slot: 0,
        gpa: 0,
        len: MIB,
        hva: 0xffff_8000_0000_0000,
    };
    // SAFETY: KVM refuses addresses that are not the process's.
    let error = unsafe { vm.add_slot(&range) }.unwrap_err();
    assert!(matches!(error, SlotError::Register { .. }));
    assert!(error.to_string().contains("0xffff800000000000"), "{error}");
    assert!(vm.slots().is_empty());
}
