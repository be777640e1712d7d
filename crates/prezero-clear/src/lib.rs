//! Clears memory with uncached stores, and does not let anybody forget the fence.
//!
//! # When clearing pays
//!
//! 1. The kernel clears every *fresh* hugepage, whoever asks for it and however. Clearing it again is wasted traffic.
//! 2. The kernel does not clear a page that *stays* in a hugetlbfs file or memfd. There a clear in user space is the
//!    only one, and stores that go around the caches run at two to four times the speed of cached ones.
//!
//! This crate is for the second case. It neither maps memory nor starts threads, and depends on nothing.
//!
//! # Why a fence, and whose
//!
//! The fast stores (`movnti`, `vmovntdq`, `movdir64b`, `clzero`) are weakly ordered: a later ordinary store, even one that
//! releases a lock, may become visible before them. Only an `sfence` by the thread that issued them orders them; Rust asks
//! the same of its non-temporal intrinsics. A forgotten one is a guest that finds somebody else's data, once in a while,
//! on one kind of CPU. So the order is a type:
//!
//! | type | may go to another thread | what it is |
//! |---|---|---|
//! | [`Span`] | yes | exclusive memory, not yet cleared |
//! | [`Incoherent`] | no | the stores are issued, and not yet fenced |
//! | [`Coherent`] | yes | the receipt |
//!
//! [`account`] then checks that the receipts of all workers are for exactly what was to be cleared. The Linux series
//! "Use uncached stores while clearing huge pages" (2021) had a static checker look for the same mistake.
//!
//! # Example
//!
//! ```
//! use prezero_clear::{Clearing, GRANULE, Method, Span, account};
//!
//! #[repr(align(4096))]
//! struct Ram([u8; 8192]);
//! let mut ram = Box::new(Ram([0xa5; 8192]));
//!
//! // SAFETY: the box is borrowed for as long as the span and its receipt live, and its pages have just been written.
//! let span = unsafe { Span::new(ram.0.as_mut_ptr(), 8192) }?;
//! let wanted = (span.addr(), span.len());
//!
//! // The loader starts with the second page: keep it in the cache.
//! let span = span.used_next(wanted.0 + 4096);
//! let stores = span.clear(&Clearing::new(Method::cached()));
//! let receipt = stores.fence();
//!
//! account(&[wanted], vec![receipt])?;
//! assert!(ram.0.iter().all(|byte| *byte == 0));
//! # assert_eq!(wanted.0 % GRANULE, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod arch;
mod clearing;
#[cfg(doctest)]
mod compile_fail;
mod method;
mod receipts;
mod span;
#[cfg(test)]
mod tests;

pub use clearing::{ChunkError, Clearing};
pub use method::{Method, MethodError, Stores};
pub use receipts::{Coherent, Incoherent, Unaccounted, account};
pub use span::{GRANULE, Span, SpanError};
