//! `prezero bench neighbour`: what clearing memory costs those who run next to it.

use std::process::ExitCode;

use prezero_clear::Method;
use prezero_host::{Host, IdSet};
use prezero_memory::{ByteSize, Cancel, Class, Control, MemorySpec, NodeChoice, Policy};

use super::choice;
use super::clear::spec;
use super::result_file::ResultFiles;
use super::session::{self, step, warn};
use crate::cli::BenchNeighbourArgs;
use crate::failure::Failure;
use crate::measure::clear::{By, Memory};
use crate::measure::cpus;
use crate::measure::machine::Watch;
use crate::measure::neighbour::verdict::Verdict;
use crate::measure::neighbour::{self, Chase, How, Measured, Outcome, Place, Sharing};
use crate::measure::repeat::{self, Repeat};
use crate::measure::stats::Spread;
use crate::measure::warning::{self, Warning};
use crate::output;
use crate::report::bench_neighbour::{BackgroundFacts, NeighbourReport, RowFacts, VerdictFacts};
use crate::report::own_cost::InstrumentFacts;

/// Below this a pass says little.
const SHORT_MS: u64 = 5;

/// Runs the command and prints its report.
pub(crate) fn main(args: &BenchNeighbourArgs) -> ExitCode {
    session::main(
        NeighbourReport::new(),
        args.json,
        |cancel, report| run(args, cancel, report),
        output::bench_neighbour::neighbour,
    )
}

fn run(
    args: &BenchNeighbourArgs,
    cancel: &Cancel,
    report: &mut NeighbourReport,
) -> Result<(), Failure> {
    // What cannot be is refused before anything is measured.
    let (methods, left_out) = methods(&args.method)?;
    let sizes = sizes(&args.working_set)?;
    let mut spec = spec(&args.memory, None)?;
    let files = ResultFiles::open(args.csv.as_deref(), args.chart.as_deref())?;
    let host = session::probe(report);
    cpus::check("--threads", args.threads.get(), &host)?;
    if let Some(rate) = args.rate {
        check_rate(rate, args.threads.get(), spec.bytes)?;
    }
    let place = place(&host, args)?;
    check_memory(&host, &sizes)?;
    near(&host, &place, &mut spec);
    report.cpus = Some((&place).into());
    warn(report, left_out);
    warn(report, warning::of_machine(&host));
    if place.is_one_cpu() {
        let cpu = place.foreground;
        warn(report, [Warning::OneCpu { cpu }]);
    }

    let control = Control {
        cancel: Some(cancel),
        ..Control::default()
    };
    let mut memory = step("populate", spec.bytes, |done| {
        Memory::take(&host, spec, &[], control, done)
    })?;
    let (bytes, page) = (memory.bytes(), memory.page_size().bytes());
    report.background = Some(BackgroundFacts::new(bytes, page, args.rate));
    let plan = memory.warnings().iter().cloned().map(Warning::Plan);
    warn(report, plan.collect::<Vec<_>>());
    let mut sets = sets(&sizes)?;
    report.working_sets = sets.iter().map(Into::into).collect();

    let rows = neighbour::rows(sets.len(), &methods);
    let runs = args.runs.get();
    let passes = rows.len() as u64 * (runs as u64 + 1);
    let how = How {
        place: &place,
        rate: args.rate,
        cancel,
    };
    let watch = Watch::here(&host);
    let outcome = step("measure", passes.saturating_mul(bytes), |done| {
        let progress = |passes: u64| done(passes.saturating_mul(bytes));
        neighbour::measure(&mut memory, &mut sets, &rows, runs, how, &progress)
    })?;
    session::watched(report, &watch);
    let measured = &outcome.measured;
    report.rows = (measured.iter())
        .map(|row| RowFacts::of(row, sizes[row.row.set]))
        .collect();
    let verdicts = (0..sizes.len()).filter_map(|set| Verdict::of(set, measured));
    report.verdicts = verdicts
        .map(|verdict| VerdictFacts::of(&verdict, sizes[verdict.set]))
        .collect();
    report.counters_unavailable = outcome.uncounted.clone().map(Into::into);
    if let Some((own, shortest)) = &outcome.own {
        report.instrument = Some(InstrumentFacts::new(own, *shortest));
    }
    warn(report, of_rows(&outcome, &sizes));
    files.write(
        |file| output::csv::neighbour(file, report),
        || output::bench_neighbour::chart(report),
    )
}

