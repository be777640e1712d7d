//! Runs at the same time: each has its pages or says that it has not, and free pages that are promised are not free.

use std::time::Duration;

use prezero_testkit::{Hugepages, require_kvm};

use crate::command::{Ran, Running, error_of, finish, prezero_run};
use crate::sys::Reserved;

const PAGE: u64 = 2 << 20;

#[track_caller]
fn at_once(commands: [&str; 2]) -> [Ran; 2] {
    let running = commands.map(|args| Running::start(prezero_run(args)));
    running.map(|running| running.finish_within(Duration::from_secs(20)))
}

#[test]
fn of_two_that_want_most_of_the_pool_one_gets_it() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::exactly(PAGE, 100) else {
        return;
    };
    let args = "--memory size=120M,hugepages=on,hugepage_size=2M --prealloc --verify --json";
    let mut together = 0;
    for _ in 0..20 {
        let ran = at_once([args, args]);
        let mut codes: Vec<_> = ran.iter().map(|ran| ran.status.code()).collect();
        codes.sort_unstable();
        match codes[..] {
            [Some(0), Some(3)] => together += 1,
            // One had ended before the other looked.
            [Some(0), Some(0)] => {}
            _ => panic!("{ran:#?}"),
        }
        if let Some(short) = ran.iter().find(|ran| ran.status.code() == Some(3)) {
            let report = short.json();
            let (_, message, _) = error_of(&report);
            assert!(
                message.contains("needs 60 pages of 2 MiB, has ") && message.contains("short by"),
                "{message}"
            );
        }
        pages.assert_clean();
    }
    assert!(together >= 10, "{together} of 20 were at the same time");
}

#[test]
fn pages_that_are_promised_to_another_run_are_not_free() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::exactly(PAGE, 64) else {
        return;
    };
    let before = pages.counters();
    let held = Reserved::hugepages(40 * PAGE);
    let now = pages.counters();
    assert_eq!(
        (now.free, now.reserved),
        (before.free, before.reserved + 40)
    );
    let args = "--memory size=64M,hugepages=on,hugepage_size=2M --prealloc";
    let ran = finish(prezero_run(args)).exits_with(3);
    let (error, fix) = ran.error_and_fix();
    assert!(
        error.contains("needs 32 pages of 2 MiB, has 24 free, short by 8"),
        "{error}"
    );
    let total = format!("echo {} | sudo tee ", now.total + 8);
    assert!(fix.starts_with(&total), "{fix}");
    let fits = args.replace("64M", "48M") + " --verify";
    finish(prezero_run(&fits)).exits_with(0);
    drop(held);
    pages.assert_clean();
}
