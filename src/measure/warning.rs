//! What a reader of figures should know before believing them, with advice.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use prezero_host::{Host, Throttled};
use prezero_memory::{ByteSize, PlanWarning};

use super::machine::Load;
use super::own_cost::OwnCost;
use super::repeat::{AGREE, MOST_RUNS};
use super::stats::{Summary, outliers};

/// σ above this part of the mean is noise.
const NOISY: f64 = 0.05;
/// Two figures for one ratio are the same within this part of it.
const DISAGREE: f64 = 0.05;
/// With fewer runs σ says little.
const FEW: usize = 3;
/// More of a pass than this must not be the instrument's own work.
const OWN_COST: f64 = 0.01;
/// One of so many passes that is run again is chance.
const MANY_REPEATED: usize = 20;
/// Populating slower than the slowest clear by more than this is the first touch of memory.
const SLOW_TOUCH: f64 = 4.0;

/// Something about a measurement that its figures do not show.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Warning {
    /// A method that was named is not one of this CPU.
    LeftOut { why: String },
    /// What the planner chose.
    Plan(PlanWarning),
    /// Fewer threads asked for than nodes with memory.
    ThreadsRaised { asked: usize, used: usize },
    /// Workers that are not pinned may share a CPU.
    Loose { workers: usize },
    /// Threads that have to share CPUs.
    SharedCpus { threads: usize, cpus: usize },
    /// What is measured and what disturbs it take turns.
    OneCpu { cpu: u32 },
    /// Passes that are over too soon; the shortest.
    ShortPasses { time: Duration },
    /// No row to compare with.
    NoBaseline { name: String },
    /// A chunk is too large for all threads to have one.
    Idle {
        chunk: u64,
        threads: usize,
        bytes: u64,
    },
    /// Rows with a wide spread; the widest of them.
    Noisy {
        rows: usize,
        of: usize,
        worst: String,
        spread: f64,
    },
    /// Rows with samples far from the others.
    Outliers {
        rows: usize,
        of: usize,
        first: String,
    },
    /// Two ways to see the same ratio say different things.
    RatiosDisagree {
        rows: usize,
        of: usize,
        worst: String,
        of_means: f64,
        of_rounds: f64,
    },
    /// Too few samples for a spread.
    FewRuns { runs: usize },
    /// Others use the CPUs.
    Busy { load: f64, cpus: usize },
    /// Others began to, while this was measured; `own` is what this process adds to the average.
    LoadRose { before: f64, after: f64, own: f64 },
    /// Others did, for this part of all CPUs' time.
    Shared { part: f64 },
    /// The hypervisor gave this part of the time that CPUs wanted to run to other machines.
    Stolen { part: f64 },
    /// A CPU quota held the threads back.
    Throttled(Throttled),
    /// Populating was much slower than clearing, both in GB/s: memory new to the machine.
    SlowFirstTouch { populate: f64, clear: f64 },
    /// The machine is itself a virtual one.
    Hypervisor,
    /// Memory is on several nodes, each of which needs a worker.
    Spread { nodes: usize },
    /// Predictions that say that a machine of no memory takes less than no time.
    NegativeFixedCost {
        rows: usize,
        of: usize,
        worst: String,
        seconds: f64,
    },
    /// Predictions from sizes that were made at rates, in GB/s, which are far apart.
    RatesApart {
        rows: usize,
        of: usize,
        worst: String,
        least: f64,
        most: f64,
    },
    /// What prezero's own report on a machine warns of.
    OfMachine { row: String, text: String },
    /// Another monitor was ready, it said, when fewer hugepages were in use than its machine has.
    NotTaken { row: String, taken: u64, bytes: u64 },
    /// Measuring takes this part of the shortest pass, which `larger` makes longer.
    OwnCost {
        time: Duration,
        part: f64,
        larger: &'static str,
    },
    /// Passes in which clearing was over before the reads could be timed, of all.
    Repeated { passes: usize, of: usize },
    /// Looking at the clock takes this part of the shortest batch of reads.
    SlowClock { time: Duration, part: f64 },
    /// Figures that the same measurement may not give again; the worst of them, by which part it may be
    /// another, and how many runs would do, if that can be.
    Unrepeatable {
        figures: usize,
        of: usize,
        worst: String,
        apart: f64,
        runs: Option<usize>,
        option: &'static str,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeftOut { why } => {
                write!(f, "Left out: {why} (measure it on a machine that has it)")
            }
            Self::Plan(warning) => warning.fmt(f),
            Self::ThreadsRaised { asked, used } => write!(
                f,
                "{asked} threads asked for, {used} used: each node with memory needs one, and each thread a piece of it (--threads {used} says the same)"
            ),
            Self::Loose { workers } => write!(
                f,
                "{} not pinned to a CPU and may share one: let the process use all CPUs (taskset, cpuset)",
                match workers {
                    1 => "1 worker is".to_owned(),
                    workers => format!("{workers} workers are"),
                }
            ),
            Self::SharedCpus { threads, cpus } => write!(
                f,
                "{threads} threads share {cpus} CPUs: -t {cpus} or fewer"
            ),
            Self::OneCpu { cpu } => write!(
                f,
                "Reading and clearing take turns on CPU {cpu}: the figures are the scheduler's; let the process use another CPU (taskset, cpuset, --cpus)"
            ),
            Self::ShortPasses { time } => write!(
                f,
                "The shortest pass took {:.1} ms, which says little: a larger --memory",
                time.as_secs_f64() * 1e3
            ),
            Self::NoBaseline { name } => write!(
                f,
                "There are no ratios, because {name} was not measured: name a row with --baseline METHOD:CHUNK"
            ),
            Self::Idle { chunk, threads, bytes } => write!(
                f,
                "Chunks of {} are too large for {threads} threads to have equal shares of {}: measure more memory, or smaller chunks",
                ByteSize(*chunk),
                ByteSize(*bytes)
            ),
            Self::Noisy { rows, of, worst, spread } => write!(
                f,
                "{rows} of {of} rows vary by more than {:.0} % of their mean, {worst} by {:.0} %: end what else runs here, or raise --runs",
                NOISY * 100.0,
                spread * 100.0
            ),
            Self::Outliers { rows, of, first } => write!(
                f,
                "{rows} of {of} rows have samples far from their others, the first is {first}: something ran meanwhile; measure again on a quiet machine"
            ),
            Self::RatiosDisagree { rows, of, worst, of_means, of_rounds } => write!(
                f,
                "{rows} of {of} ratios depend on how they are taken, most that of {worst}: {of_means:.2} of the means, {of_rounds:.2} by rounds: the machine changed meanwhile; raise --runs"
            ),
            Self::FewRuns { runs } => write!(
                f,
                "A spread from {runs} runs says little: --runs 5 or more"
            ),
            Self::Busy { load, cpus } => write!(
                f,
                "The load average was {load:.1} with {cpus} CPUs when this began: wait until others are done"
            ),
            Self::LoadRose { before, after, own } => write!(
                f,
                "The load average rose from {before:.1} to {after:.1} while this was measured, of which this program explains {own:.1}: end what else runs here, and measure again"
            ),
            Self::Shared { part } => write!(
                f,
                "Other programs used {:.0} % of all CPU time while this was measured: end them, and measure again",
                part * 100.0
            ),
            Self::Stolen { part } => write!(
                f,
                "The hypervisor kept {:.1} % of the CPU time that was wanted for others while this was measured: use a machine with CPUs of its own, or raise --runs",
                part * 100.0
            ),
            Self::Throttled(throttled) => {
                f.write_str(&throttling(throttled, "while this was measured"))
            }
            Self::SlowFirstTouch { populate, clear } => write!(
                f,
                "Populating went at {populate:.1} GB/s where clearing goes at {clear:.1}: the first touch of memory that a hypervisor has to find; it is not in these figures, and touching the hugepages once after reserving them takes it out of others, too"
            ),
            Self::Hypervisor => f.write_str(
                "This machine is itself a virtual one: trust ratios more than figures, and compare within one run"
            ),
            Self::Spread { nodes } => write!(
                f,
                "No node has enough for the largest machine, so memory is on {nodes} nodes with a worker each: no row has one worker, as the published baseline has (measure smaller ones, with --memory, or give one node more pages)"
            ),
            Self::NegativeFixedCost { rows, of, worst, seconds } => write!(
                f,
                "{rows} of {of} predictions have a fixed cost below nothing, {worst} one of {seconds:.4} s: larger machines were slower for each GiB, which no line shows; measure more and larger sizes (--memory)"
            ),
            Self::RatesApart { rows, of, worst, least, most } => write!(
                f,
                "{rows} of {of} predictions are from sizes made at rates far apart, {worst} at {least:.1} to {most:.1} GB/s: small errors there are large ones in what is predicted; measure larger sizes (--memory)"
            ),
            Self::OfMachine { row, text } => write!(f, "A machine of {row}: {text}"),
            Self::NotTaken { row, taken, bytes } => write!(
                f,
                "{row} said that it was ready with only {} of {} in hugepages: its time is not that of a machine with its memory; look at its version and its options",
                ByteSize(*taken),
                ByteSize(*bytes)
            ),
            Self::OwnCost { time, part, larger } => write!(
                f,
                "The instrument's own work takes {:.1} µs of each pass, {:.1} % of the shortest: measure longer passes, with a larger {larger}",
                time.as_secs_f64() * 1e6,
                part * 100.0
            ),
            Self::Repeated { passes, of } => write!(
                f,
                "{passes} of {of} passes came to nothing, because clearing was over before the reads could be timed: take a larger --memory, or end what else runs here"
            ),
            Self::SlowClock { time, part } => write!(
                f,
                "Looking at the clock takes {} ns of each batch of reads, {:.1} % of the shortest: use a larger --working-set, or the clock source tsc (/sys/devices/system/clocksource/clocksource0/current_clocksource)",
                time.as_nanos(),
                part * 100.0
            ),
            Self::Unrepeatable { figures, of, worst, apart, runs, option } => {
                let (apart, agree) = (apart * 100.0, AGREE * 100.0);
                write!(
                    f,
                    "{figures} of {of} ratios may come out more than {agree:.0} % apart when measured again, most that of {worst} (±{apart:.1} %): "
                )?;
                match runs {
                    Some(runs) => write!(f, "use {option} {runs}, about, for {agree:.0} %"),
                    None => write!(
                        f,
                        "more than {MOST_RUNS} runs would not do: use a quieter machine"
                    ),
                }
            }
        }
    }
}

