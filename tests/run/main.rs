//! `prezero run` from the outside: exit codes, the JSON document, messages, and what it leaves behind.
//!
//! Every run that may take hugepages holds a guard; every other one says `hugepages=off`.

#[allow(dead_code, reason = "shared with the tests of the library")]
#[path = "../../crates/prezero-memory/tests/cgroup/mod.rs"]
mod cgroup;
mod cgroups;
mod clear;
mod command;
mod console;
mod contract;
mod foreseen;
mod guest;
mod hugepages;
mod json;
mod killed;
mod limits;
mod linux;
mod mounts;
mod output;
mod overlap;
mod path;
mod policies;
mod pool;
mod pooled;
mod private_dev;
mod quota;
mod refusals;
mod reserve;
mod signals;
mod sys;
mod terminal;
mod timeout;
mod user;
mod zones;
