//! SIGINT and SIGTERM end a measurement and give its memory back.

use std::thread;
use std::time::Duration;

use libc::{SIGINT, SIGTERM};
use prezero_testkit::{Hugepages, thread_names_of};

use crate::command::{Running, error_of};
use crate::contract::{bench_clear, document, list};
use crate::sys::{group_exists, kill};

/// How long it may take to end after a signal: a chunk of 32 MiB is some milliseconds' work.
const SOON: Duration = Duration::from_secs(5);

#[test]
fn a_signal_stops_a_measurement_cleanly() {
    let Some(pages) = Hugepages::take(2 << 20, 32) else {
        return;
    };
    for signal in [SIGINT, SIGTERM] {
        // So many runs that it cannot end before the signal.
        let mut running =
            Running::start(bench_clear("--memory 64M --page 2M --runs 100000 --json"));
        let pid = running.pid();
        let works = || {
            thread_names_of(pid)
                .iter()
                .any(|name| name.starts_with("prezero-n"))
        };
        while !works() {
            assert!(!running.has_ended(), "it has much to do");
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(200));
        kill(pid, signal);
        let report = document(running.finish_within(SOON), 6);
        assert!(!group_exists(pid), "a child is left");
        pages.assert_clean();
        assert_eq!(error_of(&report).0, "stopped");
        assert!(list(&report, "rows").is_empty(), "{report:#}");
    }
}
