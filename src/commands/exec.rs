//! `prezero exec`: another monitor on a segment of a pool.

mod arguments;
mod supervise;
mod sys;

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, ExitCode};

use prezero_host::Host;
use prezero_memory::pool::{Lease, Pool, PoolError, ScrubRequest};
use prezero_memory::{Cancel, Class, Control, Stall};

use self::arguments::Segment;
use self::sys::Signals;
use super::pool_place::{dir_or_default, whole_pages};
use super::stall::{self, CLEAR, POPULATE, StallWatch};
use crate::cli::ExecArgs;
use crate::failure::{Failure, exit_code};
use crate::output::progress::NodeBars;
use crate::{output, stop};

/// The exit codes of env(1), nohup(1) and the shells.
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Leases a segment, runs the command on it, and ends as the command did.
pub(crate) fn main(args: &ExecArgs) -> ExitCode {
    match run(args) {
        Ok(code) => ExitCode::from(code),
        Err((failure, code)) => output::failed(&failure, code),
    }
}

fn run(args: &ExecArgs) -> Result<u8, (Failure, u8)> {
    let leased = stop::on_signals()
        .map_err(|error| Failure::new(Class::Internal, &error, None))
        .and_then(|cancel| Ok((lease(args, &cancel)?, cancel)));
    let (lease, cancel) = leased.map_err(with_code)?;
    // From here on signals are the command's, also those that come before it is there.
    let signals = Signals::block().map_err(|error| internal(&error))?;
    if cancel.is_cancelled() {
        let stopped = Failure {
            class: Class::Stopped,
            message: "Cancelled before the command was started".to_owned(),
            fix: None,
        };
        return Err(with_code(stopped));
    }
    let mut command = command(args, &lease);
    let child = sys::spawn(&mut command, lease.file(), &signals);
    let child = child.map_err(|error| not_started(command.get_program(), &error))?;
    // The lease is kept, too: a monitor that closes what it does not know loses nothing.
    supervise::to_its_end(child, &signals).map_err(|error| internal(&error))
}

/// A segment of the length asked for that is zero, and that nothing of this process maps.
fn lease(args: &ExecArgs, cancel: &Cancel) -> Result<Lease, Failure> {
    let host = Host::probe();
    let dir = dir_or_default(args.pool.as_deref(), &host, None)?;
    let pool = Pool::open(&dir).map_err(|error| not_opened(error, args))?;
    let bytes = whole_pages("--memory", args.memory, pool.page_size())?.bytes();
    let request = ScrubRequest {
        exchange: args.exchange,
        ..ScrubRequest::default()
    };
    let bars = NodeBars::new("clear");
    let progress = |nodes: &[_]| bars.show(nodes);
    let last_words = |failure: Failure| {
        let _ = output::failed(&failure, exit_code(failure.class));
    };
    let work = match args.exchange {
        true => &POPULATE,
        false => &CLEAR,
    };
    let watch = StallWatch::new(work, stall::LOOK, &last_words);
    let stalled = |stall: &Stall| watch.see(stall);
    let control = Control {
        cancel: Some(cancel),
        progress: Some(&progress),
        stalled: Some(&stalled),
        ..Control::default()
    };
    let leased = pool.take_one_clean(bytes, args.node, &host, &request, &control);
    bars.finish();
    let (lease, report) = leased?;
    for left in &report.left {
        output::warn(&left.to_string());
    }
    Ok(lease)
}

/// A pool that is not there is made with the segment that is wanted: the default length would not do.
fn not_opened(error: PoolError, args: &ExecArgs) -> Failure {
    let fix = match &error {
        PoolError::Missing(pool) => {
            let added = PoolError::NoSegment {
                pool: pool.clone(),
                bytes: args.memory,
                node: args.node,
                sizes: Vec::new(),
                incomplete: 0,
            };
            added.fix()
        }
        _ => error.fix(),
    };
    Failure::new(error.class(), &error, fix)
}

fn command(args: &ExecArgs, lease: &Lease) -> Command {
    let segment = Segment {
        path: lease.path(),
        bytes: lease.len().bytes(),
        node: lease.node(),
    };
    // clap sees to it that there is one.
    let (program, rest) = match args.command.split_first() {
        Some((program, rest)) => (program.as_os_str(), rest),
        None => (OsStr::new(""), &[][..]),
    };
    if !rest.iter().any(|arg| arguments::names_path(arg)) {
        output::warn("No argument of the command has {path}: it is not told where its memory is");
    }
    let mut command = Command::new(program);
    command.args(rest.iter().map(|arg| segment.fill_in(arg)));
    command
}

fn not_started(program: &OsStr, error: &std::io::Error) -> (Failure, u8) {
    let name = program.display();
    // A script whose interpreter is not there is not found either.
    let (code, fix) = match error.kind() {
        ErrorKind::NotFound if Path::new(program).exists() => (
            NOT_FOUND,
            format!("look at its first line: head -n 1 {name}"),
        ),
        ErrorKind::NotFound => (
            NOT_FOUND,
            format!("the path of a program: command -v {name}"),
        ),
        _ => (CANNOT_RUN, format!("ls -l {name}")),
    };
    let failure = Failure {
        class: Class::Usage,
        message: format!("Cannot run {name}: {error}"),
        fix: Some(fix),
    };
    (failure, code)
}

fn with_code(failure: Failure) -> (Failure, u8) {
    let code = exit_code(failure.class);
    (failure, code)
}

fn internal(error: &std::io::Error) -> (Failure, u8) {
    with_code(Failure::new(Class::Internal, error, None))
}
