//! Stores that are not yet ordered, the receipts for those that are, and what the receipts add up to.

use std::error::Error;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use crate::Span;
use crate::arch;

/// Stores that this thread has issued and not yet fenced.
///
/// Nobody may touch the memory before the fence, which only the thread that stored can make: hence it cannot be sent to
/// another one. Dropping it fences, so that a worker that unwinds leaves no unordered stores behind. Forgetting it
/// (`mem::forget`) leaves them unordered, but there is no receipt then, and what has no receipt does not count as clear.
#[derive(Debug)]
#[must_use = "dropped, it fences, but there is no receipt and the memory does not count as clear"]
pub struct Incoherent<'r> {
    addr: usize,
    len: usize,
    mapping: PhantomData<&'r mut ()>,
    thread: PhantomData<*mut ()>,
}

impl<'r> Incoherent<'r> {
    pub(crate) fn of(span: &Span<'r>) -> Self {
        Self {
            addr: span.addr(),
            len: span.len(),
            mapping: PhantomData,
            thread: PhantomData,
        }
    }

    /// Orders the stores before everything that this thread does from here on.
    #[must_use = "the receipt is the proof that the memory is clear"]
    pub fn fence(self) -> Coherent<'r> {
        arch::fence();
        self.fenced()
    }

    /// One fence for all of a thread's stores: a fence waits for every store before it, whatever it was issued for.
    #[must_use = "the receipts are the proof that the memory is clear"]
    pub fn fence_all(stores: Vec<Self>) -> Vec<Coherent<'r>> {
        if !stores.is_empty() {
            arch::fence();
        }
        stores.into_iter().map(Self::fenced).collect()
    }

    /// The address of the first byte cleared.
    #[must_use]
    pub fn addr(&self) -> usize {
        self.addr
    }

    /// The number of bytes cleared.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there are no empty spans")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The receipt, after the fence.
    fn fenced(self) -> Coherent<'r> {
        let stores = ManuallyDrop::new(self);
        Coherent {
            addr: stores.addr,
            len: stores.len,
            mapping: PhantomData,
        }
    }
}

impl Drop for Incoherent<'_> {
    fn drop(&mut self) {
        arch::fence();
    }
}

/// The receipt: cleared, and ordered before whatever the thread that cleared it does next.
///
/// Sent to another thread by any means that synchronises, a channel, a lock or a join, it finds zeroes there.
#[derive(Debug)]
#[must_use = "the receipt is the proof that the memory is clear"]
pub struct Coherent<'r> {
    addr: usize,
    len: usize,
    mapping: PhantomData<&'r mut ()>,
}

impl Coherent<'_> {
    /// The address of the first byte cleared.
    #[must_use]
    pub fn addr(&self) -> usize {
        self.addr
    }

    /// The number of bytes cleared.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there are no empty spans")]
    pub fn len(&self) -> usize {
        self.len
    }
}

/// Checks that the receipts of all workers cover what was to be cleared: every byte exactly once, and nothing else.
///
/// `wanted` are addresses and lengths in bytes, like the receipts in any order; they do not overlap. It takes
/// O(n log n) time for n ranges and receipts.
///
/// # Errors
///
/// The first range, by address, where that is not so.
pub fn account(wanted: &[(usize, usize)], receipts: Vec<Coherent<'_>>) -> Result<(), Unaccounted> {
    let receipts: Vec<_> = receipts.iter().map(|it| (it.addr, it.len)).collect();
    let (mut wanted, mut cleared) = (Depth::of(wanted), Depth::of(&receipts));
    let mut wrong: Option<(Wrong, usize)> = None;
    while let Some(edge) = [wanted.next_edge(), cleared.next_edge()]
        .into_iter()
        .flatten()
        .min()
    {
        let now = Wrong::from_depths(wanted.pass(edge), cleared.pass(edge));
        match wrong {
            Some((kind, addr)) if now != Some(kind) => return Err(kind.at(addr, edge - addr)),
            Some(_) => {}
            None => wrong = now.map(|kind| (kind, edge)),
        }
    }
    Ok(())
}

/// How many of a set of ranges cover an address, while it moves upwards.
#[derive(Debug)]
struct Depth {
    starts: std::iter::Peekable<std::vec::IntoIter<usize>>,
    ends: std::iter::Peekable<std::vec::IntoIter<usize>>,
    depth: usize,
}

impl Depth {
    fn of(ranges: &[(usize, usize)]) -> Self {
        let mut starts = Vec::with_capacity(ranges.len());
        let mut ends = Vec::with_capacity(ranges.len());
        for (addr, len) in ranges.iter().copied() {
            starts.push(addr);
            ends.push(addr.saturating_add(len));
        }
        starts.sort_unstable();
        ends.sort_unstable();
        Self {
            starts: starts.into_iter().peekable(),
            ends: ends.into_iter().peekable(),
            depth: 0,
        }
    }

    /// Where the depth changes next. Every start is at or before its end, so the starts run out first.
    fn next_edge(&mut self) -> Option<usize> {
        let end = self.ends.peek().copied();
        self.starts.peek().copied().min(end).or(end)
    }

    /// Moves on to `edge` and returns the depth from there on.
    fn pass(&mut self, edge: usize) -> usize {
        while self.starts.next_if_eq(&edge).is_some() {
            self.depth += 1;
        }
        while self.ends.next_if_eq(&edge).is_some() {
            self.depth -= 1;
        }
        self.depth
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Missing,
    Twice,
    Foreign,
}

impl Wrong {
    fn from_depths(wanted: usize, cleared: usize) -> Option<Self> {
        match (wanted > 0, cleared) {
            (true, 0) => Some(Self::Missing),
            (true, 1) | (false, 0) => None,
            (true, _) => Some(Self::Twice),
            (false, _) => Some(Self::Foreign),
        }
    }

    fn at(self, addr: usize, len: usize) -> Unaccounted {
        match self {
            Self::Missing => Unaccounted::Missing { addr, len },
            Self::Twice => Unaccounted::Twice { addr, len },
            Self::Foreign => Unaccounted::Foreign { addr, len },
        }
    }
}

/// Where the receipts do not cover what was to be cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unaccounted {
    /// To be cleared, without a receipt.
    Missing {
        /// The first such address.
        addr: usize,
        /// How many bytes from there on.
        len: usize,
    },
    /// With more than one receipt: one of them is for memory that somebody may have used since.
    Twice {
        /// The first such address.
        addr: usize,
        /// How many bytes from there on.
        len: usize,
    },
    /// With a receipt, though it was not to be cleared.
    Foreign {
        /// The first such address.
        addr: usize,
        /// How many bytes from there on.
        len: usize,
    },
}

impl fmt::Display for Unaccounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (addr, len, what) = match self {
            Self::Missing { addr, len } => (addr, len, "were not cleared"),
            Self::Twice { addr, len } => (addr, len, "were cleared more than once"),
            Self::Foreign { addr, len } => (addr, len, "were cleared and should not have been"),
        };
        write!(f, "{len} bytes at {addr:#x} {what}")
    }
}

impl Error for Unaccounted {}
