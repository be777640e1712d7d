//! Starting the command, and what comes of it.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Longer than any run here takes on a busy machine; a run that hangs is killed then.
const PATIENCE: Duration = Duration::from_secs(60);

/// The command with its arguments, split at spaces.
pub(crate) fn prezero(args: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_prezero"));
    command.args(args.split_whitespace());
    command
}

/// The same for `prezero run`.
pub(crate) fn prezero_run(args: &str) -> Command {
    prezero(&format!("run {args}"))
}

/// The same below a limit, or anything else that bash sets up before it becomes the command.
pub(crate) fn prezero_run_after(setup: &str, args: &str) -> Command {
    let mut command = Command::new("bash");
    let script = format!("{setup} exec \"$0\" run {args}");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_prezero")]);
    command
}

/// Runs `prezero run` to its end.
#[track_caller]
pub(crate) fn run(args: &str) -> Ran {
    finish(prezero_run(args))
}

/// Runs a command to its end.
#[track_caller]
pub(crate) fn finish(command: Command) -> Ran {
    Running::start(command).finish_within(PATIENCE)
}

/// A command that runs, in a process group of its own; killed on drop.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    start: Instant,
    output: [Option<JoinHandle<String>>; 2],
}

impl Running {
    #[track_caller]
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped());
        Self::start_with_stdout_as_set(command)
    }

    #[track_caller]
    pub(crate) fn start_with_stdout_as_set(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        let start = Instant::now();
        let child = command.process_group(0).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        // Read all the while: on a large machine a report is longer than a pipe.
        let output = [child.stdout.take().map(read), child.stderr.take().map(read)];
        Self {
            child,
            start,
            output,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child
            .try_wait()
            .expect("a child can be waited for")
            .is_some()
    }

    /// Waits for the end of the process.
    ///
    /// # Panics
    ///
    /// When it takes longer than `patience`, or when the command panicked.
    #[track_caller]
    pub(crate) fn finish_within(mut self, patience: Duration) -> Ran {
        let deadline = Instant::now() + patience;
        while !self.has_ended() {
            assert!(
                Instant::now() < deadline,
                "still running after {patience:?}"
            );
            thread::sleep(Duration::from_millis(1));
        }
        let took = self.start.elapsed();
        let status = self.child.wait().expect("it has ended");
        let [stdout, stderr] = [0, 1].map(|n| match self.output[n].take() {
            Some(reader) => reader.join().expect("a pipe can be read"),
            None => String::new(),
        });
        let ran = Ran {
            status,
            stdout,
            stderr,
            took,
        };
        assert!(!ran.stderr.contains("panicked"), "{ran:#?}");
        ran
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail where it has been waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut text = String::new();
        pipe.read_to_string(&mut text)
            .expect("the command writes UTF-8");
        text
    })
}

/// How a command ended, and what it wrote.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// From before the process was made.
    pub(crate) took: Duration,
}

impl Ran {
    /// Checks that it ended by itself, with `code`.
    #[track_caller]
    pub(crate) fn exits_with(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "{self:#?}");
        self
    }

    pub(crate) fn signal(&self) -> Option<i32> {
        self.status.signal()
    }

    /// The one document on stdout.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        // It refuses anything behind the first document but white space.
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    /// Message and fix of a failure in text mode: the last two lines of stderr.
    #[track_caller]
    pub(crate) fn error_and_fix(&self) -> (&str, &str) {
        let lines: Vec<&str> = self.stderr.lines().collect();
        if let [.., error, fix] = &lines[..]
            && let Some(error) = error.strip_prefix("error: ")
            && let Some(fix) = fix.strip_prefix("  fix: ")
        {
            assert!(!error.is_empty() && !fix.is_empty(), "{self:#?}");
            return (error, fix);
        }
        panic!("not an error with a fix: {self:#?}");
    }
}

/// Class, message and fix of a document's error.
#[track_caller]
pub(crate) fn error_of(report: &Value) -> (&str, &str, Option<&str>) {
    let text = |key: &str| report["error"][key].as_str();
    let (Some(class), Some(message)) = (text("class"), text("message")) else {
        panic!("no class or no message: {report:#}");
    };
    (class, message, text("fix"))
}

/// A copy of the command that every user can run, wherever it was built.
#[derive(Debug)]
pub(crate) struct PublicCopy(PathBuf);

impl PublicCopy {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("prezero-run-test-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir(&dir).expect("a new directory");
        let copy = Self(dir);
        // Whatever the umask says.
        for (path, source) in [
            (&copy.0, None),
            (&copy.binary(), Some(env!("CARGO_BIN_EXE_prezero"))),
        ] {
            if let Some(source) = source {
                fs::copy(source, path).expect("the binary can be copied");
            }
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        }
        copy
    }

    pub(crate) fn binary(&self) -> PathBuf {
        self.0.join("prezero")
    }
}

impl Drop for PublicCopy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
