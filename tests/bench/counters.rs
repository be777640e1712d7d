//! Hardware counters, or why there are none.

use libc::{EPERM, SYS_perf_event_open};
use prezero_testkit::{Refusal, Refused};

use crate::command::finish;
use crate::contract::{bench_clear, document, list};

const ORDINARY: &str =
    "--memory size=8M,hugepages=off --runs 2 --method cached --chunk 2M --threads 1";

#[test]
fn a_filter_that_refuses_them_is_said_and_the_figures_are_there_all_the_same() {
    let refused = || {
        Refused::new(
            &[SYS_perf_event_open],
            Refusal::Errno(u16::try_from(EPERM).expect("small")),
        )
    };
    let mut command = bench_clear(&format!("{ORDINARY} --json"));
    refused().put_on(&mut command);
    let report = document(finish(command), 0);
    assert_eq!(list(&report, "rows").len(), 1);
    let why = report["counters_unavailable"]["reason"].as_str();
    let why = why.unwrap_or_else(|| panic!("{report:#}"));

    let mut command = bench_clear(ORDINARY);
    refused().put_on(&mut command);
    let ran = finish(command).exits_with(0);
    let line = format!("\nperf counters: not available here ({why})\n  fix: ");
    assert!(ran.stdout.contains(&line), "{ran:#?}");
}
