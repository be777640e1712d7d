//! /dev/kvm, by really creating a virtual machine.

use std::path::Path;

use prezero_host::Cpu;
use prezero_memory::Plan;
use prezero_vmm::{Kvm, KvmFacts, Probe, ProbeRequest};

use super::Case;
use crate::commands::cannot_boot_linux;
use crate::failure::Failure;
use crate::report::doctor::Finding;

const NAME: &str = "kvm";
/// Where an error has no advice of its own, the kernel's log says most.
const LOG: &str = "sudo dmesg | grep -i kvm";

pub(super) fn check(case: &Case<'_>, cpu: &Cpu) -> Finding {
    match machine(case.plan()) {
        Ok(facts) => Finding::ok(
            NAME,
            format!(
                "/dev/kvm creates machines of at most {} vCPUs and {} memory slots{}",
                facts.max_vcpus,
                facts.max_slots,
                match cannot_boot_linux(cpu) {
                    true =>
                        "; this CPU shows neither VT-x nor SVM, so that Linux may not boot on them (run --kernel)",
                    false => "",
                }
            ),
        ),
        Err(failure) => Finding::problem(NAME, failure, LOG),
    }
}

/// What `run` does with /dev/kvm before it touches memory.
fn machine(plan: Option<&Plan>) -> Result<KvmFacts, Failure> {
    let vm = Kvm::open(Path::new("/dev/kvm"))?.create_vm()?;
    if let Some(plan) = plan {
        let slots = plan.slots().iter();
        let probe = ProbeRequest {
            cpus: 1,
            verify: false,
            ram: slots.map(|slot| (slot.gpa(), slot.len())).collect(),
        };
        Probe::slot_len(&probe, &vm.facts())?;
    }
    Ok(vm.facts())
}
