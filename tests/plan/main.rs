//! `prezero plan` from the outside: the JSON document, recorded hosts, and that `run` then does what was planned.

#[allow(dead_code, reason = "shared with the tests of run")]
#[path = "../run/command.rs"]
mod command;
mod document;
mod estimate;
mod hosts;
mod limits;
mod policies;
mod readme;
mod same_as_run;
