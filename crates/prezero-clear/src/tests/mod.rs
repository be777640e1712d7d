//! Every method through every input, and what the types promise.

mod accounting;
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
mod emulation;
pub(crate) mod fences;
mod interleavings;
mod memory;
mod methods;
mod pieces;
mod properties;
mod runner;
mod spans;
