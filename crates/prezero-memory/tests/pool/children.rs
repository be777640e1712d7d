//! Processes that do something with a pool and are killed at it: ignored tests of this binary, run again.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const DIR: &str = "PREZERO_TEST_POOL";
const WORD: &str = "child: ";

/// A process of this binary. Killed on drop.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Runs the ignored test `name` on a pool.
    #[track_caller]
    pub(crate) fn start(name: &str, dir: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("path of this binary"))
            .args([
                name,
                "--exact",
                "--ignored",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(DIR, dir)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, output }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next thing it says.
    #[track_caller]
    pub(crate) fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            let read = self.output.read_line(&mut line).expect("a pipe");
            assert_ne!(read, 0, "the child ended without a word");
            if let Some(at) = line.find(WORD) {
                return line[at + WORD.len()..].trim_end().to_owned();
            }
        }
    }

    /// SIGKILL, and waits for its end.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    /// Waits for it to end by itself, and be content.
    #[track_caller]
    pub(crate) fn join(mut self) {
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}");
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// The pool that this process is to work on, if it is one of [`Process::start`].
pub(crate) fn pool_dir() -> Option<std::path::PathBuf> {
    std::env::var_os(DIR).map(Into::into)
}

/// Tells the parent something.
pub(crate) fn say(word: &str) {
    println!("\n{WORD}{word}");
}

/// Does nothing for a minute: the parent kills this process.
pub(crate) fn wait_to_be_killed() {
    std::thread::sleep(Duration::from_secs(60));
}

/// Waits for something that happens in a moment.
#[track_caller]
pub(crate) fn eventually(what: &str, mut happens: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !happens() {
        assert!(Instant::now() < deadline, "not within 10 s: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
