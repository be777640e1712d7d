//! The loops that one would write for the purpose, without anything around them.

#[cfg(target_arch = "x86_64")]
mod x86_64;

use prezero_clear::Span;

/// A loop over all of a span, with its fence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bare {
    /// The library's method with the same instruction.
    pub(crate) name: &'static str,
    clear: unsafe fn(*mut u8, usize),
}

impl Bare {
    /// Those that this CPU can run.
    pub(crate) fn available() -> Vec<Self> {
        #[cfg(target_arch = "x86_64")]
        return x86_64::available();
        #[cfg(not(target_arch = "x86_64"))]
        return Vec::new();
    }

    /// Clears the span.
    pub(crate) fn clear(self, span: Span<'_>) {
        let start = std::ptr::with_exposed_provenance_mut(span.addr());
        // SAFETY: a span is exclusive and populated memory of whole lines, and mmap, a foreign function, exposed it; the
        // loop is one that this CPU can run.
        unsafe { (self.clear)(start, span.len()) };
    }
}
