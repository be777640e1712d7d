//! A kernel that does not return from populating: the caller is told, second by second.

mod userfault;

use std::cell::RefCell;
use std::io::Write;
use std::time::{Duration, Instant};

use prezero_memory::{
    Cancel, Control, Host, NodeWork, Origin, PageBytes, PageSize, PopulateError, Stall, StoppedBy,
    Target, Workers, plan_workers, populate,
};
use userfault::Unanswered;

/// Several chunks of one worker.
const BYTES: u64 = 64 << 20;

fn one_worker() -> Workers {
    let work = NodeWork {
        node: 0,
        bytes: BYTES,
        pages: BYTES >> PageSize::BASE.shift(),
    };
    let plan = plan_workers(&Host::probe(), &[work], Some(1), None);
    Workers::start(&plan).expect("one thread")
}

fn target(addr: u64) -> Target {
    let len = PageBytes::new(BYTES, PageSize::BASE).expect("whole pages");
    Target {
        addr,
        len,
        node: 0,
        origin: Origin::Fresh,
    }
}

/// Calls `populate` on memory that is not there until `each`, told of every stall, drops the descriptor.
fn stalled(
    cancel: &Cancel,
    deadline: Option<Instant>,
    each: impl Fn(&Stall) -> bool,
) -> Option<(Vec<Stall>, PopulateError)> {
    let (memory, faults) = match Unanswered::new(usize::try_from(BYTES).expect("64 bits")) {
        Ok(unanswered) => unanswered,
        Err(error) => {
            // The capability is nothing that a machine can be required to have.
            let _ = writeln!(std::io::stderr(), "skipped: userfaultfd: {error}");
            return None;
        }
    };
    let (stalls, faults) = (RefCell::new(Vec::new()), RefCell::new(Some(faults)));
    let told = |stall: &Stall| {
        stalls.borrow_mut().push(stall.clone());
        if each(stall) {
            faults.borrow_mut().take();
        }
    };
    let control = Control {
        cancel: Some(cancel),
        deadline,
        stalled: Some(&told),
        ..Control::default()
    };
    let workers = one_worker();
    let result = populate(&workers, &[target(memory.addr())], &control);
    let error = result.expect_err("it was stopped before the second chunk");
    drop((workers, faults));
    Some((stalls.into_inner(), error))
}

#[test]
fn a_stall_is_told_every_second_and_whether_it_was_to_stop() {
    let (cancel, start) = (Cancel::new(), Instant::now());
    let told = stalled(&cancel, None, |stall| {
        cancel.cancel();
        stall.seconds >= 3
    });
    let Some((stalls, error)) = told else {
        return;
    };
    let elapsed = start.elapsed();
    let seconds: Vec<u64> = stalls.iter().map(|stall| stall.seconds).collect();
    // A busy machine may let one go by.
    assert!(seconds.is_sorted() && seconds[0] >= 2, "{seconds:?}");
    assert!(elapsed >= Duration::from_secs(3), "{elapsed:?}");
    for stall in &stalls {
        let [node] = stall.nodes[..] else {
            panic!("{stall:?}");
        };
        assert_eq!((node.node, node.done, node.total), (0, 0, BYTES));
    }
    let stopping: Vec<bool> = stalls
        .iter()
        .map(|stall| stall.stopping.is_some())
        .collect();
    assert!(
        !stopping[0] && stopping[1..].iter().all(|stopping| *stopping),
        "{stopping:?}"
    );
    let PopulateError::Stopped { by, nodes, .. } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(*by, StoppedBy::Cancel);
    // The chunk that hung was finished; the next one was not begun.
    assert!((1..BYTES).contains(&nodes[0].done), "{error}");
}

#[test]
fn a_deadline_during_a_stall_is_one_to_stop_for() {
    let deadline = Instant::now() + Duration::from_millis(500);
    let told = stalled(&Cancel::new(), Some(deadline), |_| true);
    let Some((stalls, error)) = told else {
        return;
    };
    assert!(
        matches!(&stalls[..], [stall] if stall.stopping.is_some() && stall.seconds >= 2),
        "{stalls:?}"
    );
    let PopulateError::Stopped { by, elapsed, .. } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(*by, StoppedBy::Deadline);
    assert!(*elapsed >= Duration::from_millis(1500), "{elapsed:?}");
    let text = error.to_string();
    assert!(
        text.starts_with("Deadline passed with ")
            && text.contains("MiB of 64 MiB populated on node 0, after ")
            && text.ends_with(" GB/s"),
        "{text}"
    );
}
