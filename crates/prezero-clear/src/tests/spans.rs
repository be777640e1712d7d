//! What is no span, and how spans divide.

use std::ptr;
use std::thread;

use super::memory::Memory;
use crate::clearing::PAGE;
use crate::{ChunkError, Clearing, GRANULE, Method, Span, SpanError, account};

/// The error for an address and a length that nothing is ever stored to.
#[track_caller]
fn refusal(addr: usize, len: usize) -> SpanError {
    // SAFETY: refused before anything relies on the memory.
    unsafe { Span::new(ptr::without_provenance_mut(addr), len) }.expect_err("refused")
}

#[test]
fn unaligned_addresses_and_lengths_are_refused() {
    for odd in 1..GRANULE {
        let (addr, len) = (PAGE + odd, PAGE);
        assert_eq!(refusal(addr, len), SpanError::Unaligned { addr, len });
        let (addr, len) = (PAGE, PAGE + odd);
        assert_eq!(refusal(addr, len), SpanError::Unaligned { addr, len });
    }
}

#[test]
fn a_span_is_neither_empty_nor_wraps_round() {
    assert_eq!(refusal(PAGE, 0), SpanError::Empty);
    let addr = usize::MAX - PAGE + 1;
    for len in [PAGE, 2 * PAGE, usize::MAX - GRANULE + 1] {
        assert_eq!(refusal(addr, len), SpanError::Wraps { addr, len });
    }
    let addr = refusal(addr, PAGE).to_string();
    assert_eq!(
        addr,
        "Span of 4096 bytes at 0xfffffffffffff000 ends beyond the address space"
    );
}

#[test]
fn a_span_splits_on_lines_and_into_two() {
    let mut memory = Memory::new(PAGE);
    let start = memory.addr();
    let mut span = memory.span(0, 3 * GRANULE);
    for at in [
        0,
        1,
        GRANULE - 1,
        GRANULE + 8,
        3 * GRANULE,
        4 * GRANULE,
        usize::MAX - 63,
    ] {
        span = span.split_at(at).expect_err("refused");
        assert_eq!((span.addr(), span.len()), (start, 3 * GRANULE));
    }
    let (one, two) = span.split_at(GRANULE).expect("a line and two");
    assert_eq!((one.addr(), one.len()), (start, GRANULE));
    assert_eq!((two.addr(), two.len()), (start + GRANULE, 2 * GRANULE));
    assert!(!one.is_empty());
}

#[test]
fn a_chunk_is_a_positive_multiple_of_a_page() {
    let how = Clearing::new(Method::cached());
    assert_eq!(how.chunk(), None);
    for bytes in [0, 1, GRANULE, PAGE - 1, PAGE + GRANULE, usize::MAX] {
        assert_eq!(how.in_chunks(bytes), Err(ChunkError { bytes }));
    }
    for bytes in [PAGE, 3 * PAGE, 1 << 30] {
        assert_eq!(how.in_chunks(bytes).map(|how| how.chunk()), Ok(Some(bytes)));
    }
}

#[test]
fn spans_are_cleared_by_other_threads_that_return_receipts() {
    let mut memory = Memory::new(2 * PAGE);
    let span = memory.span(0, 2 * PAGE);
    let wanted = (span.addr(), span.len());
    let (left, right) = span.split_at(PAGE).expect("two pages");
    let how = Clearing::new(Method::available().next().expect("some method"));
    let receipts = thread::scope(|scope| {
        let workers = [left, right].map(|span| scope.spawn(move || span.clear(&how).fence()));
        workers.map(|worker| worker.join().expect("no panic"))
    });
    assert_eq!(account(&[wanted], receipts.into()), Ok(()));
    memory.assert_cleared(&[(0, 2 * PAGE)], || "two threads".to_owned());
}
