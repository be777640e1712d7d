//! Ordinary stores, as wide as AVX2 or else SSE2 has them: every line is read into the cache, and stays there.
//!
//! They are volatile: a compiler that sees a loop of zeroes calls `memset`, and the C library's `memset` may use uncached
//! stores above some size, which is just what this method must not do. 512-bit stores measured no faster.

use std::arch::is_x86_feature_detected;
use std::arch::x86_64::{__m128i, __m256i, _mm_setzero_si128, _mm256_setzero_si256};

use crate::{GRANULE, Stores};

/// Ordinary wide stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cached(Width);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Width {
    Avx2,
    Sse2,
}

impl Cached {
    pub(crate) const NAME: &str = "cached";
    pub(crate) const STORES: Stores = Stores::Cached;

    /// On every CPU.
    #[must_use]
    pub fn new() -> Option<Self> {
        Some(Self::detect())
    }

    /// True.
    #[must_use]
    pub fn is_available() -> bool {
        true
    }

    /// The widest stores of this CPU.
    #[must_use]
    pub fn detect() -> Self {
        match is_x86_feature_detected!("avx2") {
            true => Self(Width::Avx2),
            false => Self::narrow(),
        }
    }

    /// The stores that every x86-64 CPU has.
    pub(crate) fn narrow() -> Self {
        Self(Width::Sse2)
    }

    /// Clears `len` bytes at `ptr`.
    ///
    /// # Safety
    ///
    /// The memory is populated, writable and used by nobody else, and `ptr` and `len` are multiples of
    /// [`GRANULE`](crate::GRANULE).
    pub unsafe fn clear(self, ptr: *mut u8, len: usize) {
        match self.0 {
            // SAFETY: `self` is the proof that the CPU has AVX2; the rest is the caller's promise.
            Width::Avx2 => unsafe { clear_avx2(ptr, len) },
            // SAFETY: the caller's promise.
            Width::Sse2 => unsafe { clear_sse2(ptr, len) },
        }
    }
}

/// # Safety
///
/// As [`Cached::clear`].
#[target_feature(enable = "avx2")]
unsafe fn clear_avx2(ptr: *mut u8, len: usize) {
    let zero = _mm256_setzero_si256();
    for line in (0..len).step_by(GRANULE) {
        // SAFETY: the line lies within the caller's memory, and so do its two halves.
        unsafe {
            let halves = ptr.add(line).cast::<__m256i>();
            halves.write_volatile(zero);
            halves.add(1).write_volatile(zero);
        }
    }
}

/// # Safety
///
/// As [`Cached::clear`].
#[target_feature(enable = "sse2")]
unsafe fn clear_sse2(ptr: *mut u8, len: usize) {
    let zero = _mm_setzero_si128();
    for line in (0..len).step_by(GRANULE) {
        // SAFETY: the line lies within the caller's memory, and so do its four quarters.
        unsafe {
            let quarters = ptr.add(line).cast::<__m128i>();
            quarters.write_volatile(zero);
            quarters.add(1).write_volatile(zero);
            quarters.add(2).write_volatile(zero);
            quarters.add(3).write_volatile(zero);
        }
    }
}
