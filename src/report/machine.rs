//! The machine of a measurement as data: a part of every document of `prezero bench`. Facts that are not
//! known are null. Nothing in it tells whose machine it is.

use std::collections::BTreeMap;
use std::path::Path;

use prezero_host::{Host, HugepagePool, PageSize};
use serde::Serialize;

use crate::measure::machine::{Load, Machine};

#[derive(Clone, Debug, Serialize)]
pub(crate) struct MachineFacts {
    /// The same in two documents of one installation (or of copies of its image), a hash.
    id: Option<String>,
    /// The same in two documents of one boot, a hash.
    boot: Option<String>,
    pub(crate) kernel: String,
    kernel_build: Option<String>,
    pub(crate) preempt: String,
    pub(crate) cpu: String,
    pub(crate) microcode: Option<String>,
    /// Online, and those that this process may use.
    pub(crate) cpus: usize,
    usable_cpus: usize,
    nodes: usize,
    pub(crate) hypervisor: bool,
    product: Option<String>,
    /// Bytes.
    default_hugepage_size: Option<u64>,
    hugepages: Vec<HugepageFacts>,
    pub(crate) thp: ThpFacts,
    /// By the name of the vulnerability; those that the CPU does not have are left out.
    mitigations: BTreeMap<String, String>,
    governor: Option<String>,
    turbo: Option<bool>,
    smt: Option<bool>,
    /// Load averages of 1, 5 and 15 minutes, before and after the measurement.
    pub(crate) load_before: Option<[f64; 3]>,
    pub(crate) load_after: Option<[f64; 3]>,
}

/// Pages of one size, before the measurement.
#[derive(Clone, Debug, Serialize)]
struct HugepageFacts {
    page_size: u64,
    total: u64,
    free: u64,
    reserved: u64,
    surplus: u64,
    overcommit: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct ThpFacts {
    pub(crate) enabled: Option<String>,
    pub(crate) defrag: Option<String>,
}

impl MachineFacts {
    /// Of this machine, before a measurement.
    pub(crate) fn here(host: &Host) -> Self {
        Self::new(host, Machine::read(Path::new("/")))
    }

    /// A title, and below it where that was measured.
    pub(crate) fn below(machine: Option<&Self>, title: String) -> String {
        match machine {
            Some(machine) => format!("{title}\n{}, Linux {}", machine.cpu, machine.kernel),
            None => title,
        }
    }

    /// Before a measurement.
    pub(crate) fn new(host: &Host, machine: Machine) -> Self {
        Self {
            id: machine.id,
            boot: machine.boot,
            kernel: host.kernel.release.clone(),
            kernel_build: machine.kernel_build,
            preempt: host.kernel.preempt.clone(),
            cpu: host.cpu.model.clone(),
            microcode: Some(host.cpu.microcode.clone()).filter(|revision| !revision.is_empty()),
            cpus: host.nodes.iter().map(|node| node.cpus.len()).sum(),
            usable_cpus: host.unasked_cpus().len(),
            nodes: host.nodes.len(),
            hypervisor: host.cpu.hypervisor,
            product: machine.product,
            default_hugepage_size: host.default_hugepage_size.map(PageSize::bytes),
            hugepages: host.pools.iter().map(Into::into).collect(),
            thp: ThpFacts {
                enabled: machine.thp_enabled,
                defrag: machine.thp_defrag,
            },
            mitigations: machine.mitigations.into_iter().collect(),
            governor: machine.governor,
            turbo: machine.turbo,
            smt: machine.smt,
            load_before: machine.load.map(|load| load.0),
            load_after: None,
        }
    }

    pub(crate) fn set_load_after(&mut self, load: Option<Load>) {
        self.load_after = load.map(|load| load.0);
    }
}

impl From<&HugepagePool> for HugepageFacts {
    fn from(pool: &HugepagePool) -> Self {
        Self {
            page_size: pool.page_size.bytes(),
            total: pool.total,
            free: pool.free,
            reserved: pool.reserved,
            surplus: pool.surplus,
            overcommit: pool.overcommit,
        }
    }
}
