//! The command: runs of it, and what its documents say.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::peers::Result;

/// The command, not started. It reads nothing, and its warnings are shown.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_prezero"));
    command.args(args).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::inherit());
    command
}

/// The document of a command that succeeds.
pub(crate) fn document(mut command: Command) -> Result<Value> {
    let output = command.output()?;
    match output.status.success() {
        true => Ok(serde_json::from_slice(&output.stdout)?),
        false => Err(format!("{command:?}: {}", output.status).into()),
    }
}

/// One run: how long each of its parts took, in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    report: Value,
}

/// Starts a guest with this memory, on segments of a pool if one is given.
pub(crate) fn run(memory: &str, pool: Option<&Path>) -> Result<Run> {
    let mut command = command(&["run", "--memory", memory, "--prealloc", "--json", "--pool"]);
    command.arg(pool.unwrap_or(Path::new("none")));
    let report = document(command)?;
    Ok(Run { report })
}

impl Run {
    fn phases(&self, names: &[&str]) -> f64 {
        let phases = self.report["phases"].as_array().into_iter().flatten();
        let named = phases.filter(|phase| names.iter().any(|name| phase["name"] == *name));
        let ns: u64 = named.filter_map(|phase| phase["ns"].as_u64()).sum();
        ns as f64 / 1e6
    }

    /// From the start of main to the last slot.
    pub(crate) fn created(&self) -> f64 {
        self.report["creation_ns"].as_f64().unwrap_or(f64::NAN) / 1e6
    }

    /// KVM's own share: its ioctls.
    pub(crate) fn kvm(&self) -> f64 {
        self.phases(&["kvm", "register"])
    }

    /// Finding, locking and renaming segments.
    pub(crate) fn lease(&self) -> f64 {
        self.phases(&["lease"])
    }

    /// Mapping the memory and faulting it in, by which the kernel clears it if it is fresh.
    pub(crate) fn mapping(&self) -> f64 {
        self.phases(&["reserve", "populate"])
    }

    /// What the kernel clears is part of this, and nothing else of note.
    pub(crate) fn populate(&self) -> f64 {
        self.phases(&["populate"])
    }

    /// Clearing by this process, with the choice of how.
    pub(crate) fn clear(&self) -> f64 {
        self.phases(&["calibrate", "clear"])
    }

    /// Facts of the host, the plan, the check of the placement.
    pub(crate) fn rest(&self) -> f64 {
        self.created() - self.kvm() - self.lease() - self.mapping() - self.clear()
    }

    /// For a record.
    pub(crate) fn json(&self) -> Value {
        json!({ "creation_ns": self.report["creation_ns"], "phases": self.report["phases"] })
    }
}
