//! The commands.

pub(crate) mod bench;
pub(crate) mod doctor;
pub(crate) mod exec;
pub(crate) mod plan;
pub(crate) mod pool;
pub(crate) mod pool_place;
mod pools;
mod request;
pub(crate) mod run;
mod saved;
mod segments;
mod stall;

use prezero_host::Cpu;

/// Whether KVM has to emulate a guest's kernel, instruction by instruction. The flags are those of x86.
fn cannot_boot_linux(cpu: &Cpu) -> bool {
    cfg!(target_arch = "x86_64") && !cpu.virtualization
}
