//! `--start-timeout`, and output whose length does not depend on the size of the memory.

use std::time::Duration;

use prezero_testkit::{Hugepages, require_kvm};

use crate::command::{error_of, finish, prezero_run, run};

const PAGE: u64 = 2 << 20;
const MEMORY: &str = "--memory size=512M,hugepages=on,hugepage_size=2M --prealloc --threads 1";

#[test]
fn a_start_that_takes_too_long_ends_with_how_far_it_came() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::take(PAGE, 256) else {
        return;
    };
    // Somewhere between the first page and the last; a faster machine needs less.
    let said = [40, 30, 20, 15, 10, 60, 80, 25, 35]
        .into_iter()
        .find_map(|milliseconds| {
            let args = format!("{MEMORY} --start-timeout {milliseconds}ms --json");
            let ran = run(&args);
            pages.assert_clean();
            assert!(ran.took < Duration::from_secs(3), "{ran:#?}");
            if ran.status.code() == Some(0) {
                return None;
            }
            let report = ran.exits_with(6).json();
            let (class, message, _) = error_of(&report);
            assert_eq!(class, "stopped");
            message
                .contains("populated on node")
                .then(|| message.to_owned())
        });
    let said = said.expect("no deadline fell into the populating");
    assert!(said.starts_with("Deadline passed with "), "{said}");
    for part in [" of 512 MiB populated on node 0, after ", " s at "] {
        assert!(said.contains(part), "{said}");
    }
    assert!(said.ends_with(" GB/s"), "{said}");
}

#[test]
fn a_timeout_of_nothing_stops_before_memory_is_populated_and_a_long_one_never() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::take(PAGE, 256) else {
        return;
    };
    let ran = run(&format!("{MEMORY} --start-timeout 0s --json")).exits_with(6);
    let report = ran.json();
    assert_eq!(error_of(&report).0, "stopped");
    pages.assert_clean();
    for timeout in ["1h", "1000000000years", "18446744073709551615s"] {
        let ran = run(&format!("{MEMORY} --start-timeout {timeout}"));
        assert!([Some(0), Some(2)].contains(&ran.status.code()), "{ran:#?}");
        pages.assert_clean();
    }
    run(&format!("{MEMORY} --start-timeout 5")).exits_with(2);
    run(&format!("{MEMORY} --start-timeout=-1s")).exits_with(2);
}

#[test]
fn the_log_is_as_long_for_much_memory_as_for_little() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::take(PAGE, 512) else {
        return;
    };
    for json in ["", " --json"] {
        let [little, much] = ["4M", "1G"].map(|size| {
            let memory = format!("--memory size={size},hugepages=on,hugepage_size=2M");
            let args = format!("{memory} --prealloc --verify --threads 1{json}");
            let ran = finish(prezero_run(&args)).exits_with(0);
            assert_eq!(ran.stderr, "");
            ran.stdout.lines().count()
        });
        assert_eq!(little, much);
    }
    pages.assert_clean();
}
