//! `cargo xtask with-hugepages`: hugepages for as long as a command runs.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use prezero_testkit::{Change, MachineLock, Pool};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::{Failure, sys};

/// The exit code when the pages cannot be had, as that of `prezero run`.
const EXIT_SHORT: u8 = 3;

/// How long the pages wait for whoever is counting hugepages before they are given back regardless.
const PATIENCE: Duration = Duration::from_secs(60);

/// Reserves pages, runs the command, gives the pages back, and forwards the command's exit code.
pub(crate) fn run(args: &[String]) -> Result<ExitCode, Failure> {
    let (requests, command) = parse(args).map_err(Failure::usage)?;
    // From here on a signal must not end this process before it has given the pages back.
    let caught = catch_signals().map_err(|error| Failure::other(format!("Signals: {error}")))?;
    let reservation = Reservation::make(&requests)?;
    let result = run_command(command, &caught);
    reservation.give_back()?;
    let (program, _) = command
        .split_first()
        .expect("parse refuses an empty command");
    let status =
        result.map_err(|error| Failure::other(format!("Cannot run {program}: {error}")))?;
    Ok(ExitCode::from(exit_code(status)))
}

/// Pages wanted: bytes per page, and how many.
type Request = (u64, u64);

fn parse(args: &[String]) -> Result<(Vec<Request>, &[String]), String> {
    let (list, rest) = args
        .split_first()
        .ok_or("Which pages? For example 2M=512")?;
    let requests = list
        .split(',')
        .map(parse_request)
        .collect::<Result<Vec<_>, _>>()?;
    match rest.split_first() {
        Some((dashes, command)) if dashes == "--" && !command.is_empty() => Ok((requests, command)),
        _ => Err(format!(
            "A command is missing: with-hugepages {list} -- COMMAND"
        )),
    }
}

fn parse_request(text: &str) -> Result<Request, String> {
    let parsed = text.split_once('=').and_then(|(size, pages)| {
        let (digits, unit) = size.split_at_checked(size.len().checked_sub(1)?)?;
        let shift = match unit {
            "K" | "k" => 10,
            "M" | "m" => 20,
            "G" | "g" => 30,
            _ => return None,
        };
        let size = digits.parse::<u64>().ok()?.checked_mul(1 << shift)?;
        Some((size, pages.parse().ok()?)).filter(|_| size.is_power_of_two())
    });
    parsed.ok_or_else(|| format!("{text} is not SIZE=PAGES, for example 2M=512 or 1G=4"))
}

/// What was added to each pool.
struct Reservation {
    changes: Vec<(Pool, Change)>,
}

impl Reservation {
    /// All requests or none of them.
    fn make(requests: &[Request]) -> Result<Self, Failure> {
        // Not while a test compares counters; but not during the command either, whose tests take the lock themselves.
        let _lock = MachineLock::acquire();
        let mut reservation = Self {
            changes: Vec::new(),
        };
        for &(size, pages) in requests {
            let added = Pool::of(size).and_then(|pool| {
                let change = pool.raise_available_to(pages)?;
                Ok((pool, change))
            });
            match added {
                Ok(change) => reservation.changes.push(change),
                Err(error) => {
                    let size = size >> 10;
                    let mut text =
                        format!("Cannot have {pages} available pages of {size} KiB: {error}");
                    if let Err(error) = reservation.undo() {
                        text.push_str(&format!("; and {error}"));
                    }
                    return Err(Failure {
                        text,
                        code: EXIT_SHORT,
                    });
                }
            }
        }
        Ok(reservation)
    }

    fn give_back(self) -> Result<(), Failure> {
        let _lock = MachineLock::acquire_within(PATIENCE);
        self.undo()
            .map_err(|error| Failure::other(error.to_string()))
    }

    /// Every pool, also after a failure.
    fn undo(&self) -> io::Result<()> {
        let mut result = Ok(());
        for (pool, change) in self.changes.iter().rev() {
            result = result.and(pool.undo(change));
        }
        result
    }
}

/// A number that is zero until a signal to end arrives, and that signal's number from then on.
fn catch_signals() -> io::Result<Arc<AtomicUsize>> {
    let caught = Arc::new(AtomicUsize::new(0));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        let number = usize::try_from(signal).map_err(io::Error::other)?;
        signal_hook::flag::register_usize(signal, Arc::clone(&caught), number)?;
    }
    Ok(caught)
}

/// Runs the command to its end, handing each signal on: the pages are its own until then.
fn run_command(command: &[String], caught: &AtomicUsize) -> io::Result<ExitStatus> {
    let mut child = Command::new(&command[0]).args(&command[1..]).spawn()?;
    loop {
        forward(&child, caught)?;
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn forward(child: &Child, caught: &AtomicUsize) -> io::Result<()> {
    match i32::try_from(caught.swap(0, Ordering::SeqCst)) {
        Ok(0) => Ok(()),
        Ok(signal) => sys::signal(child, signal),
        Err(error) => Err(io::Error::other(error)),
    }
}

/// As a shell reports it: 128 and the signal's number for a command that a signal ended.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn reads_sizes_and_the_command() {
        let args = words("2M=768,1G=0,64K=3 -- cargo test -- --nocapture");
        let (requests, command) = parse(&args).expect("valid");
        assert_eq!(requests, [(2 << 20, 768), (1 << 30, 0), (64 << 10, 3)]);
        assert_eq!(command, words("cargo test -- --nocapture"));
    }

    #[test]
    fn refuses_what_it_does_not_understand() {
        for list in [
            "2M",
            "2M=",
            "=3",
            "2M=-1",
            "3M=1",
            "2T=1",
            "M=1",
            "2M=1,",
            "2é=1",
            "99999999999999G=1",
        ] {
            let error = parse(&words(&format!("{list} -- true"))).expect_err(list);
            assert!(error.contains("is not SIZE=PAGES"), "{error}");
        }
    }

    #[test]
    fn refuses_a_missing_command() {
        for args in ["2M=1", "2M=1 --", "2M=1 true"] {
            assert!(
                parse(&words(args))
                    .expect_err(args)
                    .starts_with("A command is missing")
            );
        }
    }

    #[test]
    fn a_signalled_command_exits_as_in_a_shell() {
        assert_eq!(exit_code(ExitStatus::from_raw(5 << 8)), 5);
        assert_eq!(exit_code(ExitStatus::from_raw(SIGTERM)), 143);
    }
}
