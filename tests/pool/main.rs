//! `prezero pool` and `prezero exec` from the outside: exit codes, documents, and what is in the memory.

#[allow(dead_code, reason = "shared with the tests of the library")]
#[path = "../../crates/prezero-memory/tests/cgroup/mod.rs"]
mod cgroup;
mod cgroups;
#[allow(dead_code, reason = "shared with the tests of run")]
#[path = "../run/command.rs"]
mod command;
mod create;
mod destroy;
mod drain;
mod exchange_only;
mod exec;
mod fixture;
mod killed;
mod leases;
mod qemu;
mod refusals;
mod scrub;
mod signals;
mod stalls;
mod status;
mod sys;
mod terminal;
mod user;
