//! `prezero run`: start a machine, report how it went.

mod affinity;
mod ended;
mod guest;
mod lease;
mod linux;
mod machine;
mod prepare;
mod serial;
mod sys;
mod terminal;
#[cfg(test)]
mod tests;
mod throttling;
mod written;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use prezero_host::Host;
use prezero_memory::{Cancel, Class, Control, Growth, GuestRam, Method, Populated};

use self::guest::Guest;
use self::machine::{Machine, VmRam};
use super::request::request;
use super::{cannot_boot_linux, pools};
use crate::cli::RunArgs;
use crate::clock;
use crate::failure::{Failure, exit_code};
use crate::output;
use crate::report::facts::{ErrorFacts, RequestFacts};
use crate::report::run::{GrownPool, Report, Stopwatch, nanoseconds};
use crate::stop;

/// How long a run that was stopped may take to say so.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// Runs the command and prints its report.
pub(crate) fn main(args: &RunArgs, start: Instant) -> ExitCode {
    let mut report = Report::new();
    report.started_ns = Some(nanoseconds(clock::at(start)));
    let result = match stop::on_signals() {
        Ok(cancel) => {
            let result = run(args, start, &cancel, &mut report, &|_| (), |_| ());
            result.map_err(|failure| advised(failure, args, &cancel))
        }
        Err(error) => Err(Failure::new(Class::Internal, &error, None)),
    };
    if let Err(failure) = &result
        && matches!(failure.class, Class::Stopped)
        && (!args.json || report.untold)
    {
        // Everything has been given back by now, and what is left to say may find nobody who reads it. A
        // document is whole or not there: whoever asked for one is waited for, if stderr is read.
        stop::end_within(LAST_WORDS, exit_code(failure.class));
    }
    finish(&mut report, result, args.json)
}

/// What to do about a run that was stopped, by a signal or because its time was over.
fn advised(failure: Failure, args: &RunArgs, cancel: &Cancel) -> Failure {
    if failure.class != Class::Stopped || failure.fix.is_some() {
        return failure;
    }
    let fix = match cancel.is_cancelled() {
        true if args.linux.kernel.is_some() && cannot_boot_linux(&Host::probe().cpu) => {
            "a host with VT-x or SVM: this CPU shows neither, so that Linux may never write to its console"
        }
        true => "run it again: what it had taken has been given back",
        false => "a larger --start-timeout, or less --memory",
    };
    Failure {
        fix: Some(fix.to_owned()),
        ..failure
    }
}

fn finish(report: &mut Report, result: Result<(), Failure>, json: bool) -> ExitCode {
    report.error = result.as_ref().err().map(ErrorFacts::from);
    let worth_showing = result.is_ok() || report.guest.is_some();
    let report = &*report;
    output::finish(report, result, json, |out| match worth_showing {
        true => output::text::run(out, report),
        false => Ok(()),
    })
}

/// Locks segments of a pool, adds the hugepages that are missing besides where asked to, starts the
/// machine, and gives them back. `populated` sees the memory before the nodes of its pages are checked,
/// `registered` just before the guest does.
fn run(
    args: &RunArgs,
    start: Instant,
    cancel: &Cancel,
    report: &mut Report,
    populated: &dyn Fn(&GuestRam<Populated>),
    registered: impl FnOnce(&VmRam),
) -> Result<(), Failure> {
    let mut request = request(&args.memory, &args.populate)?;
    let method = args.method.as_deref().map(Method::named).transpose()?;
    let mut guest = Guest::open(args)?;
    let mut facts = RequestFacts::from(&request);
    facts.method = args.method.clone();
    report.request = Some(facts);
    let control = Control {
        cancel: Some(cancel),
        deadline: args
            .start_timeout
            .and_then(|timeout| start.checked_add(timeout)),
        ..Control::default()
    };
    let mut host = Host::probe();
    report.host = Some((&host).into());
    for problem in &host.problems {
        report.warn(problem.to_string());
    }
    let mut machine = Machine {
        args,
        method,
        control,
        report,
        clock: Stopwatch::new(start),
        populated,
        vm: None,
        leased: None,
        unfit_in: None,
    };
    let segments = machine.lock_segments(&host, &mut request)?;
    let mut growth = None;
    if args.reserve {
        // What cannot be at all is refused before the host is changed.
        let wanted = pools::with_full_pools(&host, &request)?;
        machine.lap("plan", 0);
        machine.lay_out(&wanted, &host, &mut guest)?;
        let grown = pools::grow(&wanted, &control)?;
        machine.report.grown = grown.grown().iter().map(GrownPool::from).collect();
        growth = Some(grown);
        host = Host::probe();
    }
    let result = machine.start(&host, request, segments, guest, growth.as_mut(), registered);
    // The memory is gone by now, so its pages can be taken out of the pools.
    if let Some(Err(error)) = growth.map(Growth::give_back) {
        machine.report.warn(Failure::from(error).message);
    }
    result
}
