//! A virtual machine and its memory.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kvm_bindings::{CpuId, KVM_PIT_SPEAKER_DUMMY, kvm_pit_config};
use kvm_ioctls::VmFd;
use prezero_memory::{SlotRange, SlotRegistrar};

use crate::kvm::{KvmError, KvmFacts};
use crate::slots::{SlotError, SlotTable};
use crate::sys;

#[derive(Debug)]
struct VmInner {
    fd: VmFd,
    facts: KvmFacts,
    cpuid: CpuId,
    slots: Mutex<SlotTable>,
}

/// A virtual machine. Clones are the same machine; KVM destroys it with the last of them.
#[derive(Clone, Debug)]
pub struct Vm(Arc<VmInner>);

impl Vm {
    pub(crate) fn new(fd: VmFd, facts: KvmFacts, cpuid: CpuId) -> Vm {
        Vm(Arc::new(VmInner {
            fd,
            facts,
            cpuid,
            slots: Mutex::default(),
        }))
    }

    /// How many memory slots KVM offers; slot numbers are below it.
    pub fn max_slots(&self) -> usize {
        self.0.facts.max_slots
    }

    /// What a guest may use on this host.
    pub fn facts(&self) -> KvmFacts {
        self.0.facts
    }

    /// Creates the interrupt controllers and the timer that a Linux guest needs, before any vCPU.
    ///
    /// # Errors
    ///
    /// KVM refuses.
    pub fn create_irqchip(&self) -> Result<(), KvmError> {
        let pit = kvm_pit_config {
            // Port 0x61 belongs to it, too: kernels calibrate their clocks by it.
            flags: KVM_PIT_SPEAKER_DUMMY,
            ..Default::default()
        };
        self.0
            .fd
            .create_irq_chip()
            .and_then(|()| self.0.fd.create_pit2(pit))
            .map_err(|e| KvmError::IrqChip(e.into()))
    }

    /// Registers host memory as guest memory, readable and writable (`KVM_SET_USER_MEMORY_REGION`).
    ///
    /// # Errors
    ///
    /// The range breaks one of KVM's rules, its number is in use, or it overlaps a registered slot: all found before
    /// KVM is asked. Or KVM refuses.
    ///
    /// # Safety
    ///
    /// `[range.hva, range.hva + range.len)` must stay mapped, as memory the guest may read and write, until the slot is removed
    /// or the last clone of this machine is dropped. Nobody may hold Rust references into it meanwhile.
    #[allow(unsafe_code)]
    pub unsafe fn add_slot(&self, range: &SlotRange) -> Result<(), SlotError> {
        let mut slots = self.table();
        slots.check(range, self.max_slots())?;
        // SAFETY: the caller vouches for the mapping; the table has just found the range well-formed and free.
        unsafe { sys::set_slot(&self.0.fd, range) }.map_err(|source| SlotError::Register {
            range: *range,
            source,
        })?;
        slots.insert(*range);
        Ok(())
    }

    /// Takes guest memory away again. When this returns, KVM no longer uses the mapping.
    ///
    /// # Errors
    ///
    /// No such slot, or KVM refuses.
    pub fn remove_slot(&self, slot: u32) -> Result<(), SlotError> {
        let mut slots = self.table();
        let range = slots.find(slot)?;
        sys::delete_slot(&self.0.fd, &range)
            .map_err(|source| SlotError::Remove { range, source })?;
        slots.remove(slot);
        Ok(())
    }

    /// The registered slots, ordered by guest address.
    pub fn slots(&self) -> Vec<SlotRange> {
        self.table().ranges().to_vec()
    }

    /// Whether slots stand behind every byte of `[gpa, gpa + len)`.
    pub(crate) fn covers(&self, gpa: u64, len: u64) -> bool {
        self.table().covers(gpa, len)
    }

    pub(crate) fn fd(&self) -> &VmFd {
        &self.0.fd
    }

    pub(crate) fn cpuid(&self) -> &CpuId {
        &self.0.cpuid
    }

    /// A panic while the lock was held cannot have left the table half-changed: each change is one call.
    fn table(&self) -> MutexGuard<'_, SlotTable> {
        self.0.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: both methods pass KVM's answer on, and KVM refuses without a change.
#[allow(unsafe_code)]
unsafe impl SlotRegistrar for Vm {
    type Error = SlotError;

    unsafe fn add(&self, range: &SlotRange) -> Result<(), SlotError> {
        // SAFETY: the caller's promise is the one that is asked for.
        unsafe { self.add_slot(range) }
    }

    fn remove(&self, range: &SlotRange) -> Result<(), SlotError> {
        if self.slots().contains(range) {
            return self.remove_slot(range.slot);
        }
        Err(SlotError::Absent { slot: range.slot })
    }
}
