//! The machine that the figures belong to.

use std::fs;
use std::io;
use std::thread;

use prezero_testkit::Pool;
use serde_json::{Value, json};

use super::{PAGE, qemu};

/// What the machine keeps when the size is not given, in bytes.
const HEADROOM: u64 = 2 << 30;

/// What a reader has to know to compare figures.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
    /// Whether this machine is itself a virtual one.
    pub(crate) hypervisor: bool,
    pub(crate) kernel: String,
    /// Bytes.
    pub(crate) memory: u64,
    /// Bytes that a measurement could have, hugepages included.
    available: u64,
    pub(crate) qemu: Option<String>,
}

impl Machine {
    pub(crate) fn look() -> io::Result<Self> {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo")?;
        let meminfo = fs::read_to_string("/proc/meminfo")?;
        let kib = |name| {
            field(&meminfo, name)
                .trim_end_matches(" kB")
                .parse::<u64>()
                .unwrap_or(0)
        };
        let pages = Pool::of(PAGE).and_then(|pool| pool.counters())?.available();
        Ok(Self {
            cpu: field(&cpuinfo, "model name").to_owned(),
            cpus: thread::available_parallelism()?.get(),
            hypervisor: field(&cpuinfo, "flags")
                .split(' ')
                .any(|flag| flag == "hypervisor"),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?
                .trim()
                .to_owned(),
            memory: kib("MemTotal") << 10,
            available: (kib("MemAvailable") << 10) + pages * PAGE,
            qemu: qemu::version(),
        })
    }

    /// 16 GiB, or as many halves of it as this machine is too small for.
    pub(crate) fn size_that_fits(&self) -> u64 {
        let mut size = 16 << 30;
        while size > 1 << 30 && size + HEADROOM > self.available {
            size /= 2;
        }
        size
    }

    /// For a record.
    pub(crate) fn json(&self) -> Value {
        json!({
            "cpu": self.cpu, "cpus": self.cpus, "hypervisor": self.hypervisor,
            "kernel": self.kernel, "memory_bytes": self.memory, "qemu": self.qemu,
        })
    }

    pub(crate) fn description(&self) -> String {
        let Self {
            cpu, cpus, kernel, ..
        } = self;
        let memory = self.memory >> 30;
        let virtual_machine = if self.hypervisor {
            ", itself a virtual machine"
        } else {
            ""
        };
        let qemu = self.qemu.as_deref().unwrap_or("no QEMU");
        format!("{cpu}, {cpus} CPUs, {memory} GiB, Linux {kernel}{virtual_machine}; {qemu}")
    }
}

/// The value of the first line `name: value`, empty where there is none.
fn field<'a>(text: &'a str, name: &str) -> &'a str {
    let value = |line: &'a str| {
        line.strip_prefix(name)?
            .trim_start()
            .strip_prefix(':')
            .map(str::trim)
    };
    text.lines().find_map(value).unwrap_or("")
}
