//! A line at a time in one store: MOVDIR64B ("direct store", Intel since Tremont and Sapphire Rapids, AMD since Zen 5).
//!
//! It reads 64 bytes, here zeroes, and writes them to an aligned line as one write that is never torn and never waits in
//! a write-combining buffer (Intel SDM vol. 2B, MOVDIR64B). Weakly ordered: an SFENCE must follow.
//!
//! The instruction is spelt in bytes for the reason given for CLZERO: the tests put another one in its place.

use std::arch::asm;

use super::detect;
use crate::{GRANULE, Stores};

/// MOVDIR64B, one to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Movdir64b(());

/// The source of every store, a line of its own: 64 bytes that cross no line are read at once.
#[repr(align(64))]
struct Zeroes([u8; GRANULE]);

static ZEROES: Zeroes = Zeroes([0; GRANULE]);

/// The loop with `$movdir64b` for the instruction, which copies the line at RDX to RAX.
macro_rules! clear_lines {
    ($movdir64b:literal, $ptr:expr, $len:expr) => {
        asm!(
            "test rcx, rcx",
            "jz 3f",
            "2:",
            $movdir64b,
            "add rax, 64",
            "sub rcx, 64",
            "jnz 2b",
            "3:",
            inout("rax") $ptr => _,
            inout("rcx") $len => _,
            in("rdx") ZEROES.0.as_ptr(),
            options(nostack),
        )
    };
}

impl Movdir64b {
    pub(crate) const NAME: &str = "movdir64b";
    pub(crate) const STORES: Stores = Stores::Uncached;

    /// Where the CPU has MOVDIR64B.
    #[must_use]
    pub fn new() -> Option<Self> {
        Self::is_available().then_some(Self(()))
    }

    /// Whether the CPU has MOVDIR64B.
    #[must_use]
    pub fn is_available() -> bool {
        detect::has_movdir64b()
    }

    /// Clears `len` bytes at `ptr`.
    ///
    /// # Safety
    ///
    /// The memory is populated, writable and used by nobody else before this thread's next
    /// [`fence`](crate::arch::fence), and `ptr` and `len` are multiples of [`GRANULE`](crate::GRANULE).
    pub unsafe fn clear(self, ptr: *mut u8, len: usize) {
        // SAFETY: `self` is the proof that the CPU has MOVDIR64B; the rest is the caller's promise.
        unsafe { clear(ptr, len) };
    }
}

/// # Safety
///
/// As [`Movdir64b::clear`], and the CPU has MOVDIR64B or the process emulates it.
pub(crate) unsafe fn clear(ptr: *mut u8, len: usize) {
    // SAFETY: the loop writes whole lines from `ptr` on and ends with the caller's memory.
    unsafe { clear_lines!(".byte 0x66, 0x0f, 0x38, 0xf8, 0x02", ptr, len) };
}

/// # Safety
///
/// As [`clear`], where the process emulates 0F 0B 38 F8 02, an undefined instruction of the same length.
#[cfg(test)]
pub(crate) unsafe fn clear_with_stand_in(ptr: *mut u8, len: usize) {
    // SAFETY: as in `clear`.
    unsafe { clear_lines!(".byte 0x0f, 0x0b, 0x38, 0xf8, 0x02", ptr, len) };
}
