//! Receipts against what was to be cleared.

use proptest::collection::vec;
use proptest::prelude::*;

use super::memory::Memory;
use crate::{Clearing, Coherent, GRANULE, Method, Span, Unaccounted, account};

/// A receipt for `lines` lines from line `first` on; unlike in real life, it may overlap others.
pub(crate) fn receipt<'r>(memory: &mut Memory, (first, lines): (usize, usize)) -> Coherent<'r> {
    // SAFETY: all spans of a test are cleared one after the other, on this thread, before the memory is gone; and nothing
    // is done with a receipt but to look at its address.
    let span = unsafe { Span::new(memory.at(first * GRANULE), lines * GRANULE) };
    span.expect("whole lines")
        .clear(&Clearing::new(Method::cached()))
        .fence()
}

/// [`account`] with ranges in lines.
fn account_lines(
    lines: usize,
    wanted: &[(usize, usize)],
    cleared: &[(usize, usize)],
) -> Result<(), (Kind, usize, usize)> {
    let mut memory = Memory::new(lines * GRANULE);
    let receipts = cleared
        .iter()
        .map(|range| receipt(&mut memory, *range))
        .collect();
    let base = memory.addr();
    let in_bytes = |(first, lines): &(usize, usize)| (base + first * GRANULE, lines * GRANULE);
    let wanted: Vec<_> = wanted.iter().map(in_bytes).collect();
    account(&wanted, receipts).map_err(|error| {
        let (kind, addr, len) = Kind::of(error);
        (kind, (addr - base) / GRANULE, len / GRANULE)
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Missing,
    Twice,
    Foreign,
}

impl Kind {
    pub(crate) fn of(error: Unaccounted) -> (Self, usize, usize) {
        match error {
            Unaccounted::Missing { addr, len } => (Self::Missing, addr, len),
            Unaccounted::Twice { addr, len } => (Self::Twice, addr, len),
            Unaccounted::Foreign { addr, len } => (Self::Foreign, addr, len),
        }
    }
}

#[test]
fn receipts_in_any_order_and_of_any_size_add_up() {
    assert_eq!(account_lines(1, &[], &[]), Ok(()));
    assert_eq!(account_lines(8, &[(0, 8)], &[(0, 8)]), Ok(()));
    assert_eq!(
        account_lines(8, &[(0, 8)], &[(5, 3), (0, 2), (2, 3)]),
        Ok(())
    );
    assert_eq!(
        account_lines(8, &[(6, 2), (0, 3)], &[(0, 3), (6, 1), (7, 1)]),
        Ok(())
    );
    // Two regions side by side, and a receipt across both.
    assert_eq!(account_lines(8, &[(4, 4), (0, 4)], &[(0, 8)]), Ok(()));
    assert_eq!(account_lines(8, &[(0, 4), (4, 0)], &[(0, 4)]), Ok(()));
}

#[test]
fn the_first_wrong_range_is_named() {
    use Kind::{Foreign, Missing, Twice};
    assert_eq!(account_lines(8, &[(2, 4)], &[]), Err((Missing, 2, 4)));
    assert_eq!(
        account_lines(8, &[(0, 8)], &[(0, 2), (5, 3)]),
        Err((Missing, 2, 3))
    );
    assert_eq!(
        account_lines(8, &[(0, 8)], &[(0, 5), (3, 5)]),
        Err((Twice, 3, 2))
    );
    assert_eq!(
        account_lines(8, &[(0, 2)], &[(0, 2), (0, 2), (0, 2)]),
        Err((Twice, 0, 2))
    );
    assert_eq!(account_lines(8, &[(0, 2)], &[(0, 4)]), Err((Foreign, 2, 2)));
    assert_eq!(account_lines(8, &[], &[(3, 1)]), Err((Foreign, 3, 1)));
    assert_eq!(
        account_lines(8, &[(4, 4)], &[(0, 1), (4, 4)]),
        Err((Foreign, 0, 1))
    );
    // Missing in one region and foreign behind it are two ranges.
    assert_eq!(
        account_lines(8, &[(0, 4)], &[(0, 2), (4, 2)]),
        Err((Missing, 2, 2))
    );
}

#[test]
fn a_range_that_ends_beyond_the_address_space_is_missing() {
    let addr = usize::MAX - GRANULE + 1;
    let missing = Unaccounted::Missing {
        addr,
        len: usize::MAX - addr,
    };
    assert_eq!(account(&[(addr, 2 * GRANULE)], Vec::new()), Err(missing));
}

#[test]
fn forty_thousand_receipts_add_up() {
    const LINES: usize = 40_000;
    let mut memory = Memory::new(LINES * GRANULE);
    // A stride that is prime to the number of lines visits each once.
    let cleared = (0..LINES).map(|at| (at * 7919 % LINES, 1));
    let mut receipts: Vec<_> = cleared.map(|range| receipt(&mut memory, range)).collect();
    let missing = receipts.pop().expect("some");
    let wanted = [(memory.addr(), LINES * GRANULE)];
    let error = Unaccounted::Missing {
        addr: missing.addr(),
        len: GRANULE,
    };
    assert_eq!(account(&wanted, receipts), Err(error));
    let receipts = (0..LINES)
        .rev()
        .map(|line| receipt(&mut memory, (line, 1)))
        .collect();
    assert_eq!(account(&wanted, receipts), Ok(()));
}

/// Counts receipts line by line.
fn oracle(
    lines: usize,
    wanted: &[(usize, usize)],
    cleared: &[(usize, usize)],
) -> Result<(), (Kind, usize, usize)> {
    let verdict = |line: usize| {
        let covers = |(first, lines): &&(usize, usize)| (*first..first + lines).contains(&line);
        let wanted = wanted.iter().any(|range| covers(&range));
        match (wanted, cleared.iter().filter(covers).count()) {
            (true, 1) | (false, 0) => None,
            (true, 0) => Some(Kind::Missing),
            (true, _) => Some(Kind::Twice),
            (false, _) => Some(Kind::Foreign),
        }
    };
    let Some(first) = (0..lines).find(|line| verdict(*line).is_some()) else {
        return Ok(());
    };
    let end = (first..lines).find(|line| verdict(*line) != verdict(first));
    let kind = verdict(first).expect("just found");
    Err((kind, first, end.unwrap_or(lines) - first))
}

const LINES: usize = 40;

/// Divides `0..LINES` at the cuts and leaves out the parts that are not kept.
fn parts(mut cuts: Vec<(usize, bool)>) -> Vec<(usize, usize)> {
    cuts.push((LINES, true));
    cuts.sort_unstable();
    let mut start = 0;
    let mut parts = Vec::new();
    for (at, keep) in cuts {
        if keep && at > start {
            parts.push((start, at - start));
        }
        start = at;
    }
    parts
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_receipts_are_judged_as_if_counted_line_by_line(
        wanted in vec((1..LINES, any::<bool>()), 0..6).prop_map(parts),
        cleared in vec((0..LINES).prop_flat_map(|at| (Just(at), 1..=(LINES - at).min(9))), 0..8),
    ) {
        prop_assert_eq!(account_lines(LINES, &wanted, &cleared), oracle(LINES, &wanted, &cleared));
    }

    /// Closer to what happens: the wanted ranges, divided, with perhaps one receipt too many or too few.
    #[test]
    fn nearly_right_receipts_are_judged_as_if_counted_line_by_line(
        wanted in vec((1..LINES, any::<bool>()), 0..5).prop_map(parts),
        cuts in vec(1..LINES, 0..5),
        lost in any::<prop::sample::Index>(),
        change in 0..3,
    ) {
        let mut cleared = wanted.clone();
        for cut in cuts {
            if let Some(at) = cleared.iter().position(|(first, lines)| *first < cut && cut < first + lines) {
                let (first, lines) = cleared.swap_remove(at);
                cleared.extend([(first, cut - first), (cut, first + lines - cut)]);
            }
        }
        match change {
            1 if !cleared.is_empty() => _ = cleared.swap_remove(lost.index(cleared.len())),
            2 if !cleared.is_empty() => cleared.push(cleared[lost.index(cleared.len())]),
            _ => {}
        }
        let verdict = account_lines(LINES, &wanted, &cleared);
        prop_assert_eq!(verdict, oracle(LINES, &wanted, &cleared));
        prop_assert_eq!(verdict.is_ok(), change == 0 || cleared.is_empty() && wanted.is_empty());
    }
}
