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

/// The names of this process's threads, each at most 15 bytes long (`/proc/self/task/*/comm`, proc_pid_comm(5)).
///
/// # Panics
///
/// When /proc cannot be read.
#[must_use]
#[track_caller]
pub fn thread_names() -> Vec<String> {
    thread_names_of(std::process::id())
}

/// The names of a process's threads.
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
        .filter_map(|task| fs::read_to_string(task.path().join("comm")).ok())
        .map(|name| name.trim_end().to_owned())
        .collect()
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
