//! The door between guest memory and whatever hands it to KVM.

use std::fmt;

use crate::size::ByteSize;

/// One KVM memory slot as plain numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotRange {
    /// KVM's number of the slot.
    pub slot: u32,
    /// First guest-physical address.
    pub gpa: u64,
    /// Length in bytes.
    pub len: u64,
    /// Host address of the first byte.
    pub hva: u64,
}

impl fmt::Display for SlotRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            slot,
            gpa,
            len,
            hva,
        } = *self;
        let size = ByteSize(len);
        write!(
            f,
            "slot {slot} (guest address {gpa:#x}, {size}, host address {hva:#x})"
        )
    }
}

/// Registers memory slots, with `KVM_SET_USER_MEMORY_REGION` or whatever an embedder uses.
pub trait SlotRegistrar {
    /// Why a slot was refused.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Makes the range visible to the guest.
    ///
    /// # Errors
    ///
    /// The refusal; the guest does not see the range then.
    ///
    /// # Safety
    ///
    /// The range stays mapped until [`SlotRegistrar::remove`] has succeeded for the slot, and no
    /// Rust reference into it exists.
    unsafe fn add(&self, range: &SlotRange) -> Result<(), Self::Error>;

    /// Takes the slot away from the guest. After it KVM makes no access to the range.
    ///
    /// # Errors
    ///
    /// The refusal; the guest may still see the range then.
    fn remove(&self, slot: u32) -> Result<(), Self::Error>;
}
