//! Fences are counted, because a missing one shows in no other way.

use std::cell::Cell;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::memory::Memory;
use crate::{Clearing, GRANULE, Incoherent, Method};

thread_local! {
    static FENCES: Cell<usize> = const { Cell::new(0) };
}

/// Called by every fence.
pub(crate) fn count() {
    FENCES.set(FENCES.get() + 1);
}

/// How many fences `work`, which clears some lines, makes on this thread.
fn fences_of(work: impl FnOnce(Vec<Incoherent<'_>>)) -> usize {
    const LINES: usize = 5;
    let mut memory = Memory::new(LINES * GRANULE);
    let how = Clearing::new(Method::cached());
    let before = FENCES.get();
    let mut span = memory.span(0, LINES * GRANULE);
    let mut stores = Vec::new();
    while span.len() > GRANULE {
        let (line, rest) = span.split_at(GRANULE).expect("a line");
        stores.push(line.clear(&how));
        span = rest;
    }
    stores.push(span.clear(&how));
    assert_eq!(stores.len(), LINES);
    assert_eq!(FENCES.get(), before, "clearing does not fence by itself");
    work(stores);
    FENCES.get() - before
}

#[test]
fn a_fence_is_made_once_and_gives_the_receipt() {
    let fences = fences_of(|mut stores| {
        let one = stores.swap_remove(0);
        mem::forget(stores);
        let (addr, len) = (one.addr(), one.len());
        let receipt = one.fence();
        assert_eq!((receipt.addr(), receipt.len()), (addr, len));
    });
    assert_eq!(fences, 1);
}

#[test]
fn all_stores_of_a_worker_need_one_fence() {
    let fences = fences_of(|stores| {
        let wanted: Vec<_> = stores.iter().map(|it| (it.addr(), it.len())).collect();
        let receipts = Incoherent::fence_all(stores);
        let receipts: Vec<_> = receipts.iter().map(|it| (it.addr(), it.len())).collect();
        assert_eq!(receipts, wanted);
    });
    assert_eq!(fences, 1);
}

#[test]
fn no_stores_need_no_fence() {
    let fences = fences_of(|stores| {
        mem::forget(stores);
        assert!(Incoherent::fence_all(Vec::new()).is_empty());
    });
    assert_eq!(fences, 0);
}

#[test]
fn stores_that_are_dropped_are_fenced() {
    assert_eq!(fences_of(|stores| drop(stores)), 5);
}

#[test]
fn stores_of_a_worker_that_panics_are_fenced() {
    let fences = fences_of(|stores| {
        let worker = AssertUnwindSafe(|| {
            let _stores = stores;
            panic!("between clear and fence");
        });
        let message = *catch_unwind(worker)
            .expect_err("a panic")
            .downcast::<&str>()
            .expect("text");
        assert_eq!(message, "between clear and fence");
    });
    assert_eq!(fences, 5);
}
