//! `prezero`: starts test virtual machines on hugepages that every CPU of the right node populated,
//! and measures how long each step takes.

mod cli;
mod clock;
mod commands;
mod failure;
mod measure;
mod output;
mod printable;
mod report;
mod stop;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;

use crate::cli::{Cli, Command};

fn main() -> ExitCode {
    let start = Instant::now();
    match Cli::try_parse() {
        Ok(Cli { command }) => match command {
            Command::Run(args) => commands::run::main(&args, start),
            Command::Plan(args) => commands::plan::main(&args),
            Command::Doctor(args) => commands::doctor::main(&args),
            Command::Bench(args) => commands::bench::main(&args),
            Command::Pool(args) => commands::pool::main(&args),
            Command::Exec(args) => commands::exec::main(&args),
            Command::Stamp => clock::say(),
        },
        Err(error) => output::usage(&error),
    }
}
