//! Random spans, divided at random, cleared at random.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::memory::Memory;
use crate::clearing::PAGE;
use crate::{Clearing, GRANULE, Incoherent, Method, Span, account};

const LINES: usize = 24 * PAGE / GRANULE;

#[derive(Clone, Debug)]
struct Case {
    method: Method,
    /// In pages; none is the whole span.
    chunk: Option<usize>,
    /// In bytes from the start of the memory, also outside it.
    used: Option<isize>,
    /// First line and number of lines.
    span: (usize, usize),
    /// Where the span is divided, in lines from its start, and whether what lies before is cleared.
    cuts: Vec<(usize, bool)>,
    clear_last: bool,
}

fn cases() -> impl Strategy<Value = Case> {
    let method = select(Method::available().collect::<Vec<_>>());
    let chunk = proptest::option::of(1_usize..8);
    let bytes = (LINES * GRANULE).cast_signed();
    let used = proptest::option::of(-2 * PAGE.cast_signed()..bytes + 2 * PAGE.cast_signed());
    let span = (0..LINES).prop_flat_map(|start| (Just(start), 1..=LINES - start));
    let cuts = vec((1..LINES, any::<bool>()), 0..6);
    (method, chunk, used, span, cuts, any::<bool>()).prop_map(
        |(method, chunk, used, span, mut cuts, clear_last)| {
            cuts.sort_unstable();
            cuts.dedup_by_key(|(at, _)| *at);
            cuts.retain(|(at, _)| *at < span.1);
            Case {
                method,
                chunk,
                used,
                span,
                cuts,
                clear_last,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn exactly_the_parts_that_are_cleared_are_zero(case in cases()) {
        let mut memory = Memory::new(LINES * GRANULE);
        let base = memory.addr();
        let mut how = Clearing::new(case.method);
        if let Some(pages) = case.chunk {
            how = how.in_chunks(pages * PAGE).expect("whole pages");
        }
        let mut rest = memory.span(case.span.0 * GRANULE, case.span.1 * GRANULE);
        if let Some(used) = case.used {
            rest = rest.used_next(base.wrapping_add_signed(used));
        }
        let mut parts: Vec<(Span<'_>, bool)> = Vec::new();
        let mut done = 0;
        for (at, clear) in &case.cuts {
            let (part, after) = rest.split_at((at - done) * GRANULE).expect("lines inside");
            parts.push((part, *clear));
            (rest, done) = (after, *at);
        }
        parts.push((rest, case.clear_last));
        let parts = parts.into_iter().filter(|(_, clear)| *clear).map(|(part, _)| part);
        let stores: Vec<_> = parts.map(|part| part.clear(&how)).collect();
        let cleared: Vec<_> = stores.iter().map(|it| (it.addr(), it.len())).collect();
        prop_assert_eq!(account(&cleared, Incoherent::fence_all(stores)), Ok(()));
        let cleared: Vec<_> = cleared.into_iter().map(|(addr, len)| (addr - base, len)).collect();
        memory.assert_cleared(&cleared, || format!("{case:?}"));
    }
}