/// What to say about a quota that held threads back, and to do about it.
pub(crate) fn throttling(throttled: &Throttled, meanwhile: &str) -> String {
    let (cgroup, seconds) = (throttled.cgroup.display(), throttled.time.as_secs_f64());
    format!(
        "The CPU quota of {cgroup} held its threads back for {seconds:.3} s of CPU time {meanwhile} (raise its cpu.max, or use fewer --threads)"
    )
}

/// What the samples of all rows give away about the machine; each row has a name.
pub(crate) fn of_samples(rows: &[(String, Vec<f64>)]) -> Vec<Warning> {
    let mut found = Vec::new();
    let of = rows.len();
    let spread = |samples: &[f64]| Summary::of(samples).and_then(|row| row.spread());
    let noisy: Vec<(&String, f64)> = rows
        .iter()
        .filter_map(|(name, samples)| Some((name, spread(samples)?)))
        .filter(|(_, spread)| *spread > NOISY)
        .collect();
    if let Some((worst, spread)) = noisy.iter().max_by(|a, b| a.1.total_cmp(&b.1)) {
        found.push(Warning::Noisy {
            rows: noisy.len(),
            of,
            worst: (*worst).clone(),
            spread: *spread,
        });
    }
    let odd = rows.iter().filter(|(_, samples)| outliers(samples) > 0);
    let odd: Vec<&String> = odd.map(|(name, _)| name).collect();
    if let Some(first) = odd.first() {
        found.push(Warning::Outliers {
            rows: odd.len(),
            of,
            first: (*first).clone(),
        });
    }
    let runs = rows.iter().map(|(_, samples)| samples.len()).min();
    if let Some(runs) = runs.filter(|runs| *runs < FEW) {
        found.push(Warning::FewRuns { runs });
    }
    found
}

