use std::hint::black_box;
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use prezero_testkit::{Refusal, Refused, skip};

use super::*;

/// PERF_COUNT_SW_TASK_CLOCK in nanoseconds, PERF_COUNT_SW_PAGE_FAULTS: every machine has them.
const TASK_CLOCK: Event = Event { kind: 1, config: 1 };
const PAGE_FAULTS: Event = Event { kind: 1, config: 2 };
const NO_SUCH_EVENT: Event = Event {
    kind: 1,
    config: 1 << 20,
};

fn group<const N: usize>(events: [Event; N], thread: libc::pid_t) -> Option<Group<N>> {
    group_of(events, Whose::Thread(thread))
}

fn group_of<const N: usize>(events: [Event; N], whose: Whose) -> Option<Group<N>> {
    match Group::open(events, whose, Scope::User) {
        Ok(group) => Some(group),
        Err(error) => {
            skip("perf", &Unavailable::here(&error, Scope::User).reason);
            None
        }
    }
}

fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        black_box(start);
    }
}

/// At least 32 page faults, whatever transparent hugepages do: of memory that malloc never has at hand
/// (above its M_MMAP_THRESHOLD).
fn fault() {
    let mut memory = vec![0_u8; 64 << 20];
    for part in memory.chunks_mut(1 << 20) {
        part[0] = black_box(1);
    }
    black_box(memory);
}

#[test]
fn a_group_counts_what_its_thread_does_and_nobody_else() {
    // A software event stands in for the hardware's, which few virtual machines have.
    let Some(group) = group([TASK_CLOCK, PAGE_FAULTS], 0) else {
        return;
    };
    let before = group.read().expect("it was opened");
    thread::spawn(|| spin(Duration::from_millis(30)))
        .join()
        .expect("it only spins");
    let slept = group.read().expect("it was opened");
    fault();
    spin(Duration::from_millis(10));
    let after = group.read().expect("it was opened");

    let [Some(clock), Some(faults)] = after.since(&slept).expect("it ran") else {
        panic!("{after:?}");
    };
    assert!(clock >= 1_000_000, "{clock} ns");
    assert!(faults >= 32, "{faults} faults");
    let [Some(clock), _] = slept.since(&before).expect("it ran") else {
        panic!("{slept:?}");
    };
    assert!(clock < 30_000_000, "another thread's {clock} ns");
}

#[test]
fn another_thread_of_this_process_is_counted_by_its_number() {
    let (tell, told) = channel();
    let (go, wait) = channel::<()>();
    let worker = thread::spawn(move || {
        tell.send(super::super::sys::thread_id()).expect("heard");
        wait.recv().expect("told to go");
        fault();
        tell.send(0).expect("heard");
        let _ = wait.recv();
    });
    let thread = told.recv().expect("it runs");
    let group = group([TASK_CLOCK, PAGE_FAULTS], thread);
    let before = group.as_ref().map(|group| group.read().expect("opened"));
    go.send(()).expect("it waits");
    told.recv().expect("it is done");
    if let Some((group, before)) = group.zip(before) {
        let counted = group.read().expect("opened").since(&before);
        let [_, Some(faults)] = counted.expect("it ran") else {
            panic!("{counted:?}");
        };
        assert!(faults >= 32, "{faults} faults");
    }
    drop(go);
    worker.join().expect("it ended");
}

#[test]
fn programs_are_counted_from_their_exec_to_their_end_with_their_children() {
    let Some(group) = group_of([TASK_CLOCK, PAGE_FAULTS], Whose::Programs) else {
        return;
    };
    let before = group.read().expect("it was opened");
    // What this thread does, and a thread that it starts, is no program's.
    fault();
    thread::spawn(fault).join().expect("it only faults");
    let none = group.read().expect("it was opened").since(&before);
    assert_eq!(none, Some([Some(0), Some(0)]));
    let run = |script: &str| {
        let mut command = Command::new("sh");
        let status = command.args(["-c", script]).status().expect("a shell");
        assert!(status.success());
        let counted = group.read().expect("it was opened").since(&before);
        let Some([Some(clock), Some(faults)]) = counted else {
            panic!("{counted:?}");
        };
        assert!(clock > 0);
        faults
    };
    let one = run("true");
    assert!(one > 16, "{one} faults of a shell");
    // Added up, and more of a shell with a child.
    let two = run("(true); /bin/true") - one;
    assert!(two > one, "{two} faults after {one}");
}

#[test]
fn an_event_that_is_not_there_leaves_the_others() {
    let Some(group) = group([TASK_CLOCK, NO_SUCH_EVENT, PAGE_FAULTS], 0) else {
        return;
    };
    let before = group.read().expect("it was opened");
    fault();
    let counted = group.read().expect("it was opened").since(&before);
    let Some([Some(_), None, Some(faults)]) = counted else {
        panic!("{counted:?}");
    };
    assert!(faults >= 32, "{faults} faults");
}

#[test]
fn a_filter_that_refuses_is_the_reason() {
    let refused = Refused::new(
        &[libc::SYS_perf_event_open],
        Refusal::Errno(u16::try_from(libc::ENOSYS).expect("small")),
    );
    let found = refused.run(|| Counters::open(&[0], Scope::User).map(drop));
    let reason = found.expect_err("it was refused").reason;
    assert!(reason.contains("CONFIG_PERF_EVENTS"), "{reason}");
}

#[test]
fn hardware_counters_count_or_say_why_not() {
    match Counters::open(&[0], Scope::User) {
        Ok(counters) => {
            let before = counters.read().expect("opened");
            spin(Duration::from_millis(5));
            let counted = counters.since(&before).expect("nobody else counts");
            assert!(counted.cycles > Some(0), "{counted:?}");
        }
        Err(unavailable) => skip("perf", &unavailable.reason),
    }
}

fn reading(values: [Option<u64>; 3], enabled: u64, running: u64) -> GroupReading<3> {
    GroupReading {
        values,
        enabled,
        running,
    }
}

#[test]
fn a_group_that_had_the_cpus_counters_for_a_part_of_the_time_is_scaled() {
    let before = reading([Some(10), None, Some(5)], 100, 50);
    let after = reading([Some(40), None, Some(6)], 300, 150);
    assert_eq!(after.since(&before), Some([Some(60), None, Some(2)]));
    // Never on the CPU: nothing can be said. A thread that did not run has done nothing.
    let never = reading([Some(10), None, Some(5)], 300, 50);
    assert_eq!(never.since(&before), None);
    assert_eq!(before.since(&before), Some([Some(0), None, Some(0)]));
}

#[test]
fn a_part_of_what_was_done_has_its_part_of_the_counts() {
    let counts = Counts::of([Some(1000), None, Some(30)]);
    assert_eq!(counts.part(9, 10), Counts::of([Some(900), None, Some(27)]));
    assert_eq!(counts.part(0, 0), Counts::of([Some(0), None, Some(0)]));
}

#[test]
fn passes_are_averaged_only_if_each_was_counted() {
    let counts = |cycles, loads| Counts::of([Some(cycles), loads, None]);
    let both = [Some(counts(10, Some(4))), Some(counts(30, Some(8)))];
    assert_eq!(Counts::mean(&both), Some(counts(20, Some(6))));
    let half = [Some(counts(10, Some(4))), Some(counts(30, None))];
    assert_eq!(Counts::mean(&half), Some(counts(20, None)));
    assert_eq!(Counts::mean(&[Some(counts(10, None)), None]), None);
    assert_eq!(Counts::mean(&[]), None);
}
