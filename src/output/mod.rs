//! How a command's result is shown: text or JSON on stdout, everything else on stderr.

pub(crate) mod progress;
mod text;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use prezero_memory::Class;

use crate::failure::{Failure, exit_code};
use crate::report::Report;

/// One line on stderr. Nothing can be told to anybody if stderr is gone.
pub(crate) fn warn(warning: &str) {
    let _ = writeln!(io::stderr().lock(), "warning: {warning}");
}

/// Prints the report and the error, and chooses the exit code.
pub(crate) fn finish(mut report: Report, result: Result<(), Failure>, json: bool) -> ExitCode {
    let mut code = 0;
    let mut stderr = io::stderr().lock();
    if let Err(failure) = &result {
        code = exit_code(failure.class);
        report.set_error(failure);
        let _ = print_failure(&mut stderr, failure);
    }
    let printed = match json {
        true => print_json(&report),
        false if result.is_ok() || report.guest.is_some() => text::print(&report),
        false => Ok(()),
    };
    if let Err(error) = printed {
        let _ = writeln!(stderr, "error: Writing the result to stdout: {error}");
        code = code.max(exit_code(Class::Internal));
    }
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
    let run = args.first().is_some_and(|arg| arg == "run");
    let help = if run {
        "prezero run --help"
    } else {
        "prezero --help"
    };
    let _ = error.print();
    let _ = writeln!(io::stderr(), "  fix: {help}");
    if run && args.iter().any(|arg| arg == "--json") {
        let rendered = error.render().to_string();
        // The sentence may go on with a list, one a line; behind an empty line comes the usage.
        let lines = rendered.lines().map(str::trim);
        let lines: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
        let failure = Failure {
            class: Class::Usage,
            message: lines.join(" ").trim_start_matches("error: ").to_owned(),
            fix: Some(help.to_owned()),
        };
        let mut report = Report::new();
        report.set_error(&failure);
        let _ = print_json(&report);
    }
    ExitCode::from(exit_code(Class::Usage))
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

fn print_json(report: &Report) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    serde_json::to_writer_pretty(&mut stdout, report)?;
    writeln!(stdout)?;
    stdout.flush()
}
