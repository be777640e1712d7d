//! Eight bytes at a time around the caches: MOVNTI, the method of the 2021 kernel series on Intel CPUs.
//!
//! A line needs eight of them. They fill one write-combining buffer when they come in order and without gaps, and a
//! partly filled buffer costs a read of the line, so a line is never left half way. Weakly ordered: an SFENCE must follow.

use std::arch::x86_64::_mm_stream_si64;

use crate::{GRANULE, Stores};

/// MOVNTI, eight to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Movnti(());

impl Movnti {
    pub(crate) const NAME: &str = "movnti";
    pub(crate) const STORES: Stores = Stores::Uncached;

    /// On every x86-64 CPU: it came with SSE2.
    #[must_use]
    pub fn new() -> Option<Self> {
        Self::is_available().then_some(Self(()))
    }

    /// True.
    #[must_use]
    pub fn is_available() -> bool {
        true
    }

    /// Clears `len` bytes at `ptr`.
    ///
    /// # Safety
    ///
    /// The memory is populated, writable and used by nobody else before this thread's next
    /// [`fence`](crate::arch::fence), and `ptr` and `len` are multiples of [`GRANULE`](crate::GRANULE).
    pub unsafe fn clear(self, ptr: *mut u8, len: usize) {
        for line in (0..len).step_by(GRANULE) {
            // SAFETY: the line lies within the caller's memory, and so do its eight words.
            unsafe {
                let words = ptr.add(line).cast::<i64>();
                _mm_stream_si64(words, 0);
                _mm_stream_si64(words.add(1), 0);
                _mm_stream_si64(words.add(2), 0);
                _mm_stream_si64(words.add(3), 0);
                _mm_stream_si64(words.add(4), 0);
                _mm_stream_si64(words.add(5), 0);
                _mm_stream_si64(words.add(6), 0);
                _mm_stream_si64(words.add(7), 0);
            }
        }
    }
}
