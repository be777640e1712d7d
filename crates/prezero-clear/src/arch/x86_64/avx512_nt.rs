//! A line at a time around the caches: VMOVNTDQ with 512-bit registers.
//!
//! One store fills a write-combining buffer. The register is cleared by a 128-bit VPXOR, which clears all of it, so no upper
//! half is left dirty to slow down SSE code that follows. Weakly ordered: an SFENCE must follow.
//!
//! The loop is assembly and not intrinsics so that the tests know the one instruction that a CPU without AVX-512 stops at.

use std::arch::{asm, is_x86_feature_detected};

use crate::Stores;

/// VMOVNTDQ, one to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Avx512Nt(());

/// The loop with `$vmovntdq` for the instruction, which stores ZMM0 at RAX.
macro_rules! clear_lines {
    ($vmovntdq:literal, $ptr:expr, $len:expr) => {
        asm!(
            "test rcx, rcx",
            "jz 3f",
            "vpxor xmm0, xmm0, xmm0",
            "2:",
            $vmovntdq,
            "add rax, 64",
            "sub rcx, 64",
            "jnz 2b",
            "3:",
            inout("rax") $ptr => _,
            inout("rcx") $len => _,
            out("xmm0") _,
            options(nostack),
        )
    };
}

impl Avx512Nt {
    pub(crate) const NAME: &str = "avx512-nt";
    pub(crate) const STORES: Stores = Stores::Uncached;

    /// Where the CPU has AVX-512.
    #[must_use]
    pub fn new() -> Option<Self> {
        Self::is_available().then_some(Self(()))
    }

    /// Whether the CPU has AVX512F and the operating system saves its registers (XGETBV), which the macro asks too.
    #[must_use]
    pub fn is_available() -> bool {
        is_x86_feature_detected!("avx512f")
    }

    /// Clears `len` bytes at `ptr`.
    ///
    /// # Safety
    ///
    /// The memory is populated, writable and used by nobody else before this thread's next
    /// [`fence`](crate::arch::fence), and `ptr` and `len` are multiples of [`GRANULE`](crate::GRANULE).
    pub unsafe fn clear(self, ptr: *mut u8, len: usize) {
        // SAFETY: `self` is the proof that the CPU has AVX-512; the rest is the caller's promise.
        unsafe { clear(ptr, len) };
    }
}

/// # Safety
///
/// As [`Avx512Nt::clear`], and the CPU has AVX-512, or it has AVX and the process emulates the store.
pub(crate) unsafe fn clear(ptr: *mut u8, len: usize) {
    // SAFETY: the loop writes whole lines from `ptr` on and ends with the caller's memory.
    unsafe { clear_lines!("vmovntdq zmmword ptr [rax], zmm0", ptr, len) };
}

/// # Safety
///
/// As [`clear`], where the process emulates 0F 0B 7D 48 E7 00, an undefined instruction of the same length.
#[cfg(test)]
pub(crate) unsafe fn clear_with_stand_in(ptr: *mut u8, len: usize) {
    // SAFETY: as in `clear`.
    unsafe { clear_lines!(".byte 0x0f, 0x0b, 0x7d, 0x48, 0xe7, 0x00", ptr, len) };
}
