//! `prezero pool scrub`: free dirty segments become clean.

use std::cell::RefCell;
use std::io;
use std::process::ExitCode;

use prezero_host::Host;
use prezero_memory::pool::{Left, NotScrubbed, Pool, ScrubReport as Pass, ScrubRequest};
use prezero_memory::{ByteSize, Cancel, Class, Control, Method, MethodChoice, Stall};

use super::place;
use crate::cli::PoolScrubArgs;
use crate::commands::stall::{self, CLEAR, POPULATE, StallWatch};
use crate::failure::Failure;
use crate::output;
use crate::output::progress::NodeBars;
use crate::report::facts::ErrorFacts;
use crate::report::pool_scrub::ScrubReport;
use crate::stop;

/// Runs the command and prints its report.
pub(super) fn main(args: &PoolScrubArgs) -> ExitCode {
    let mut report = ScrubReport::new();
    let result = match stop::on_signals() {
        Ok(cancel) => run(args, &cancel, &mut report),
        Err(error) => Err(Failure::new(Class::Internal, &error, None)),
    };
    finish(&mut report, result, args.json)
}

fn finish(report: &mut ScrubReport, result: Result<(), Failure>, json: bool) -> ExitCode {
    report.error = result.as_ref().err().map(ErrorFacts::from);
    let report = &*report;
    output::finish(report, result, json, |out| match report.passes {
        0 => Ok(()),
        _ => output::pool::scrub(out, report),
    })
}

fn run(args: &PoolScrubArgs, cancel: &Cancel, report: &mut ScrubReport) -> Result<(), Failure> {
    let method = args.method.as_deref().map(Method::named).transpose()?;
    let request = ScrubRequest {
        threads: args.threads.map(Into::into),
        rate: args.rate.map(Into::into),
        exchange: args.exchange,
        choice: method.map_or(MethodChoice::Measured, MethodChoice::Fixed),
    };
    let (dir, host) = place(args.dir.as_deref())?;
    report.pool = Some(dir.clone());
    let pool = Pool::open(&dir)?;
    let exchange_only = pool.is_exchange_only()?;
    report.exchange = args.exchange || exchange_only;
    if let Some(method) = method.filter(|_| exchange_only) {
        output::warn(&format!(
            "--method {method} has nothing to do: {} is exchange-only, and the kernel clears its fresh pages",
            dir.display()
        ));
    }
    let work = match report.exchange {
        true => &POPULATE,
        false => &CLEAR,
    };
    let report = RefCell::new(report);
    let last_words = |failure| {
        let _ = finish(&mut report.borrow().clone(), Err(failure), args.json);
    };
    let stall_watch = StallWatch::new(work, stall::LOOK, &last_words);
    let stalled = |stall: &Stall| stall_watch.see(stall);
    let control = Control {
        cancel: Some(cancel),
        stalled: Some(&stalled),
        ..Control::default()
    };
    match args.watch {
        true => watch(&pool, &host, &request, args.json, cancel, &control, &report),
        false => once(&pool, &host, &request, &control, &report),
    }
}

fn once(
    pool: &Pool,
    host: &Host,
    request: &ScrubRequest,
    control: &Control<'_>,
    report: &RefCell<&mut ScrubReport>,
) -> Result<(), Failure> {
    let bars = NodeBars::new("scrub");
    let progress = |nodes: &[_]| bars.show(nodes);
    let control = Control {
        progress: Some(&progress),
        ..*control
    };
    let pass = pool.scrub(host, request, &control);
    bars.finish();
    let pass = pass?;
    report.borrow_mut().add(&pass);
    // The first one that cannot be used any more is the error, if there is no other.
    let incomplete = pass.left.iter().find_map(incomplete);
    let told = incomplete.as_ref().filter(|_| pass.stopped.is_none());
    warn(&pass, told.map(|failure| &*failure.message));
    if pass.stopped.is_some() {
        let cleaned = ByteSize(pass.bytes);
        return Err(Failure {
            class: Class::Stopped,
            message: format!(
                "Cancelled with {cleaned} of {} scrubbed; the segment at hand stays dirty",
                pool.path().display()
            ),
            fix: Some(format!("prezero pool scrub {}", pool.path().display())),
        });
    }
    incomplete.map_or(Ok(()), Err)
}

/// Until a signal comes, which is no failure: it is how a service ends.
fn watch(
    pool: &Pool,
    host: &Host,
    request: &ScrubRequest,
    json: bool,
    cancel: &Cancel,
    control: &Control<'_>,
    report: &RefCell<&mut ScrubReport>,
) -> Result<(), Failure> {
    let mut unwritten = None;
    let mut each = |pass: &Pass| {
        report.borrow_mut().add(pass);
        warn(pass, None);
        let line = match json {
            true => output::pool::pass(&mut io::stderr().lock(), pass),
            false => {
                let mut line = Vec::new();
                output::pool::pass(&mut line, pass).and_then(|()| output::print(&line))
            }
        };
        if let Err(error) = line {
            // Nobody reads it any more.
            unwritten.get_or_insert(error);
            cancel.cancel();
        }
    };
    pool.scrub_on_release(host, request, control, &mut each)?;
    match unwritten {
        Some(error) => Err(Failure::new(Class::Internal, &error, None)),
        None => {
            report.borrow_mut().stopped = true;
            Ok(())
        }
    }
}

/// Warns of everything that is not clean, but for what is told of otherwise.
fn warn(pass: &Pass, told: Option<&str>) {
    let left = pass.left.iter().map(ToString::to_string);
    for left in left.filter(|left| told != Some(left)) {
        output::warn(&left);
    }
    for problem in &pass.problems {
        output::warn(&output::pool::left_alone(&problem.into()));
    }
}

/// A segment that cannot be used until its pages can be had again is a failure.
fn incomplete(left: &NotScrubbed) -> Option<Failure> {
    let Left::Incomplete { fix, .. } = &left.left else {
        return None;
    };
    let pool = left.path.ancestors().nth(2).unwrap_or(&left.path);
    let status = || format!("prezero pool status {}", pool.display());
    Some(Failure {
        class: Class::Shortage,
        message: left.to_string(),
        fix: Some(fix.clone().unwrap_or_else(status)),
    })
}
