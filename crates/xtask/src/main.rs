//! Checks and chores of this workspace; `cargo xtask` lists them.

mod check;
mod lab;
mod placement;
mod rust_tokens;
mod sys;
mod with_hugepages;

use std::env;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask check [fmt|clippy|doc|features|unsafe ...]
           what can be found without running prezero; all of it without a name
       cargo xtask with-hugepages 2M=N[,1G=M] -- COMMAND [ARGUMENT ...]
           runs COMMAND with at least N available 2 MiB pages and M 1 GiB pages,
           and gives what it added back afterwards
       cargo xtask lab [--list] [--machine NAME] [--keep-console DIR] [SCENARIO ...]
           runs prezero in emulated machines with several NUMA nodes; all scenarios without a name";

/// The exit code for a command line that makes no sense.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    let mut args = env::args().skip(1);
    let result = match args.next().as_deref() {
        Some("check") => check::run(&args.collect::<Vec<_>>()),
        Some("with-hugepages") => with_hugepages::run(&args.collect::<Vec<_>>()),
        Some("lab") => lab::run(&args.collect::<Vec<_>>()),
        Some("help" | "--help" | "-h") => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Some(other) => Err(Failure::usage(format!("There is no task named {other}"))),
        None => Err(Failure::usage("No task is named".to_owned())),
    };
    match result {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("xtask: {}", failure.text);
            if failure.code == EXIT_USAGE {
                eprintln!("{USAGE}");
            }
            ExitCode::from(failure.code)
        }
    }
}

/// Why a task ended early, and the exit code for it.
#[derive(Debug, PartialEq, Eq)]
struct Failure {
    text: String,
    code: u8,
}

impl Failure {
    fn usage(text: String) -> Self {
        Self {
            text,
            code: EXIT_USAGE,
        }
    }

    fn other(text: String) -> Self {
        Self { text, code: 1 }
    }
}