/// Ratios to the baseline, each of a name: that of the means, and the median of those of the rounds.
pub(crate) fn of_ratios(ratios: &[(String, f64, f64)]) -> Option<Warning> {
    let apart = |of_means: f64, of_rounds: f64| (of_means / of_rounds).ln().abs();
    let far = |ratio: &&(String, f64, f64)| apart(ratio.1, ratio.2) > DISAGREE.ln_1p();
    let far: Vec<_> = ratios.iter().filter(far).collect();
    let worst = far
        .iter()
        .max_by(|a, b| apart(a.1, a.2).total_cmp(&apart(b.1, b.2)))?;
    Some(Warning::RatiosDisagree {
        rows: far.len(),
        of: ratios.len(),
        worst: worst.0.clone(),
        of_means: worst.1,
        of_rounds: worst.2,
    })
}

/// What the machine is and does before a measurement begins.
pub(crate) fn of_machine(host: &Host) -> Vec<Warning> {
    let mut found = Vec::new();
    let load = Load::read(Path::new("/"));
    found.extend(load.and_then(|load| busy(load, host.allowed_cpus.len())));
    if host.cpu.hypervisor {
        found.push(Warning::Hypervisor);
    }
    found
}

fn busy(load: Load, cpus: usize) -> Option<Warning> {
    let load = load.now();
    #[allow(clippy::cast_precision_loss)] // a number of CPUs
    let many = cpus as f64 / 2.0;
    (load > many).then_some(Warning::Busy { load, cpus })
}

/// `larger` is the option that makes passes longer.
pub(crate) fn of_own_cost(
    own: &OwnCost,
    shortest: Duration,
    larger: &'static str,
) -> Option<Warning> {
    let (time, part) = (own.time, own.part_of(shortest));
    (part > OWN_COST).then_some(Warning::OwnCost { time, part, larger })
}

/// Of the looks at the clock between batches of reads, the shortest of which took so long.
pub(crate) fn of_clock(own: &OwnCost, shortest: Duration) -> Option<Warning> {
    let (time, part) = (own.time, own.part_of(shortest));
    (part > OWN_COST).then_some(Warning::SlowClock { time, part })
}

/// So many passes of a measurement had to be run again, and so many came to something.
pub(crate) fn of_repeated(repeated: usize, passes: usize) -> Option<Warning> {
    let of = passes + repeated;
    (repeated * MANY_REPEATED > of).then_some(Warning::Repeated {
        passes: repeated,
        of,
    })
}

/// Rates of populating and of the slowest clear with the same threads, in GB/s.
pub(crate) fn first_touch(populate: f64, clear: f64) -> Option<Warning> {
    (populate * SLOW_TOUCH < clear).then_some(Warning::SlowFirstTouch { populate, clear })
}

#[cfg(test)]
mod tests;
