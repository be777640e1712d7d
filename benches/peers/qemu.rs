//! One start of QEMU, on hugepages that it preallocates or on a segment of a pool.
//!
//! The monitor greets as soon as the memory is there, before the virtual CPUs are reset: what QEMU does after that is not
//! in its time.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::{Result, sys};

pub(crate) const PROGRAM: &str = "qemu-system-x86_64";

/// Who touches the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prealloc {
    /// QEMU's default.
    OneThread,
    /// QEMU at its best (from 7.2): as many threads as CPUs, kept on them.
    Pinned(usize),
}

/// The version line, None where QEMU is not installed.
pub(crate) fn version() -> Option<String> {
    let output = Command::new(PROGRAM)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .next()
        .map(str::to_owned)
}

/// One start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    /// From exec to the greeting.
    pub(crate) seconds: f64,
    /// The most memory that was resident at once, in bytes, without hugepages.
    pub(crate) peak_rss: u64,
}

/// Starts QEMU, waits for its greeting, and ends it.
pub(crate) fn until_greeting(mut command: Command) -> Result<Start> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let start = Instant::now();
    let mut qemu = Qemu(Some(command.spawn()?));
    let seconds = qemu
        .wait_for_greeting()
        .map(|()| start.elapsed().as_secs_f64())?;
    let peak_rss = qemu.quit()?;
    Ok(Start { seconds, peak_rss })
}

/// QEMU with `size` bytes of fresh hugepages, touched before its guest starts.
pub(crate) fn preallocated(size: u64, prealloc: Prealloc) -> Command {
    let mut command = Command::new(PROGRAM);
    let mut backend = format!("memory-backend-memfd,hugetlb=on,hugetlbsize=2M,size={size}");
    backend.push_str(",prealloc=on");
    match prealloc {
        Prealloc::OneThread => backend.push_str(",prealloc-threads=1"),
        Prealloc::Pinned(cpus) => {
            let last = cpus.saturating_sub(1);
            let threads = format!("thread-context,id=tc,cpu-affinity=0-{last}");
            command.args(["-object", &threads]);
            backend.push_str(&format!(",prealloc-threads={cpus},prealloc-context=tc"));
        }
    }
    machine(&mut command, size, &backend);
    command
}

/// QEMU, started by `prezero exec` on a segment of `size` bytes.
pub(crate) fn on_segment(pool: &Path, size: u64) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_prezero"));
    command.arg("exec").arg("--pool").arg(pool);
    command.args(["--memory", &size.to_string(), "--", PROGRAM]);
    machine(
        &mut command,
        size,
        "memory-backend-file,size={size},mem-path={path}",
    );
    command
}

/// A machine whose guest does not start, on this memory.
fn machine(command: &mut Command, size: u64, backend: &str) {
    command.args(["-object", &format!("{backend},id=mem,share=on")]);
    command.args(["-machine", "q35,memory-backend=mem", "-accel", "kvm", "-S"]);
    // On AMD hosts that are virtual machines, KVM offers this feature's MSR and refuses it, and QEMU 7.2 aborts.
    command.args(["-cpu", "host,-arch-capabilities"]);
    command.args(["-display", "none", "-nodefaults", "-qmp", "stdio"]);
    command.args(["-m", &format!("{}M", size >> 20)]);
}

/// A QEMU that does not outlive the benchmark.
struct Qemu(Option<Child>);

impl Qemu {
    fn wait_for_greeting(&mut self) -> Result<()> {
        let stdout = self
            .0
            .as_mut()
            .and_then(|child| child.stdout.as_mut())
            .ok_or("QEMU has no output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        if line.contains("\"QMP\"") {
            return Ok(());
        }
        Err(format!("{PROGRAM} ended without a greeting; its own words are above").into())
    }

    /// Ends QEMU by a monitor command and returns its peak resident set in bytes.
    fn quit(&mut self) -> Result<u64> {
        let stdin = self
            .0
            .as_mut()
            .and_then(|child| child.stdin.as_mut())
            .ok_or("QEMU has no input")?;
        stdin.write_all(b"{\"execute\":\"qmp_capabilities\"}{\"execute\":\"quit\"}\n")?;
        let child = self.0.take().ok_or("QEMU has ended already")?;
        let (status, peak_rss) = sys::wait_with_peak_rss(child)?;
        if !status.success() {
            return Err(format!("{PROGRAM}: {status}").into());
        }
        Ok(peak_rss)
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // It has failed before; there is nothing to add.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
