//! `prezero doctor` from the outside: its findings here and on recorded hosts, and the exit codes of `run`.

mod calibration;
mod contract;
mod exit_codes;
mod fixtures;
mod holders;
mod host;
mod path;
mod recording;
mod sys;
mod user;

// Both are `run`'s, which uses more of them.
#[allow(dead_code)]
#[path = "../run/command.rs"]
mod command;
#[allow(dead_code)]
#[path = "../run/mounts.rs"]
mod mounts;
#[allow(dead_code)]
#[path = "../run/private_dev.rs"]
mod private_dev;
