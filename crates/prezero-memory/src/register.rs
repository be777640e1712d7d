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
///
/// # Safety
///
/// Memory is unmapped on this trait's word: `Ok` from `remove` means that the guest makes no further
/// access through the range, and `Err` from `add` that it makes none either.
pub unsafe trait SlotRegistrar {
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
    /// The range stays mapped until [`SlotRegistrar::remove`] has succeeded for it, and no Rust
    /// reference into it exists.
    unsafe fn add(&self, range: &SlotRange) -> Result<(), Self::Error>;

    /// Takes a range that was added away from the guest. After it KVM makes no access to the range.
    ///
    /// # Errors
    ///
    /// The refusal, or that another range has the slot by now; the guest may still see it then.
    fn remove(&self, range: &SlotRange) -> Result<(), Self::Error>;
}
