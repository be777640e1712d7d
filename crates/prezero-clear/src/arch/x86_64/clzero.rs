//! A line at a time without any data: CLZERO, AMD since Zen.
//!
//! It clears the line that holds the address in RAX (AMD APM vol. 3, CLZERO), needs no read of it and no write-combining
//! buffer. One line per jump does not keep the memory busy, so the loop takes eight at a time and the last one to seven
//! singly. Weakly ordered like a write-combining store: an SFENCE must follow.
//!
//! The instruction is spelt in bytes, so that the tests can run the very same loop with an undefined instruction in its
//! place, which they emulate in a signal handler.

use std::arch::asm;

use super::detect;
use crate::Stores;

/// CLZERO, one to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Clzero(());

/// The loop with `$clzero` for the instruction, which clears the line at RAX.
macro_rules! clear_lines {
    ($clzero:literal, $ptr:expr, $len:expr) => {
        asm!(
            // Eight lines at a time while there are as many.
            "cmp rcx, 512",
            "jb 3f",
            "2:",
            $clzero, "add rax, 64", $clzero, "add rax, 64",
            $clzero, "add rax, 64", $clzero, "add rax, 64",
            $clzero, "add rax, 64", $clzero, "add rax, 64",
            $clzero, "add rax, 64", $clzero, "add rax, 64",
            "sub rcx, 512",
            "cmp rcx, 512",
            "jae 2b",
            "3:",
            "test rcx, rcx",
            "jz 5f",
            "4:",
            $clzero, "add rax, 64",
            "sub rcx, 64",
            "jnz 4b",
            "5:",
            inout("rax") $ptr => _,
            inout("rcx") $len => _,
            options(nostack),
        )
    };
}

impl Clzero {
    pub(crate) const NAME: &str = "clzero";
    pub(crate) const STORES: Stores = Stores::Uncached;

    /// Where the CPU has CLZERO and lines of 64 bytes.
    #[must_use]
    pub fn new() -> Option<Self> {
        Self::is_available().then_some(Self(()))
    }

    /// Whether the CPU has CLZERO and lines of 64 bytes.
    #[must_use]
    pub fn is_available() -> bool {
        detect::has_clzero()
    }

    /// Clears `len` bytes at `ptr`.
    ///
    /// # Safety
    ///
    /// The memory is populated, writable and used by nobody else before this thread's next
    /// [`fence`](crate::arch::fence), and `ptr` and `len` are multiples of [`GRANULE`](crate::GRANULE).
    pub unsafe fn clear(self, ptr: *mut u8, len: usize) {
        // SAFETY: `self` is the proof that the CPU has CLZERO; the rest is the caller's promise.
        unsafe { clear(ptr, len) };
    }
}

/// # Safety
///
/// As [`Clzero::clear`], and the CPU has CLZERO or the process emulates it.
pub(crate) unsafe fn clear(ptr: *mut u8, len: usize) {
    // SAFETY: the loop clears whole lines from `ptr` on and ends with the caller's memory.
    unsafe { clear_lines!(".byte 0x0f, 0x01, 0xfc", ptr, len) };
}

/// # Safety
///
/// As [`clear`], where the process emulates 0F 0B FC, an undefined instruction of the same length.
#[cfg(test)]
pub(crate) unsafe fn clear_with_stand_in(ptr: *mut u8, len: usize) {
    // SAFETY: as in `clear`.
    unsafe { clear_lines!(".byte 0x0f, 0x0b, 0xfc", ptr, len) };
}
