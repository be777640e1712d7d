//! One run of `prezero run --prealloc`.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use crate::Sample;
use crate::peers::{Result, sys};

/// What the command's JSON document says about its own run.
#[derive(Debug, Clone)]
pub(crate) struct Details {
    /// Start of main to the last slot registered, in nanoseconds.
    pub(crate) creation_ns: u64,
    /// Start of main to the guest's first port write, in nanoseconds.
    pub(crate) first_instruction_ns: u64,
    /// Name, nanoseconds and bytes, in their order.
    pub(crate) phases: Vec<(String, u64, u64)>,
}

impl Details {
    fn parse(document: &Value) -> Option<Self> {
        let phases = document["phases"].as_array()?.iter().map(|phase| {
            let name = phase["name"].as_str()?.to_owned();
            Some((name, phase["ns"].as_u64()?, phase["bytes"].as_u64()?))
        });
        Some(Self {
            creation_ns: document["creation_ns"].as_u64()?,
            first_instruction_ns: document["first_instruction_ns"].as_u64()?,
            phases: phases.collect::<Option<_>>()?,
        })
    }

    /// Bytes per nanosecond, that is GB/s, of the populate phase.
    pub(crate) fn populate_bandwidth(&self) -> Option<f64> {
        let (_, ns, bytes) = self.phases.iter().find(|(name, ..)| name == "populate")?;
        Some(*bytes as f64 / *ns as f64)
    }

    /// What creation takes besides the kernel's clearing and KVM's own work, in seconds.
    pub(crate) fn own_seconds(&self) -> f64 {
        let kernels = ["populate", "register", "kvm"];
        let phases = self
            .phases
            .iter()
            .filter(|(name, ..)| kernels.contains(&name.as_str()));
        let theirs: u64 = phases.map(|(_, ns, _)| ns).sum();
        self.creation_ns.saturating_sub(theirs) as f64 / 1e9
    }
}

/// Starts the command for `size` bytes on hugepages and waits for its end.
pub(crate) fn run(size: u64, threads: Option<usize>) -> Result<Sample> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_prezero"));
    command.args([
        "run",
        "--memory",
        &format!("size={size},hugepages=on"),
        "--prealloc",
        "--json",
    ]);
    if let Some(threads) = threads {
        command.args(["--threads", &threads.to_string()]);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let start = Instant::now();
    let mut child = command.spawn()?;
    let mut output = String::new();
    if let Some(stdout) = &mut child.stdout {
        stdout.read_to_string(&mut output)?;
    }
    let (status, peak_rss) = sys::wait_with_peak_rss(child)?;
    let seconds = start.elapsed().as_secs_f64();
    if !status.success() {
        return Err(format!("{command:?}: {status}\n{output}").into());
    }
    let document =
        serde_json::from_str(&output).map_err(|error| format!("{command:?}: {error}"))?;
    let details =
        Details::parse(&document).ok_or(format!("{command:?}: a field is missing\n{output}"))?;
    Ok(Sample {
        seconds,
        peak_rss,
        details: Some(details),
    })
}
