//! What one instruction or loop covers, and in which order.

use std::ops::Range;

use super::memory::Memory;
use crate::clearing::PAGE;
use crate::{Clearing, GRANULE, Method};

const SPAN: usize = 16 * PAGE;

/// The pieces of a span of 16 pages that starts on a page: offsets, and whether they are for cached stores.
fn pieces(chunk: Option<usize>, used: Option<usize>) -> Vec<(Range<usize>, bool)> {
    let mut memory = Memory::new(SPAN);
    let base = memory.addr();
    let mut how = Clearing::new(Method::named("portable").expect("everywhere"));
    if let Some(chunk) = chunk {
        how = how.in_chunks(chunk).expect("whole pages");
    }
    let mut span = memory.span(0, SPAN);
    if let Some(used) = used {
        span = span.used_next(base.wrapping_add(used));
    }
    let pieces = span.pieces(&how);
    pieces
        .map(|(range, method)| (range, method == Method::cached()))
        .collect()
}

#[test]
fn without_a_chunk_the_span_is_one_piece() {
    assert_eq!(pieces(None, None), [(0..SPAN, false)]);
}

#[test]
fn a_chunk_bounds_every_piece() {
    let five = pieces(Some(5 * PAGE), None);
    let wanted = [
        0..5 * PAGE,
        5 * PAGE..10 * PAGE,
        10 * PAGE..15 * PAGE,
        15 * PAGE..SPAN,
    ];
    assert_eq!(five, wanted.map(|piece| (piece, false)));
    assert_eq!(pieces(Some(PAGE), None).len(), 16);
    assert_eq!(pieces(Some(SPAN), None), [(0..SPAN, false)]);
    assert_eq!(pieces(Some(1 << 30), None), [(0..SPAN, false)]);
}

#[test]
fn five_pages_around_the_use_are_last_and_cached() {
    let near = 5 * PAGE..10 * PAGE;
    for used in [7 * PAGE, 7 * PAGE + 123, 8 * PAGE - 1] {
        let wanted = [
            (0..near.start, false),
            (near.end..SPAN, false),
            (near.clone(), true),
        ];
        assert_eq!(pieces(None, Some(used)), wanted);
    }
    let wanted = [
        (0..3 * PAGE, false),
        (3 * PAGE..5 * PAGE, false),
        (10 * PAGE..13 * PAGE, false),
        (13 * PAGE..SPAN, false),
        (near, true),
    ];
    assert_eq!(pieces(Some(3 * PAGE), Some(7 * PAGE)), wanted);
}

#[test]
fn the_neighbourhood_ends_with_the_span() {
    let first = [(3 * PAGE..SPAN, false), (0..3 * PAGE, true)];
    assert_eq!(pieces(None, Some(0)), first);
    let last = [(0..13 * PAGE, false), (13 * PAGE..SPAN, true)];
    assert_eq!(pieces(None, Some(SPAN - 1)), last);
}

#[test]
fn an_address_outside_the_span_is_ignored() {
    for used in [usize::MAX, SPAN, SPAN + PAGE] {
        assert_eq!(pieces(None, Some(used)), [(0..SPAN, false)]);
    }
}

#[test]
fn the_neighbourhood_is_pages_of_the_address_space_and_not_of_the_span() {
    let mut memory = Memory::new(SPAN + PAGE);
    let used = memory.addr() + 8 * PAGE;
    let how = Clearing::new(Method::named("portable").expect("everywhere"));
    let span = memory.span(GRANULE, SPAN).used_next(used);
    let pieces: Vec<_> = span.pieces(&how).map(|(range, _)| range).collect();
    let near = 6 * PAGE - GRANULE..11 * PAGE - GRANULE;
    assert_eq!(pieces, [0..near.start, near.end..SPAN, near]);
}

#[test]
fn both_halves_of_a_span_know_what_is_used_next() {
    let mut memory = Memory::new(SPAN);
    let how = Clearing::new(Method::named("portable").expect("everywhere"));
    let used = memory.addr() + 8 * PAGE;
    let (left, right) = memory
        .span(0, SPAN)
        .used_next(used)
        .split_at(8 * PAGE)
        .expect("halves");
    assert_eq!(left.pieces(&how).count(), 1);
    assert_eq!(
        right.pieces(&how).next().map(|(range, _)| range),
        Some(3 * PAGE..8 * PAGE)
    );
}
