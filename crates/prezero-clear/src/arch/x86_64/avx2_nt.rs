//! Half a line at a time around the caches: VMOVNTDQ with 256-bit registers.
//!
//! Two stores fill a write-combining buffer, so it is less likely than with MOVNTI that something else needs the buffer
//! before it is full. The loop takes four lines at a time; the last one to three go singly. Weakly ordered: an SFENCE must
//! follow.

use std::arch::is_x86_feature_detected;
use std::arch::x86_64::{__m256i, _mm256_setzero_si256, _mm256_stream_si256};

use crate::{GRANULE, Stores};

/// VMOVNTDQ, two to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Avx2Nt(());

impl Avx2Nt {
    pub(crate) const NAME: &str = "avx2-nt";
    pub(crate) const STORES: Stores = Stores::Uncached;

    /// Where the CPU has AVX2.
    #[must_use]
    pub fn new() -> Option<Self> {
        Self::is_available().then_some(Self(()))
    }

    /// Whether the CPU has AVX2 and the operating system saves its registers (XGETBV), which the macro asks too.
    #[must_use]
    pub fn is_available() -> bool {
        is_x86_feature_detected!("avx2")
    }

    /// Clears `len` bytes at `ptr`.
    ///
    /// # Safety
    ///
    /// The memory is populated, writable and used by nobody else before this thread's next
    /// [`fence`](crate::arch::fence), and `ptr` and `len` are multiples of [`GRANULE`](crate::GRANULE).
    pub unsafe fn clear(self, ptr: *mut u8, len: usize) {
        // SAFETY: `self` is the proof that the CPU has AVX2; the rest is the caller's promise.
        unsafe { clear(ptr, len) };
    }
}

/// # Safety
///
/// As [`Avx2Nt::clear`].
#[target_feature(enable = "avx2")]
unsafe fn clear(ptr: *mut u8, len: usize) {
    const BLOCK: usize = 4 * GRANULE;
    let zero = _mm256_setzero_si256();
    let blocks = len - len % BLOCK;
    for block in (0..blocks).step_by(BLOCK) {
        // SAFETY: the block lies within the caller's memory, and so do its eight halves of lines.
        unsafe {
            let halves = ptr.add(block).cast::<__m256i>();
            _mm256_stream_si256(halves, zero);
            _mm256_stream_si256(halves.add(1), zero);
            _mm256_stream_si256(halves.add(2), zero);
            _mm256_stream_si256(halves.add(3), zero);
            _mm256_stream_si256(halves.add(4), zero);
            _mm256_stream_si256(halves.add(5), zero);
            _mm256_stream_si256(halves.add(6), zero);
            _mm256_stream_si256(halves.add(7), zero);
        }
    }
    for line in (blocks..len).step_by(GRANULE) {
        // SAFETY: the line lies within the caller's memory.
        unsafe {
            let halves = ptr.add(line).cast::<__m256i>();
            _mm256_stream_si256(halves, zero);
            _mm256_stream_si256(halves.add(1), zero);
        }
    }
}
