//! Memory that may be cleared, and the order in which it is.

use std::error::Error;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use crate::arch::portable;
use crate::clearing::PAGE;
use crate::{Clearing, Incoherent, Method};

/// Spans start and end on multiples of this many bytes: one cache line.
pub const GRANULE: usize = 64;

/// Pages on each side of the one that is used next which are cleared with it, as Linux does since 4.18.
const NEIGHBOURS: usize = 2;

/// An exclusive, aligned piece of a mapping, not yet cleared.
#[derive(Debug)]
#[must_use = "a span that is dropped is not cleared"]
pub struct Span<'r> {
    start: *mut u8,
    len: usize,
    used_next: Option<usize>,
    mapping: PhantomData<&'r mut ()>,
}

// SAFETY: `Span::new` was promised that nobody else uses the memory, and nothing in it belongs to a thread.
unsafe impl Send for Span<'_> {}

impl<'r> Span<'r> {
    /// `len` bytes from `addr` on.
    ///
    /// # Errors
    ///
    /// When there is nothing to clear, `addr` or `len` is not a multiple of [`GRANULE`], or the end is beyond the address
    /// space.
    ///
    /// # Safety
    ///
    /// For all of `'r` the memory is mapped writable and every page of it is there (populated: a store must not end in a
    /// SIGBUS). Until the stores of [`Span::clear`] are fenced, nobody reads or writes it except through this span and
    /// what it is split into.
    pub unsafe fn new(addr: *mut u8, len: usize) -> Result<Self, SpanError> {
        let start = addr.addr();
        if len == 0 {
            return Err(SpanError::Empty);
        }
        if !start.is_multiple_of(GRANULE) || !len.is_multiple_of(GRANULE) {
            return Err(SpanError::Unaligned { addr: start, len });
        }
        if start.checked_add(len).is_none() {
            return Err(SpanError::Wraps { addr: start, len });
        }
        Ok(Self {
            start: addr,
            len,
            used_next: None,
            mapping: PhantomData,
        })
    }

    /// The address of its first byte.
    #[must_use]
    pub fn addr(&self) -> usize {
        self.start.addr()
    }

    /// Its length in bytes, never 0.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first `at` bytes and the rest.
    ///
    /// # Errors
    ///
    /// The span as it was, when `at` is not a multiple of [`GRANULE`] or leaves one side empty.
    pub fn split_at(self, at: usize) -> Result<(Self, Self), Self> {
        if at == 0 || at >= self.len || !at.is_multiple_of(GRANULE) {
            return Err(self);
        }
        let rest = Self {
            start: self.start.wrapping_add(at),
            len: self.len - at,
            ..self
        };
        Ok((Self { len: at, ..self }, rest))
    }

    /// Names an address that will be used soon after the clearing; one outside the span is ignored.
    ///
    /// Its page of 4 KiB and two on each side are then cleared last and with cached stores, so that they are still in the
    /// cache when they are used ("mm, hugetlb: Pass fault address to no page handler", 2018). The last call counts.
    pub fn used_next(self, addr: usize) -> Self {
        Self {
            used_next: Some(addr),
            ..self
        }
    }

    /// Clears it: all bytes are zero once the result is fenced.
    pub fn clear(self, how: &Clearing) -> Incoherent<'r> {
        // Made before the first store, so that however this function is left there is a fence.
        let stores = Incoherent::of(&self);
        for (piece, method) in self.pieces(how) {
            // SAFETY: a piece is a range of whole lines below `self.len`, and the memory is this span's own.
            unsafe {
                method
                    .kernel()
                    .clear(self.start.add(piece.start), piece.len())
            };
        }
        stores
    }

    /// Fills it with `byte`, with ordinary stores, for tests and measurements.
    ///
    /// Some CPUs recognise a zero that is stored over a zero, which makes clearing clear memory faster than it is.
    pub fn stain(self, byte: u8) -> Self {
        // SAFETY: the memory is this span's own and a whole number of lines.
        unsafe { portable::fill(self.start, self.len, byte) };
        self
    }

    /// What is cleared by one string instruction or loop, as offsets, and with which method, in that order.
    pub(crate) fn pieces(&self, how: &Clearing) -> impl Iterator<Item = (Range<usize>, Method)> {
        let near = self.neighbourhood().unwrap_or(self.len..self.len);
        let far = [0..near.start, near.end..self.len];
        let (method, chunk) = (how.method(), how.chunk().unwrap_or(self.len));
        let far = far.into_iter().flat_map(move |part| {
            let starts = part.clone().step_by(chunk);
            starts.map(move |at| (at..part.end.min(at.saturating_add(chunk)), method))
        });
        let last = (!near.is_empty()).then(|| (near, Method::cached()));
        far.chain(last)
    }

    /// The offsets of what is cleared last.
    fn neighbourhood(&self) -> Option<Range<usize>> {
        let used = self.used_next?;
        let (start, end) = (self.addr(), self.addr() + self.len);
        if !(start..end).contains(&used) {
            return None;
        }
        let page = used - used % PAGE;
        let first = page.saturating_sub(NEIGHBOURS * PAGE).max(start);
        let last = page.saturating_add((NEIGHBOURS + 1) * PAGE).min(end);
        Some(first - start..last - start)
    }
}

/// Why memory is no span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpanError {
    /// Its length is 0.
    Empty,
    /// Its start or its length is not a multiple of [`GRANULE`].
    Unaligned {
        /// Its address.
        addr: usize,
        /// Its length in bytes.
        len: usize,
    },
    /// Its end is beyond the address space.
    Wraps {
        /// Its address.
        addr: usize,
        /// Its length in bytes.
        len: usize,
    },
}

impl fmt::Display for SpanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "A span of 0 bytes has nothing to clear"),
            Self::Unaligned { addr, len } => write!(
                f,
                "Span of {len} bytes at {addr:#x} does not start and end on a multiple of {GRANULE}"
            ),
            Self::Wraps { addr, len } => {
                write!(
                    f,
                    "Span of {len} bytes at {addr:#x} ends beyond the address space"
                )
            }
        }
    }
}

impl Error for SpanError {}
