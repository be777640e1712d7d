//! The guest of a run: prezero's own probe, or Linux.

use prezero_host::Host;
use prezero_memory::Plan;
use prezero_vmm::{Probe, ProbeRequest, Vm};

use super::linux::LinuxGuest;
use crate::cli::RunArgs;
use crate::failure::Failure;

/// What is started once the memory is there.
pub(super) enum Guest {
    /// Says that it is alive, and reads its memory if asked to.
    Probe(ProbeRequest),
    /// Boots a kernel.
    Linux(Box<LinuxGuest>),
}

impl Guest {
    /// Looks at the files it is made of.
    pub(super) fn open(args: &RunArgs) -> Result<Self, Failure> {
        match LinuxGuest::open(args)? {
            Some(linux) => Ok(Self::Linux(Box::new(linux))),
            None => Ok(Self::Probe(ProbeRequest {
                cpus: args.cpus,
                verify: args.verify,
                ram: Vec::new(),
            })),
        }
    }

    /// Gives it the memory that is planned. What cannot be is refused, before any memory is touched.
    pub(super) fn lay_out(&mut self, planned: &Plan, host: &Host, vm: &Vm) -> Result<(), Failure> {
        match self {
            Self::Probe(probe) => {
                let slots = planned.slots().iter();
                probe.ram = slots.map(|slot| (slot.gpa(), slot.len())).collect();
                Probe::slot_len(probe, &vm.facts())?;
                Ok(())
            }
            Self::Linux(linux) => linux.lay_out(planned, host, &vm.facts()),
        }
    }

    /// The guest-physical addresses that it, or its loader, touches first.
    pub(super) fn touches_first(&self) -> Vec<u64> {
        match self {
            Self::Probe(probe) => probe.reads_first(),
            Self::Linux(linux) => linux.loads_first(),
        }
    }
}
