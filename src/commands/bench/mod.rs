//! `prezero bench`: how fast this host does it.

mod choice;
mod clear;
mod compare;
mod mmap;
mod neighbour;
mod result_file;
mod session;
mod vm;

use std::process::ExitCode;

use crate::cli::{Bench, BenchArgs};

/// Runs the measurement that was asked for.
pub(crate) fn main(args: &BenchArgs) -> ExitCode {
    match &args.bench {
        Bench::Clear(args) => clear::main(args),
        Bench::Mmap(args) => mmap::main(args),
        Bench::Neighbour(args) => neighbour::main(args),
        Bench::Compare(args) => compare::main(args),
        Bench::Vm(args) => vm::main(args),
    }
}