/// The methods named, or all but the one that is for CPUs without others.
fn methods(names: &[String]) -> Result<(Vec<Method>, Vec<Warning>), Failure> {
    let (methods, left_out) = choice::methods(names)?;
    if methods.contains(&By::Measuring) {
        return Err(Failure {
            class: Class::Usage,
            message: format!("{} is no method of its own here", By::MEASURING),
            fix: Some("name the methods, or leave --method out".to_owned()),
        });
    }
    let methods = methods.into_iter().filter_map(By::method);
    let methods = methods.filter(|method| !names.is_empty() || method.name() != "portable");
    Ok((methods.collect(), left_out))
}

/// Working sets in whole base pages, each once.
fn sizes(asked: &[u64]) -> Result<Vec<u64>, Failure> {
    let mut sizes = Vec::new();
    for &size in asked {
        if !size.is_multiple_of(4096) {
            let near = ByteSize((size / 4096).max(1) * 4096).to_spec();
            return Err(Failure {
                class: Class::Usage,
                message: format!(
                    "A working set of {} is not a multiple of 4 KiB",
                    ByteSize(size)
                ),
                fix: Some(format!("--working-set {near}")),
            });
        }
        if !sizes.contains(&size) {
            sizes.push(size);
        }
    }
    Ok(sizes)
}

fn place(host: &Host, args: &BenchNeighbourArgs) -> Result<Place, Failure> {
    let threads = args.threads.get();
    let (first, others) = match args.cpus.split_first() {
        None => {
            let cpus: Vec<u32> = host.unasked_cpus().iter().collect();
            let sharing = cpus.first().copied().map(Sharing::of).unwrap_or_default();
            return neighbour::place(&cpus, threads, &sharing).ok_or_else(|| Failure {
                class: Class::Host,
                message: "The host does not say which CPUs this process may use".to_owned(),
                fix: Some("--cpus 0,1".to_owned()),
            });
        }
        Some(split) => split,
    };
    let allowed = &host.allowed_cpus;
    if let Some(cpu) = args.cpus.iter().find(|cpu| !allowed.contains(**cpu)) {
        return Err(Failure {
            class: Class::Usage,
            message: format!("CPU {cpu} is not one that this process may use ({allowed})"),
            fix: Some(format!("choose among {allowed}")),
        });
    }
    // One CPU for both is what was asked for.
    let others = if others.is_empty() {
        &args.cpus
    } else {
        others
    };
    Ok(neighbour::named(
        *first,
        others,
        threads,
        &Sharing::of(*first),
    ))
}

/// Where the request names no node, memory is cleared on the node of the CPU that clears it.
fn near(host: &Host, place: &Place, spec: &mut MemorySpec) {
    if host.nodes.len() < 2 || spec.nodes.is_some() {
        return;
    }
    let cpu = place
        .background
        .first()
        .copied()
        .unwrap_or(place.foreground);
    let node = host.nodes.iter().find(|node| node.cpus.contains(cpu));
    spec.nodes = node.map(|node| NodeChoice {
        policy: Policy::Preferred,
        nodes: IdSet::from_iter([node.id]),
    });
}

/// A background that needs minutes for what is not measured is a mistake.
fn check_rate(rate: u64, threads: usize, bytes: u64) -> Result<(), Failure> {
    let slowest = neighbour::slowest(threads, bytes);
    if rate >= slowest {
        return Ok(());
    }
    let fix = ByteSize(slowest.next_multiple_of(1 << 20)).to_spec();
    Err(Failure {
        class: Class::Usage,
        message: format!(
            "At {} a second each pass over {} would begin to count after more than 10 s only",
            ByteSize(rate),
            ByteSize(bytes)
        ),
        fix: Some(format!("--rate {fix}, or a smaller --memory")),
    })
}

fn check_memory(host: &Host, sizes: &[u64]) -> Result<(), Failure> {
    let needed = sizes.iter().copied().fold(0, u64::saturating_add);
    match host.mem_available {
        Some(available) if needed > available => Err(Failure {
            class: Class::Shortage,
            message: format!(
                "The working sets take {} of ordinary memory, and {} is available (MemAvailable)",
                ByteSize(needed),
                ByteSize(available)
            ),
            fix: Some("--working-set with smaller or fewer sizes".to_owned()),
        }),
        _ => Ok(()),
    }
}

