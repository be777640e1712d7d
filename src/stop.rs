//! SIGINT and SIGTERM: the first asks the run to stop and unwind, the next one ends the process.

mod sys;

use std::fs;
use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use prezero_memory::Cancel;
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;

/// A cancel flag that SIGINT and SIGTERM set, unless the caller had them ignored, as a shell does for
/// what it starts in the background.
pub(crate) fn on_signals() -> io::Result<Cancel> {
    let cancel = Cancel::new();
    let first = Arc::default();
    for signal in [SIGINT, SIGTERM] {
        if is_ignored(signal) {
            continue;
        }
        sys::register(signal, cancel.flag(), Arc::clone(&first))?;
    }
    // A result that does not fit below RLIMIT_FSIZE is then an error of write(2).
    flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
    Ok(cancel)
}

/// Ends the process after `time` with `code`, if it has not ended by then.
pub(crate) fn end_within(time: Duration, code: u8) {
    // Without the thread the process waits for whoever is to read its last words.
    let _ = thread::Builder::new().spawn(move || {
        thread::sleep(time);
        process::exit(code.into());
    });
}

/// Whether this process does not react to a signal.
pub(crate) fn is_ignored(signal: i32) -> bool {
    ignored_signals() & (1 << (signal - 1)) != 0
}

/// `SigIgn` of /proc/self/status: signal n is bit n − 1 (proc_pid_status(5)).
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
