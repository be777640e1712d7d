//! Two workers and four spans in two regions, in every way they can share the work.
//!
//! The workers share nothing but the order in which they claim spans, so every interleaving is one order of claims and one
//! worker for each; the receipts then arrive in any order at all.

use super::accounting::{Kind, receipt};
use super::memory::Memory;
use crate::clearing::PAGE;
use crate::{Clearing, Coherent, GRANULE, Incoherent, Method, Unaccounted, account};

/// First line and number of lines; the regions are lines 0 to 4 and 8 to 12, and line 6 belongs to somebody else.
const SPANS: [(usize, usize); 4] = [(0, 2), (2, 2), (8, 3), (11, 1)];
const REGIONS: [(usize, usize); 2] = [(0, 4), (8, 4)];
const FOREIGN: (usize, usize) = (6, 1);

/// All orders of 0 to 3.
fn orders() -> Vec<[usize; 4]> {
    let mut orders = Vec::new();
    for code in 0..256 {
        let order = [code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6 & 3];
        if (0..4).all(|wanted| order.contains(&wanted)) {
            orders.push(order);
        }
    }
    assert_eq!(orders.len(), 24);
    orders
}

fn wanted(memory: &Memory) -> [(usize, usize); 2] {
    REGIONS.map(|(first, lines)| (memory.addr() + first * GRANULE, lines * GRANULE))
}

/// Clears the spans in the order of `claims`, each by the worker whose bit of `workers` says so.
fn receipts<'r>(memory: &'r mut Memory, claims: [usize; 4], workers: usize) -> Vec<Coherent<'r>> {
    let how = Clearing::new(Method::cached());
    let (zero, rest) = memory.span(0, PAGE).split_at(2 * GRANULE).expect("lines");
    let (one, rest) = rest.split_at(2 * GRANULE).expect("lines");
    let (_hole, rest) = rest.split_at(4 * GRANULE).expect("lines");
    let (two, rest) = rest.split_at(3 * GRANULE).expect("lines");
    let (three, _rest) = rest.split_at(GRANULE).expect("lines");
    let mut spans = [Some(zero), Some(one), Some(two), Some(three)];
    let mut stores = [Vec::new(), Vec::new()];
    for span in claims {
        let claimed = spans[span].take().expect("claimed once");
        stores[workers >> span & 1].push(claimed.clear(&how));
    }
    stores.into_iter().flat_map(Incoherent::fence_all).collect()
}

#[test]
fn every_interleaving_adds_up_in_every_order_of_receipts() {
    let mut memory = Memory::new(PAGE);
    let wanted = wanted(&memory);
    for claims in orders() {
        for workers in 0..16 {
            for order in orders() {
                let mut receipts: Vec<_> = receipts(&mut memory, claims, workers)
                    .into_iter()
                    .map(Some)
                    .collect();
                let ordered = order.map(|at| receipts[at].take().expect("each once"));
                let sum = account(&wanted, ordered.into());
                assert_eq!(
                    sum,
                    Ok(()),
                    "{claims:?} by {workers:04b}, receipts {order:?}"
                );
            }
        }
    }
    memory.assert_cleared(&[(0, 4 * GRANULE), (8 * GRANULE, 4 * GRANULE)], || {
        "all".to_owned()
    });
}

/// What [`account`] says to receipts for `cleared`, in lines.
fn verdict(memory: &mut Memory, cleared: &[(usize, usize)]) -> Option<(Kind, usize, usize)> {
    let receipts = cleared
        .iter()
        .map(|range| receipt(memory, *range))
        .collect();
    let error: Unaccounted = account(&wanted(memory), receipts).err()?;
    let (kind, addr, len) = Kind::of(error);
    Some((kind, (addr - memory.addr()) / GRANULE, len / GRANULE))
}

#[test]
fn one_receipt_too_few_too_many_or_beside_the_mark_is_found_in_every_order() {
    let mut memory = Memory::new(PAGE);
    for order in orders() {
        let right = order.map(|at| SPANS[at]);
        assert_eq!(verdict(&mut memory, &right), None);

        for (at, (first, lines)) in right.into_iter().enumerate() {
            let mut lost = right.to_vec();
            lost.remove(at);
            let missing = Some((Kind::Missing, first, lines));
            assert_eq!(
                verdict(&mut memory, &lost),
                missing,
                "{order:?} without {at}"
            );

            let mut shifted = right;
            shifted[at].0 += 1;
            // What it left is missing, even where it then overlaps the next span or leaves the region.
            let missing = Some((Kind::Missing, first, 1));
            assert_eq!(
                verdict(&mut memory, &shifted),
                missing,
                "{order:?}, {at} shifted"
            );

            for place in 0..=4 {
                let mut doubled = right.to_vec();
                doubled.insert(place, (first, lines));
                let twice = Some((Kind::Twice, first, lines));
                assert_eq!(
                    verdict(&mut memory, &doubled),
                    twice,
                    "{order:?}, {at} doubled"
                );
            }
        }
        for place in 0..=4 {
            let mut more = right.to_vec();
            more.insert(place, FOREIGN);
            let foreign = Some((Kind::Foreign, FOREIGN.0, FOREIGN.1));
            assert_eq!(
                verdict(&mut memory, &more),
                foreign,
                "{order:?}, one more at {place}"
            );
        }
    }
}
