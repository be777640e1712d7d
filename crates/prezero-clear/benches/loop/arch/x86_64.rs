//! Bare loops of x86-64.

use std::arch::asm;
use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_setzero_si256, _mm256_stream_si256};

use prezero_clear::Method;

use super::Bare;

/// Those that this CPU can run.
pub(super) fn available() -> Vec<Bare> {
    let avx2_nt = Bare {
        name: "avx2-nt",
        clear: stream,
    };
    let clzero = Bare {
        name: "clzero",
        clear: clzero,
    };
    let mut known = vec![avx2_nt, clzero];
    known.retain(|bare| Method::named(bare.name).is_ok());
    known
}

/// # Safety
///
/// The CPU has AVX2; the memory is exclusive and a whole number of 64-byte lines.
#[target_feature(enable = "avx2")]
unsafe fn stream(ptr: *mut u8, len: usize) {
    let zero = _mm256_setzero_si256();
    for at in (0..len).step_by(32) {
        // SAFETY: within the caller's memory.
        unsafe { _mm256_stream_si256(ptr.add(at).cast::<__m256i>(), zero) };
    }
    _mm_sfence();
}

/// # Safety
///
/// The CPU has CLZERO; the memory is exclusive and a whole number of 64-byte lines.
unsafe fn clzero(ptr: *mut u8, len: usize) {
    for at in (0..len).step_by(64) {
        // SAFETY: within the caller's memory.
        unsafe { asm!("clzero", in("rax") ptr.add(at), options(nostack, preserves_flags)) };
    }
    // SAFETY: SSE belongs to every x86-64 CPU.
    #[allow(unused_unsafe, reason = "safe to call in later Rust versions")]
    unsafe {
        _mm_sfence();
    }
}
