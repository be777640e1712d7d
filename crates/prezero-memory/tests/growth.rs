//! Growing the pools of this machine: exactly what is missing is added, and exactly that is given
//! back.

mod growths;
mod requests;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use growths::{PAGE, State, more, operator, pool};
use prezero_memory::{Cancel, Class, Control, Growth, PageSize, PoolNeed, leftovers};
use requests::{eager, huge, planned, zeroed};

#[test]
fn adds_exactly_what_is_missing_and_gives_it_back() {
    let Some((guard, before)) = pool(PAGE) else {
        return;
    };
    let state = State::new();
    let growth = state.grow(&[more(PAGE, 16)]).expect("32 MiB");
    let [grown] = growth.grown() else {
        panic!("{growth:?}")
    };
    assert_eq!((grown.page, grown.node), (PAGE, None));
    assert_eq!((grown.asked, grown.got), (16, 16));
    let now = guard.counters();
    assert_eq!(now.total, before.total + 16);
    assert_eq!(now.available(), before.available() + 16);
    assert_eq!(state.journals().len(), 1);
    assert_eq!(leftovers(&state.dir()).expect("readable"), [], "we live");
    growth.give_back().expect("given back");
    assert_eq!(guard.counters(), before);
    assert_eq!(state.journals(), [""; 0]);
}

#[test]
fn a_node_s_pool_is_grown_where_a_node_is_asked_for() {
    let Some((guard, before)) = pool(PAGE) else {
        return;
    };
    let node = Path::new("/sys/devices/system/node/node0/hugepages/hugepages-2048kB");
    if !node.is_dir() {
        return;
    }
    let free = fs::read_to_string(node.join("free_hugepages")).expect("readable");
    let free: u64 = free.trim().parse().expect("a number");
    let state = State::new();
    let need = PoolNeed {
        page: PAGE,
        node: Some(0),
        pages: free + 5,
    };
    let growth = state.grow(&[need]).expect("ten MiB");
    let now = fs::read_to_string(node.join("free_hugepages")).expect("readable");
    let added = need.pages - free.min(before.available());
    assert_eq!(growth.grown()[0].asked, added);
    assert_eq!(now.trim().parse(), Ok(free + added));
    assert_eq!(guard.counters().total, before.total + added);
    drop(growth);
    assert_eq!(guard.counters(), before);
}

#[test]
fn the_memory_fits_and_the_pages_go_when_it_is_dropped() {
    let Some((guard, before)) = pool(PAGE) else {
        return;
    };
    let state = State::new();
    let need = PoolNeed {
        page: PAGE,
        node: None,
        pages: before.available() + 32,
    };
    let mut growth = state.grow(&[need]).expect("64 MiB");
    let ram = zeroed(&planned(&eager(&[&huge(need.pages)])));
    growth.settled();
    assert_eq!(guard.counters().available(), 0);
    drop(ram);
    drop(growth);
    guard.assert_clean();
}

#[test]
fn nothing_missing_writes_nothing() {
    let Some((guard, before)) = pool(PAGE) else {
        return;
    };
    let state = State::new();
    let growth = state.grow(&[more(PAGE, 0)]).expect("they are there");
    assert_eq!(growth.grown(), []);
    assert_eq!(state.journals(), [""; 0]);
    // Somebody who takes pages away meanwhile keeps them.
    operator(1);
    drop(growth);
    assert_eq!(guard.counters().total, before.total + 1);
    operator(-1);
}

#[test]
fn overlapping_growths_and_an_operator_do_not_undo_each_other() {
    let Some((guard, before)) = pool(PAGE) else {
        return;
    };
    for (first_goes_first, change) in [(true, 7), (false, 7), (true, -4), (false, -4)] {
        let state = State::new();
        let mut first = state.grow(&[more(PAGE, 16)]).expect("32 MiB");
        first.settled();
        operator(change);
        let mut second = state.grow(&[more(PAGE, 9)]).expect("18 MiB");
        second.settled();
        let total = before.total.checked_add_signed(change + 25);
        assert_eq!(Some(guard.counters().total), total);
        let (one, other) = match first_goes_first {
            true => (first, second),
            false => (second, first),
        };
        one.give_back().expect("given back");
        drop(other);
        let total = guard.counters().total;
        // What was taken from an empty pool is not there to be taken.
        let end = before.total.saturating_add_signed(change);
        assert_eq!(total, end, "{first_goes_first} {change}");
        operator(i64::try_from(before.total).expect("few") - i64::try_from(total).expect("few"));
        assert_eq!(state.journals(), [""; 0]);
    }
    assert_eq!(guard.counters(), before);
}

#[test]
fn a_panic_gives_back() {
    let Some((guard, before)) = pool(PAGE) else {
        return;
    };
    let state = State::new();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _growth = state.grow(&[more(PAGE, 8)]).expect("16 MiB");
        assert_ne!(guard.counters(), before);
        panic!("a defect");
    }));
    let text = panicked.expect_err("panicked");
    assert_eq!(text.downcast_ref(), Some(&"a defect"));
    assert_eq!(guard.counters(), before);
    assert_eq!(state.journals(), [""; 0]);
}

#[test]
fn a_second_growth_waits_until_the_first_is_settled() {
    let Some((guard, before)) = pool(PAGE) else {
        return;
    };
    let state = State::new();
    let mut first = state.grow(&[more(PAGE, 8)]).expect("16 MiB");
    thread::scope(|scope| {
        let (send, receive) = mpsc::channel();
        let state = &state;
        scope.spawn(move || {
            // The first one's pages are available, so that nothing is missing.
            let second = state.grow(&[more(PAGE, 0)]);
            send.send(second).expect("received");
        });
        let early = receive.recv_timeout(Duration::from_millis(100));
        early.expect_err("it waits");
        first.settled();
        let second = receive.recv_timeout(Duration::from_secs(10));
        let second = second.expect("in time").expect("nothing to add");
        assert_eq!(second.grown(), []);
    });
    drop(first);
    assert_eq!(guard.counters(), before);
}

#[test]
fn waiting_for_another_growth_ends_when_cancelled() {
    let Some((guard, before)) = pool(PAGE) else {
        return;
    };
    let state = State::new();
    let first = state.grow(&[more(PAGE, 8)]).expect("16 MiB");
    let cancel = Cancel::new();
    thread::scope(|scope| {
        let second = scope.spawn(|| {
            let control = Control {
                cancel: Some(&cancel),
                ..Control::default()
            };
            Growth::grow(Path::new("/"), &state.dir(), &[more(PAGE, 8)], &control)
        });
        thread::sleep(Duration::from_millis(30));
        cancel.cancel();
        let error = second.join().expect("no panic").expect_err("cancelled");
        assert_eq!(error.class(), Class::Stopped, "{error}");
    });
    drop(first);
    assert_eq!(guard.counters(), before);
}

#[test]
fn a_pool_of_1_gib_pages_behaves_the_same() {
    let page = PageSize::HUGE_1G;
    let Some((guard, before)) = pool(page) else {
        return;
    };
    let state = State::new();
    let growth = match state.grow(&[more(page, 1)]) {
        Ok(growth) => growth,
        // No free range, or too little memory: then it is said so and nothing has changed.
        Err(error) => {
            assert_eq!(error.class(), Class::Shortage, "{error}");
            assert_eq!(guard.counters(), before);
            return eprintln!("skipped: no page of 1 GiB: {error}");
        }
    };
    assert_eq!(guard.counters().total, before.total + 1);
    drop(growth);
    assert_eq!(guard.counters(), before);
}
