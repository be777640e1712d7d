//! One string instruction: REP STOSB, what kernels clear with.
//!
//! The CPU's microcode sees the whole length and may use wider stores and fewer reads than any loop ("enhanced" and "fast
//! short" REP MOVSB/STOSB: CPUID flags ERMS and FSRM), on some CPUs even uncached ones for large counts. Its stores may be
//! seen out of order among themselves, but not after stores that follow the instruction (Intel SDM vol. 3A, 9.2.4).

use std::arch::asm;

use crate::Stores;

/// REP STOSB over the whole length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RepStosb(());

impl RepStosb {
    pub(crate) const NAME: &str = "rep-stosb";
    pub(crate) const STORES: Stores = Stores::Cached;

    /// On every x86-64 CPU.
    #[must_use]
    pub fn new() -> Option<Self> {
        Self::is_available().then_some(Self(()))
    }

    /// True: without ERMS it is slow, but there.
    #[must_use]
    pub fn is_available() -> bool {
        true
    }

    /// Clears `len` bytes at `ptr`.
    ///
    /// # Safety
    ///
    /// The memory is populated, writable and used by nobody else.
    pub unsafe fn clear(self, ptr: *mut u8, len: usize) {
        // SAFETY: the memory is the caller's; the direction flag is clear, as asm! guarantees.
        unsafe {
            asm!(
                "rep stosb",
                inout("rdi") ptr => _,
                inout("rcx") len => _,
                in("al") 0_u8,
                options(nostack, preserves_flags),
            );
        }
    }
}