fn sets(sizes: &[u64]) -> Result<Vec<Chase>, Failure> {
    let sets = sizes.iter().map(|size| {
        Chase::new(*size).map_err(|error| Failure {
            class: Class::Shortage,
            message: format!("Mapping a working set of {}: {error}", ByteSize(*size)),
            fix: Some("--working-set with smaller or fewer sizes".to_owned()),
        })
    });
    sets.collect()
}

fn of_rows(outcome: &Outcome, sizes: &[u64]) -> Vec<Warning> {
    let mut found = Vec::new();
    if outcome.loose > 0 {
        let workers = outcome.loose;
        found.push(Warning::Loose { workers });
    }
    let measured = &outcome.measured;
    let repeated = measured.iter().map(|row| row.repeated).sum();
    let own = outcome.own.iter();
    found.extend(own.filter_map(|(own, shortest)| warning::of_clock(own, *shortest)));
    found.extend(warning::of_repeated(repeated, outcome.passes));
    let rows = measured.iter().map(|row| {
        let figures = row.samples.iter().map(neighbour::ns_per_access).collect();
        (row.row.name(sizes[row.row.set]), figures)
    });
    found.extend(warning::of_samples(&rows.collect::<Vec<_>>()));
    found.extend(repeat::warn(&repeats(measured, sizes), "--runs"));
    let times = measured.iter().flat_map(|row| &row.samples);
    let shortest = times.map(|sample| sample.time).min();
    found.extend(
        shortest
            .filter(|time| time.as_millis() < u128::from(SHORT_MS))
            .map(|time| Warning::ShortPasses { time }),
    );
    found
}

/// The slowdowns as the ratios that they are of. What is lost follows from the same samples, and is near zero where
/// a method is good: in terms of itself it would be uncertain exactly there.
fn repeats(measured: &[Measured], sizes: &[u64]) -> Vec<Repeat> {
    let beside = measured.iter().filter_map(|row| {
        let (name, runs) = (row.row.name(sizes[row.row.set]), row.samples.len());
        let slower = row.figures.beside?.slowdown_percent;
        let times = Spread {
            mean: 1.0 + slower.mean / 100.0,
            stdev: slower.stdev.map(|stdev| stdev / 100.0),
        };
        Repeat::of_figure(format!("the slowdown, {name}"), times, runs)
    });
    beside.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_methods_but_the_portable_one_are_measured_unless_it_is_named() {
        let (found, _) = methods(&[]).expect("every CPU has some");
        assert!(found.contains(&Method::cached()));
        assert!(found.iter().all(|method| method.name() != "portable"));
        let (found, _) = methods(&["portable".to_owned()]).expect("everywhere");
        assert_eq!(found.len(), 1);
        let failure = methods(&["auto".to_owned()]).expect_err("no method");
        assert_eq!(failure.class, Class::Usage);
    }

    #[test]
    fn working_sets_are_whole_pages_and_each_once() {
        assert_eq!(
            sizes(&[8192, 4096, 8192]).expect("whole pages"),
            [8192, 4096]
        );
        let failure = sizes(&[4096, 5000]).expect_err("not whole");
        assert_eq!(failure.fix.as_deref(), Some("--working-set 4K"));
    }

    #[test]
    fn a_rate_that_takes_ages_is_refused_with_one_that_does_not() {
        check_rate(7 << 20, 1, 1 << 30).expect("9 s");
        let failure = check_rate(1, 1, 1 << 30).expect_err("two years");
        assert_eq!(failure.class, Class::Usage);
        let fix = failure.fix.as_deref();
        assert_eq!(fix, Some("--rate 7M, or a smaller --memory"));
        // Each thread clears a piece at a time.
        check_rate(4 << 20, 8, 64 << 20).expect_err("a piece of each in 4 s");
    }

    #[test]
    fn more_than_the_memory_is_a_shortage() {
        let host = Host {
            mem_available: Some(64 << 20),
            ..Host::default()
        };
        check_memory(&host, &[32 << 20, 32 << 20]).expect("64 MiB");
        let failure = check_memory(&host, &[32 << 20, 33 << 20]).expect_err("65 MiB");
        assert_eq!(failure.class, Class::Shortage);
        assert!(failure.message.contains("65 MiB"), "{}", failure.message);
    }
}
