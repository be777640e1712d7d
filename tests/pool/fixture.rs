//! A pool on a mount of the test's own, worked on with the command.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use prezero_testkit::{Hugepages, PrivateMount};
use serde_json::Value;

use crate::command::{Ran, Running, finish, prezero};
use crate::sys::{View, kill_group};

/// Bytes of a page.
pub(crate) const PAGE: u64 = 2 << 20;
/// Bytes of a segment.
pub(crate) const SEGMENT: u64 = 4 << 20;

/// Hugepages, and a mount for a pool of them. The pages are counted after the mount is gone.
#[derive(Debug)]
pub(crate) struct Fixture {
    mount: PrivateMount,
    pub(crate) pages: Hugepages,
}

impl Fixture {
    /// None, after a skip, where the machine lacks something.
    #[track_caller]
    pub(crate) fn new(pages: u64) -> Option<Self> {
        let pages = Hugepages::take(PAGE, pages)?;
        let mount = PrivateMount::hugetlbfs(PAGE)?;
        Some(Self { mount, pages })
    }

    /// One that has a pool of so many segments.
    #[track_caller]
    pub(crate) fn with_pool(segments: u64) -> Option<Self> {
        let fixture = Self::new(segments * SEGMENT / PAGE)?;
        fixture.pool("create", &size_of(segments)).exits_with(0);
        Some(fixture)
    }

    pub(crate) fn mount(&self) -> &Path {
        self.mount.path()
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.mount.path().join("pool")
    }

    /// `prezero pool WHAT` on the pool, not started.
    pub(crate) fn command(&self, what: &str, args: &str) -> Command {
        prezero(&format!("pool {what} {} {args}", self.dir().display()))
    }

    /// Runs it to its end.
    #[track_caller]
    pub(crate) fn pool(&self, what: &str, args: &str) -> Ran {
        finish(self.command(what, args))
    }

    /// `prezero exec` on a segment, not started. The command is not split.
    pub(crate) fn exec(&self, options: &str, command: &[&str]) -> Command {
        let pool = self.dir();
        let mut exec = prezero(&format!("exec --pool {} {options} --", pool.display()));
        exec.args(command);
        exec
    }

    /// The document of `status`.
    #[track_caller]
    pub(crate) fn status(&self) -> Value {
        self.pool("status", "--json").exits_with(0).json()
    }

    /// How many segments are free and clean, free and dirty, leased, retired, incomplete.
    #[track_caller]
    pub(crate) fn counts(&self) -> [u64; 5] {
        let status = self.status();
        let totals = status["totals"].as_array().expect("a list");
        ["clean", "dirty", "leased", "retired", "incomplete"].map(|state| {
            let of = |total: &Value| total[state]["segments"].as_u64().expect("a number");
            totals.iter().map(of).sum()
        })
    }

    /// The paths of all segments.
    #[track_caller]
    pub(crate) fn segments(&self) -> Vec<PathBuf> {
        let status = self.status();
        let segments = status["segments"].as_array().expect("a list").iter();
        segments
            .map(|segment| segment["path"].as_str().expect("a path").into())
            .collect()
    }

    /// Makes all segments dirty, and their bytes not zero.
    #[track_caller]
    pub(crate) fn stain_all(&self) {
        for path in self.segments() {
            View::of(&path).fill(0xa5);
            let dirty = path.with_extension("dirty");
            std::fs::rename(&path, dirty).expect("a free name");
        }
    }

    /// How many of the segments that are said to be clean are not zero.
    #[track_caller]
    pub(crate) fn lies(&self) -> usize {
        let clean = self.segments().into_iter();
        let clean = clean.filter(|path| path.extension() == Some("clean".as_ref()));
        clean.filter(|path| View::of(path).stained() > 0).count()
    }
}

/// `prezero exec` with its command, in a process group of their own; the group is killed on drop.
#[derive(Debug)]
pub(crate) struct Supervised {
    running: Option<Running>,
    group: u32,
}

impl Supervised {
    /// Started, and one more segment leased than before.
    #[track_caller]
    pub(crate) fn start(fixture: &Fixture, options: &str, command: &[&str]) -> Self {
        let leased = fixture.counts()[2];
        let running = Running::start(fixture.exec(options, command));
        let group = running.pid();
        let supervised = Self {
            running: Some(running),
            group,
        };
        eventually("the command runs on its segment", || {
            let started = supervised.find(|comm| comm != "prezero").is_some();
            started && fixture.counts()[2] > leased
        });
        supervised
    }

    /// prezero's own process.
    pub(crate) fn pid(&self) -> u32 {
        self.group
    }

    /// The process of this name, or 15 bytes of it, in the group.
    pub(crate) fn child(&self, name: &str) -> Option<u32> {
        self.find(|comm| comm == &name[..name.len().min(15)])
    }

    fn find(&self, wanted: impl Fn(&str) -> bool) -> Option<u32> {
        let pids = std::fs::read_dir("/proc").expect("/proc").flatten();
        let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.find(|pid: &u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            // pid (comm) state ppid pgrp
            let Some((start, rest)) = stat.rsplit_once(") ") else {
                return false;
            };
            let comm = start.split_once('(').map_or("", |(_, comm)| comm);
            let group = rest.split(' ').nth(2).and_then(|group| group.parse().ok());
            group == Some(self.group) && wanted(comm)
        })
    }

    /// Waits for the end of prezero.
    #[track_caller]
    pub(crate) fn finish(mut self) -> Ran {
        let running = self.running.take().expect("not finished yet");
        running.finish_within(Duration::from_secs(20))
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        drop(self.running.take());
        // What is left of the group keeps the mount and its pages.
        let deadline = Instant::now() + Duration::from_secs(2);
        while kill_group(self.group) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The options for so many segments.
pub(crate) fn size_of(segments: u64) -> String {
    format!("--size {} --segment {SEGMENT}", segments * SEGMENT)
}

/// Waits for something that happens in a moment.
#[track_caller]
pub(crate) fn eventually(what: &str, mut happens: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !happens() {
        assert!(Instant::now() < deadline, "not within 20 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
