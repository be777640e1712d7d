//! How a command's result is shown: text or JSON on stdout, everything else on stderr.

pub(crate) mod bench_clear;
pub(crate) mod bench_compare;
pub(crate) mod bench_mmap;
pub(crate) mod bench_neighbour;
pub(crate) mod bench_vm;
mod calibration;
pub(crate) mod chart;
mod counters;
pub(crate) mod csv;
pub(crate) mod doctor;
mod figures;
mod machine;
mod own_cost;
pub(crate) mod pool;
pub(crate) mod progress;
pub(crate) mod text;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use prezero_memory::Class;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde::Serialize;

use crate::failure::{Failure, exit_code};
use crate::report::bench_clear::ClearReport;
use crate::report::bench_compare::CompareReport;
use crate::report::bench_mmap::MmapReport;
use crate::report::bench_neighbour::NeighbourReport;
use crate::report::bench_vm::VmReport;
use crate::report::doctor::DoctorReport;
use crate::report::facts::ErrorFacts;
use crate::report::plan::PlanReport;
use crate::report::pool::{CreateReport, StatusReport};
use crate::report::pool_drain::DrainReport;
use crate::report::pool_scrub::ScrubReport;
use crate::report::run::Report;

/// One line on stderr. Nothing can be told to anybody if stderr is gone.
pub(crate) fn warn(warning: &str) {
    let _ = writeln!(io::stderr().lock(), "warning: {warning}");
}

/// One line on stderr about what is not a fault.
pub(crate) fn note(note: &str) {
    let _ = writeln!(io::stderr().lock(), "note: {note}");
}

/// Prints a report, as JSON or by `text`, and the error, and chooses the exit code.
pub(crate) fn finish(
    report: &impl Serialize,
    result: Result<(), Failure>,
    json: bool,
    text: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
) -> ExitCode {
    let mut code = 0;
    if let Err(failure) = &result {
        code = exit_code(failure.class);
        // Nothing can be told to anybody if stderr is gone.
        let _ = print_failure(&mut io::stderr().lock(), failure);
    }
    let mut all = Vec::new();
    let printed = match json {
        true => print_json(&mut all, report),
        false => text(&mut all),
    };
    if let Err(error) = printed.and_then(|()| print(&all)) {
        let _ = writeln!(io::stderr(), "error: Writing the result to stdout: {error}");
        code = code.max(exit_code(Class::Internal));
    }
    ExitCode::from(code)
}

/// Writes all of it to stdout, which may have been opened by somebody who wants no write to wait (O_NONBLOCK): that is
/// theirs and stays, and this waits by itself.
pub(crate) fn print(mut all: &[u8]) -> io::Result<()> {
    io::stdout().flush()?;
    let stdout = rustix::stdio::stdout();
    while !all.is_empty() {
        match rustix::io::write(stdout, all) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => all = &all[written..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                // What is wrong with it is what the next write says.
                let _ = poll(&mut [PollFd::new(&stdout, PollFlags::OUT)], None);
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Prints an error and ends with `code`.
pub(crate) fn failed(failure: &Failure, code: u8) -> ExitCode {
    // Nothing can be told to anybody if stderr is gone.
    let _ = print_failure(&mut io::stderr().lock(), failure);
    ExitCode::from(code)
}

/// A command line that clap refused, or a request for help.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // --help and --version; a closed stdout is nobody's loss.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    // Words that are not text are among what is refused.
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let command = args
        .first()
        .and_then(|arg| arg.to_str())
        .unwrap_or_default();
    let sub = args.get(1).and_then(|arg| arg.to_str()).unwrap_or_default();
    let help = match (command, sub) {
        ("bench", "clear" | "mmap" | "neighbour" | "compare" | "vm")
        | ("pool", "create" | "status" | "scrub" | "drain" | "destroy") => {
            format!("prezero {command} {sub} --help")
        }
        ("run" | "plan" | "doctor" | "bench" | "pool" | "exec", _) => {
            format!("prezero {command} --help")
        }
        _ => "prezero --help".to_owned(),
    };
    let _ = error.print();
    let _ = writeln!(io::stderr(), "  fix: {help}");
    if args.iter().any(|arg| arg == "--json") {
        let failure = Failure {
            class: Class::Usage,
            message: sentence(error),
            fix: Some(help),
        };
        let facts = Some(ErrorFacts::from(&failure));
        let mut all = Vec::new();
        let _ = match (command, sub) {
            ("run", _) => print_json(
                &mut all,
                &Report {
                    error: facts,
                    ..Report::new()
                },
            ),
            ("plan", _) => print_json(
                &mut all,
                &PlanReport {
                    error: facts,
                    ..PlanReport::new()
                },
            ),
            ("bench", "clear") => print_json(
                &mut all,
                &ClearReport {
                    error: facts,
                    ..ClearReport::new()
                },
            ),
            ("bench", "mmap") => print_json(
                &mut all,
                &MmapReport {
                    error: facts,
                    ..MmapReport::new()
                },
            ),
            ("bench", "neighbour") => print_json(
                &mut all,
                &NeighbourReport {
                    error: facts,
                    ..NeighbourReport::new()
                },
            ),
            ("bench", "compare") => print_json(
                &mut all,
                &CompareReport {
                    error: facts,
                    ..CompareReport::new()
                },
            ),
            ("bench", "vm") => print_json(
                &mut all,
                &VmReport {
                    error: facts,
                    ..VmReport::new()
                },
            ),
            ("doctor", _) => print_json(
                &mut all,
                &DoctorReport {
                    error: facts,
                    ..DoctorReport::new()
                },
            ),
            ("pool", "create") => print_json(
                &mut all,
                &CreateReport {
                    error: facts,
                    ..CreateReport::new()
                },
            ),
            ("pool", "status") => print_json(
                &mut all,
                &StatusReport {
                    error: facts,
                    ..StatusReport::new()
                },
            ),
            ("pool", "drain") => print_json(
                &mut all,
                &DrainReport {
                    error: facts,
                    ..DrainReport::drain()
                },
            ),
            ("pool", "destroy") => print_json(
                &mut all,
                &DrainReport {
                    error: facts,
                    ..DrainReport::destroy()
                },
            ),
            ("pool", "scrub") => print_json(
                &mut all,
                &ScrubReport {
                    error: facts,
                    ..ScrubReport::new()
                },
            ),
            _ => Ok(()),
        };
        // The exit code says already that something is wrong.
        let _ = print(&all);
    }
    ExitCode::from(exit_code(Class::Usage))
}

/// clap's first sentence. It may go on with a list, one a line; behind an empty line comes the usage.
fn sentence(error: &clap::Error) -> String {
    let rendered = error.render().to_string();
    let lines = rendered.lines().map(str::trim);
    let lines: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    lines.join(" ").trim_start_matches("error: ").to_owned()
}

fn print_failure(to: &mut impl Write, failure: &Failure) -> io::Result<()> {
    let bold = |text: &str| match io::stderr().is_terminal() {
        true => format!("\x1b[1m{text}\x1b[0m"),
        false => text.to_owned(),
    };
    writeln!(to, "{} {}", bold("error:"), failure.message)?;
    match &failure.fix {
        Some(fix) => writeln!(to, "  {} {fix}", bold("fix:")),
        None => Ok(()),
    }
}

fn print_json(to: &mut impl Write, report: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *to, report)?;
    writeln!(to)
}
