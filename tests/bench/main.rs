//! `prezero bench` from the outside: its documents, its tables, its exit codes, and what it leaves behind.

mod chart;
mod clear;
mod compare;
mod contract;
mod counters;
mod mmap;
mod neighbour;
mod refusals;
mod signals;
mod user;
mod vm;

// All three are `run`'s, which uses more of them.
#[allow(dead_code)]
#[path = "../run/command.rs"]
mod command;
#[allow(dead_code)]
#[path = "../run/private_dev.rs"]
mod private_dev;
#[allow(dead_code)]
#[path = "../run/sys.rs"]
mod sys;
