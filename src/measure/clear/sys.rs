//! Populated memory as spans, which clear it piece by piece.

use prezero_clear::Span;
use prezero_memory::{GuestRam, Populated};

/// All extents. None is longer than an address can say, nor off a cache line: they are whole pages.
pub(super) fn spans(ram: &mut GuestRam<Populated>) -> Vec<Span<'_>> {
    let extents = ram.extents().filter_map(|extent| {
        let addr = usize::try_from(extent.addr()).ok()?;
        let len = usize::try_from(extent.plan().len().bytes()).ok()?;
        let addr = std::ptr::with_exposed_provenance_mut(addr);
        // SAFETY: `ram` keeps the range mapped, writable and, having been populated, there for as long as
        // it is borrowed. It is borrowed mutably, memory in this state has no other way in (no guest,
        // no descriptor and no vm-memory view of it exists), and extents do not overlap.
        unsafe { Span::new(addr, len) }.ok()
    });
    extents.collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    #[repr(align(4096))]
    #[derive(Clone, Copy)]
    struct Page(#[allow(dead_code)] [u8; 4096]);

    /// Lends a span of ordinary memory, in whole base pages.
    pub(in super::super) fn with_span<R>(len: usize, test: impl FnOnce(Span<'_>) -> R) -> R {
        let mut memory = vec![Page([0; 4096]); len / 4096];
        // SAFETY: the memory is borrowed for as long as the span lives, and all of it is there.
        let span = unsafe { Span::new(memory.as_mut_ptr().cast(), len) };
        test(span.expect("whole pages"))
    }
}
