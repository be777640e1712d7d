//! What a process has mapped, running and open, from /proc: to see that nothing stays behind.

use std::fs;
use std::path::PathBuf;

/// Lines of `/proc/self/maps` that contain `needle`.
///
/// # Panics
///
/// When /proc cannot be read.
#[must_use]
#[track_caller]
pub fn maps_containing(needle: &str) -> Vec<String> {
    maps_containing_of(std::process::id(), needle)
}

/// Lines of `/proc/PID/maps` that contain `needle`.
///
/// # Panics
///
/// When there is no such process, or it belongs to somebody else.
#[must_use]
#[track_caller]
pub fn maps_containing_of(pid: u32, needle: &str) -> Vec<String> {
    let path = proc(pid, "maps");
    let maps = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    maps.lines()
        .filter(|line| line.contains(needle))
        .map(str::to_owned)
        .collect()
}

/// The names of this process's threads, each at most 15 bytes long (proc_pid_comm(5)).
///
/// # Panics
///
/// When /proc cannot be read.
#[must_use]
#[track_caller]
pub fn thread_names() -> Vec<String> {
    thread_names_of(std::process::id())
}

/// The names of a process's threads, without those that are about to be gone: pthread_join(3) returns before the
/// kernel has taken a thread from the list.
///
/// # Panics
///
/// When there is no such process.
#[must_use]
#[track_caller]
pub fn thread_names_of(pid: u32) -> Vec<String> {
    let path = proc(pid, "task");
    let tasks = fs::read_dir(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    // A thread may end between the listing and the reading.
    tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("stat")).ok())
        .filter_map(|stat| living(&stat).map(str::to_owned))
        .collect()
}

/// The name in `/proc/PID/task/TID/stat` (proc_pid_stat(5)) of a thread that is not exiting.
fn living(stat: &str) -> Option<&str> {
    /// The kernel's include/linux/sched.h.
    const PF_EXITING: u64 = 0x4;
    let (before, after) = stat.rsplit_once(')').expect("a name in brackets");
    let (_, name) = before.split_once('(').expect("a name in brackets");
    // The state follows the name; the flags are the ninth of all fields.
    let flags: u64 = after
        .split_ascii_whitespace()
        .nth(6)
        .and_then(|flags| flags.parse().ok())
        .expect("a number of flags");
    (flags & PF_EXITING == 0).then_some(name)
}

/// How many descriptors this process has open, without the one that counting them needs.
///
/// # Panics
///
/// When /proc cannot be read.
#[must_use]
#[track_caller]
pub fn open_fds() -> usize {
    open_fds_of(std::process::id()) - 1
}

/// How many descriptors a process has open.
///
/// # Panics
///
/// When there is no such process, or it belongs to somebody else.
#[must_use]
#[track_caller]
pub fn open_fds_of(pid: u32) -> usize {
    let path = proc(pid, "fd");
    fs::read_dir(&path)
        .unwrap_or_else(|error| panic!("{path:?}: {error}"))
        .count()
}

fn proc(pid: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}
