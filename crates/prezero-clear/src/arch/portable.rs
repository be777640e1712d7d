//! Eight bytes at a time, on any CPU.
//!
//! The stores are volatile, so that the compiler makes no call of `memset` out of them, which might choose other
//! stores than these.

use crate::Stores;

/// Ordinary 8-byte stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Portable(());

impl Portable {
    pub(crate) const NAME: &str = "portable";
    pub(crate) const STORES: Stores = Stores::Cached;

    /// On every CPU.
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
    /// The memory is populated, writable and used by nobody else, and `ptr` and `len` are multiples of
    /// [`GRANULE`](crate::GRANULE).
    pub unsafe fn clear(self, ptr: *mut u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { fill(ptr, len, 0) };
    }
}

/// Where nothing wider is known, cached stores are the portable ones.
#[cfg(not(target_arch = "x86_64"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cached(Portable);

#[cfg(not(target_arch = "x86_64"))]
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
        Self(Portable(()))
    }

    /// Clears `len` bytes at `ptr`.
    ///
    /// # Safety
    ///
    /// As for [`Portable::clear`].
    pub unsafe fn clear(self, ptr: *mut u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.0.clear(ptr, len) };
    }
}

/// Fills `len` bytes at `ptr`.
///
/// # Safety
///
/// The memory is populated, writable and used by nobody else; `ptr` is aligned to 8 and `len` a multiple of 8.
pub(crate) unsafe fn fill(ptr: *mut u8, len: usize, byte: u8) {
    let word = u64::from_ne_bytes([byte; 8]);
    let ptr = ptr.cast::<u64>();
    for at in 0..len / 8 {
        // SAFETY: the word is aligned and within the caller's memory.
        unsafe { ptr.add(at).write_volatile(word) };
    }
}
