//! How long it takes until a virtual machine's memory is there: prezero against QEMU, run by run in turn.
//!
//!     cargo bench --bench creation -- [--size 16G] [--rounds 5] [--record FILE.json|FILE.md]
//!
//! prezero is timed as a whole process, from its start to its exit, guest included; QEMU from its start to the greeting
//! on its QMP monitor, with its guest stopped. Fresh hugepages each time: the kernel clears them for both. Without
//! `--bench`, as under `cargo test`, a single small round shows that everything here still works.

#[allow(dead_code, reason = "shared with the benchmark of recycling")]
#[path = "../peers/mod.rs"]
mod peers;
mod prezero;
mod report;

use std::process::ExitCode;

use prezero_testkit::{Hugepages, require_kvm};

use peers::machine::Machine;
use peers::options::{self, Options, SMALL};
use peers::stop::Stop;
use peers::{PAGE, Result, qemu};
use report::{Report, Series};

const PROGRAM: &str = "creation";
const USAGE: &str = "the options are --size 16G, --rounds 5 and --record FILE.json|FILE.md";

/// One run of one program.
#[derive(Debug, Clone)]
struct Sample {
    /// Seconds from the start of the process to its end or greeting.
    seconds: f64,
    /// The most memory that was resident at once, in bytes, without hugepages. It is never below that of this benchmark,
    /// because a process starts with its parent's (getrusage(2)).
    peak_rss: u64,
    /// What prezero says about the run.
    details: Option<prezero::Details>,
}

/// What is measured, in the order of each round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject {
    Prezero,
    PrezeroOneThread,
    QemuOneThread,
    QemuBest,
    PrezeroSmall,
}

impl Subject {
    const ALL: [Self; 5] = [
        Self::Prezero,
        Self::QemuBest,
        Self::PrezeroOneThread,
        Self::QemuOneThread,
        Self::PrezeroSmall,
    ];

    fn name(self, cpus: usize) -> String {
        match self {
            Self::Prezero => "prezero".to_owned(),
            Self::PrezeroOneThread => "prezero --threads 1".to_owned(),
            Self::QemuOneThread => "QEMU, 1 thread".to_owned(),
            Self::QemuBest => format!("QEMU, {cpus} pinned threads"),
            Self::PrezeroSmall => "prezero, 64 MiB".to_owned(),
        }
    }

    fn needs_qemu(self) -> bool {
        matches!(self, Self::QemuOneThread | Self::QemuBest)
    }

    fn run(self, size: u64, cpus: usize) -> Result<Sample> {
        match self {
            Self::Prezero => prezero::run(size, None),
            Self::PrezeroOneThread => prezero::run(size, Some(1)),
            Self::QemuOneThread => start(size, qemu::Prealloc::OneThread),
            Self::QemuBest => start(size, qemu::Prealloc::Pinned(cpus)),
            Self::PrezeroSmall => prezero::run(SMALL.min(size), None),
        }
    }
}

fn start(size: u64, prealloc: qemu::Prealloc) -> Result<Sample> {
    let start = qemu::until_greeting(qemu::preallocated(size, prealloc))?;
    Ok(Sample {
        seconds: start.seconds,
        peak_rss: start.peak_rss,
        details: None,
    })
}

fn main() -> ExitCode {
    options::main(PROGRAM, &[], USAGE, measure)
}

fn measure(options: &Options) -> Result<()> {
    if !require_kvm() {
        return Ok(());
    }
    let machine = Machine::look()?;
    let (size, rounds) = options.size_and_rounds(PROGRAM, &machine);
    let stop = Stop::on_signals()?;
    let Some(_pages) = Hugepages::take(PAGE, size / PAGE) else {
        return Ok(());
    };
    if machine.qemu.is_none() {
        println!(
            "{} is not installed: prezero is measured without its peer",
            qemu::PROGRAM
        );
    }
    let subjects = Subject::ALL.into_iter();
    let subjects = subjects.filter(|subject| machine.qemu.is_some() || !subject.needs_qemu());
    let mut series: Vec<Series> = subjects.map(Series::new).collect();
    if options.measure {
        // Uncounted: it also touches every page of a pool that has just grown, for the host below this machine.
        for series in &series {
            stop.check()?;
            series.subject.run(size, machine.cpus)?;
        }
    }
    for round in 1..=rounds {
        for series in &mut series {
            stop.check()?;
            series.samples.push(series.subject.run(size, machine.cpus)?);
        }
        eprintln!("creation: round {round} of {rounds}");
    }
    let report = Report {
        machine,
        size,
        series,
    };
    print!("{}", report.text());
    if let Some(path) = &options.record {
        report.write(path)?;
    }
    Ok(())
}
