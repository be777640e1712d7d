//! The spans of one worker, from the chunks it claims.

use std::marker::PhantomData;
use std::ptr;

use prezero_clear::Span;

use super::ClearError;
use crate::work::Share;

/// Makes spans of chunks that no other worker has.
pub(super) struct Spans<'s, 'a, 'r> {
    share: &'s Share<'a, ClearError>,
    /// What is left of the chunk claimed last: address and length.
    rest: (u64, u64),
    memory: PhantomData<&'r mut ()>,
}

impl<'s, 'a, 'r> Spans<'s, 'a, 'r> {
    /// The spans of a worker's share.
    ///
    /// # Safety
    ///
    /// The targets of the share are as [`super::clear`] wants them for all of `'r`.
    pub(super) unsafe fn new(share: &'s Share<'a, ClearError>) -> Self {
        Self {
            share,
            rest: (0, 0),
            memory: PhantomData,
        }
    }

    /// The rest of the chunk at hand, or the next one.
    pub(super) fn next(&mut self) -> Option<Span<'r>> {
        self.take(u64::MAX)
    }

    /// At most `most` bytes of the chunk at hand, or of the next one; none when there is none left or
    /// the work is to stop.
    pub(super) fn take(&mut self, most: u64) -> Option<Span<'r>> {
        if self.share.stopping() {
            return None;
        }
        if self.rest.1 == 0 {
            let chunk = self.share.claim()?;
            self.rest = (chunk.addr, chunk.len);
        }
        let (addr, len) = (self.rest.0, self.rest.1.min(most));
        self.rest = (addr + len, self.rest.1 - len);
        // An address of this process and a length of a mapping fit.
        let addr = ptr::with_exposed_provenance_mut(usize::try_from(addr).ok()?);
        // SAFETY: a chunk is claimed once, and each of its bytes is taken once, so nobody else has this
        // span; the rest was promised to `new`.
        let span = unsafe { Span::new(addr, usize::try_from(len).ok()?) };
        // Chunks are whole pages, and pieces of them whole multiples of a cache line.
        span.ok()
    }
}
