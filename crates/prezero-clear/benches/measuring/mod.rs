//! What all benchmarks of this crate do: their options, one pinned thread, memory on hugepages, and a way to stop.

mod sys;

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use prezero_testkit::Hugepages;
use signal_hook::consts::{SIGINT, SIGTERM};

pub(crate) use sys::Memory;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Bytes per hugepage.
pub(crate) const HUGEPAGE: usize = 2 << 20;

/// What is stored before each pass: some CPUs recognise a zero that is stored over a zero.
pub(crate) const DIRT: u8 = 0xa5;

/// One benchmark and what it does unless told otherwise.
#[derive(Debug)]
pub(crate) struct Benchmark {
    /// As cargo calls it.
    pub(crate) name: &'static str,
    /// Bytes to clear, a multiple of [`HUGEPAGE`].
    pub(crate) size: usize,
    /// Counted rounds; everything is measured once in each.
    pub(crate) rounds: usize,
}

/// What the command line made of a [`Benchmark`].
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) rounds: usize,
    size: usize,
    stopped: Arc<AtomicBool>,
}

impl Benchmark {
    /// Runs `measure` with memory of the size asked for.
    ///
    /// Without `--bench`, as under `cargo test`, one round on two hugepages shows that everything still works.
    pub(crate) fn run(self, measure: impl FnOnce(&Run, &mut Memory) -> Result<()>) -> ExitCode {
        // Asked by test runners that look for tests; there are none by name here.
        if env::args().any(|argument| argument == "--list") {
            return ExitCode::SUCCESS;
        }
        let name = self.name;
        match self.options().and_then(|run| run.with_memory(measure)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{name}: {error}");
                ExitCode::FAILURE
            }
        }
    }

    fn options(self) -> Result<Run> {
        // cargo puts it last.
        let counts = env::args().any(|argument| argument == "--bench");
        let (mut size, mut rounds) = match counts {
            true => (self.size, self.rounds),
            false => (2 * HUGEPAGE, 1),
        };
        let mut args = env::args().skip(1);
        while let Some(argument) = args.next() {
            let mut value = || args.next().ok_or(format!("{argument} wants a value"));
            match argument.as_str() {
                "--size" => size = parse_size(&value()?)?,
                "--rounds" => rounds = value()?.parse()?,
                // The rest is meant for the harness that other test binaries have, and passed to all of them.
                _ if !counts || argument == "--bench" => {}
                _ => {
                    let usage = "the options are --size 512M and --rounds 11";
                    return Err(format!("There is no option {argument}; {usage}").into());
                }
            }
        }
        if rounds == 0 {
            return Err("--rounds wants at least 1".into());
        }
        if counts && rounds < 5 {
            eprintln!(
                "{}: {rounds} rounds are too few for a median to mean much",
                self.name
            );
        }
        if !counts {
            println!("without --bench: one small round, whose figures mean nothing");
        }
        let stopped = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stopped))?;
        }
        Ok(Run {
            rounds,
            size,
            stopped,
        })
    }
}

impl Run {
    fn with_memory(&self, measure: impl FnOnce(&Run, &mut Memory) -> Result<()>) -> Result<()> {
        let cpu = sys::pin()?;
        let hugepages = Hugepages::take(HUGEPAGE as u64, (self.size / HUGEPAGE) as u64);
        // Dropped before the guard, which counts the pages again.
        let mut memory = Memory::map(self.size, hugepages.is_some())?;
        let pages = match hugepages {
            Some(_) => "2 MiB hugepages",
            None => "ordinary pages, because hugepages could not be had",
        };
        println!(
            "{} MiB on {pages}, one thread on CPU {cpu}",
            self.size >> 20
        );
        let result = measure(self, &mut memory);
        drop(memory);
        result
    }

    /// Fails after SIGINT or SIGTERM, so that the hugepages are given back.
    pub(crate) fn check_stopped(&self) -> Result<()> {
        match self.stopped.load(Ordering::Relaxed) {
            true => Err("stopped by a signal".into()),
            false => Ok(()),
        }
    }
}

fn parse_size(text: &str) -> Result<usize> {
    let mib = text
        .strip_suffix('M')
        .and_then(|digits| digits.parse::<usize>().ok());
    let size = mib.and_then(|mib| mib.checked_mul(1 << 20));
    size.filter(|size| *size > 0 && size.is_multiple_of(HUGEPAGE))
        .ok_or_else(|| format!("{text} is not an even number of MiB such as 512M").into())
}

/// How long `work` takes.
pub(crate) fn time<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = work();
    (start.elapsed(), result)
}

/// The middle value; of an even number, the upper one of the two.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
