//! `prezero bench clear`: how fast this host clears memory, and how.

use std::process::ExitCode;
use std::time::Duration;

use prezero_host::PageSize;
use prezero_memory::{ByteSize, Cancel, Class, Control, Hugepages, MemorySpec};

use super::choice::{self, Baseline};
use super::result_file::ResultFiles;
use super::session::{self, step, warn};
use crate::cli::BenchClearArgs;
use crate::commands::request::resolved;
use crate::failure::Failure;
use crate::measure::clear::{self, Measured, Memory, crossing, fence};
use crate::measure::machine::Watch;
use crate::measure::own_cost::OwnCost;
use crate::measure::repeat::{self, Repeat};
use crate::measure::warning::{self, Warning};
use crate::output;
use crate::report::bench_clear::ClearReport;
use crate::report::own_cost::InstrumentFacts;

/// Runs the command and prints its report.
pub(crate) fn main(args: &BenchClearArgs) -> ExitCode {
    session::main(
        ClearReport::new(),
        args.json,
        |cancel, report| run(args, cancel, report),
        output::bench_clear::clear,
    )
}

fn run(args: &BenchClearArgs, cancel: &Cancel, report: &mut ClearReport) -> Result<(), Failure> {
    // What cannot be is refused before anything is measured.
    let (methods, left_out) = choice::methods(&args.method)?;
    let chunks: Vec<Option<u64>> = choice::chunks(&args.chunk)?.into_iter().map(Some).collect();
    let baseline = Baseline::new(args.baseline.as_deref())?;
    baseline.among(&clear::rows(&methods, &chunks, &[1]))?.ok();
    let spec = spec(&args.memory, args.page)?;
    let files = ResultFiles::open(args.csv.as_deref(), args.chart.as_deref())?;

    let host = session::probe(report);
    warn(report, left_out);
    warn(report, warning::of_machine(&host));
    let control = Control {
        cancel: Some(cancel),
        ..Control::default()
    };
    let asked: Vec<usize> = args.threads.iter().map(|threads| threads.get()).collect();
    let wanted = if asked.is_empty() { &[1][..] } else { &asked };
    let mut memory = step("populate", spec.bytes, |done| {
        Memory::take(&host, spec, wanted, control, done)
    })?;
    report.counters_unavailable = memory.count().err().map(Into::into);
    let threads = threads(&memory, &asked, report);
    warn(report, of_memory(&memory, &chunks, &threads));

    let watch = Watch::here(&host);
    let rows = clear::rows(&methods, &chunks, &threads);
    let runs = args.runs.get();
    let work = clear::work(memory.bytes(), rows.len(), runs);
    let measured = step("clear", work, |done| {
        clear::measure(&mut memory, &rows, runs, done)
    })?;
    let fewest = measured.iter().filter(|row| row.row.threads == threads[0]);
    if let Some((cached, uncached)) = clear::best_of_each(fewest) {
        let kept = memory.keep_this_thread();
        // A process that can pin no thread has been told so.
        if !kept.is_pinned() && memory.loose() == 0 {
            warn(report, [Warning::Loose { workers: 1 }]);
        }
        report.crossing = Some((&crossing::measure(&mut memory, cached, uncached)?).into());
        report.fence = fence::measure(&mut memory, uncached)?
            .as_ref()
            .map(Into::into);
    }
    let own = own_cost(&mut memory, &measured)?;
    session::watched(report, &watch);
    let baseline = match baseline.among(&rows)? {
        Ok(row) => Some(row),
        Err(missed) => {
            warn(report, [missed]);
            None
        }
    };
    let baseline = choice::find(&measured, baseline);
    report.set_rows(
        &measured,
        baseline,
        memory.page_size().bytes(),
        memory.bytes(),
    );
    report.populate_gbps = Some(memory.populate_gbps());
    warn(report, of_rows(&measured, baseline, &memory));
    if let Some((own, shortest)) = own {
        report.instrument = Some(InstrumentFacts::new(&own, shortest));
        warn(report, warning::of_own_cost(&own, shortest, "--memory"));
    }
    files.write(
        |file| output::csv::clear(file, &report.rows),
        || output::bench_clear::chart(report),
    )
}

/// What was asked for, on hugepages unless it says otherwise: ordinary memory is cleared at another
/// speed.
pub(super) fn spec(memory: &str, page: Option<u64>) -> Result<MemorySpec, Failure> {
    let mut spec: MemorySpec = memory.parse()?;
    if spec.hugepages == Hugepages::Auto {
        spec.hugepages = Hugepages::On;
    }
    spec.path = spec.path.take().map(resolved);
    let Some(bytes) = page else {
        return Ok(spec);
    };
    let refused = |why: String, fix: &str| Failure {
        class: Class::Usage,
        message: format!("--page {}: {why}", ByteSize(bytes).to_spec()),
        fix: Some(fix.to_owned()),
    };
    let page = PageSize::new(bytes)
        .ok_or_else(|| refused("it is no size of a page".to_owned(), "--page 2M"))?;
    if spec.hugepages == Hugepages::Off || spec.hugepage_size.is_some_and(|other| other != page) {
        return Err(refused(
            format!("memory '{memory}' says otherwise"),
            "leave one of them out",
        ));
    }
    spec.hugepage_size = Some(page);
    Ok(spec)
}

/// The numbers of threads that there really are, each once, the smallest first.
fn threads(memory: &Memory<'_>, asked: &[usize], report: &mut ClearReport) -> Vec<usize> {
    let mut threads = Vec::new();
    for &asked in asked {
        let used = memory.threads(asked);
        if used != asked {
            warn(report, [Warning::ThreadsRaised { asked, used }]);
        }
        threads.push(used);
    }
    if threads.is_empty() {
        threads = vec![memory.threads(1), memory.all_threads()];
    }
    threads.sort_unstable();
    threads.dedup();
    threads
}

fn of_memory(memory: &Memory<'_>, chunks: &[Option<u64>], threads: &[usize]) -> Vec<Warning> {
    let mut found: Vec<Warning> = memory
        .warnings()
        .iter()
        .cloned()
        .map(Warning::Plan)
        .collect();
    if memory.loose() > 0 {
        found.push(Warning::Loose {
            workers: memory.loose(),
        });
    }
    let bytes = memory.bytes();
    let most = threads.iter().copied().max().unwrap_or(1);
    let idle = chunks.iter().flatten().filter(|chunk| {
        let claimed = memory.page_size().bytes().max(**chunk);
        let (pieces, threads) = (bytes.div_ceil(claimed), most as u64);
        // Of many pieces, one more or less is nothing.
        pieces < 4 * threads && !pieces.is_multiple_of(threads)
    });
    found.extend(idle.min().map(|&chunk| Warning::Idle {
        chunk,
        threads: most,
        bytes,
    }));
    found
}

/// What measuring adds to the shortest pass, and how long that took.
fn own_cost(
    memory: &mut Memory<'_>,
    measured: &[Measured],
) -> Result<Option<(OwnCost, Duration)>, Failure> {
    let shortest = measured
        .iter()
        .filter_map(|row| Some((row.samples.iter().min()?, row)));
    let Some((shortest, row)) = shortest.min_by_key(|(time, _)| *time) else {
        return Ok(None);
    };
    let own = OwnCost::measure(|| memory.empty_pass(&row.row))?;
    Ok(Some((own, *shortest)))
}

fn of_rows(
    measured: &[Measured],
    baseline: Option<&Measured>,
    memory: &Memory<'_>,
) -> Vec<Warning> {
    let rows: Vec<(String, Vec<f64>)> = measured
        .iter()
        .map(|row| (row.row.name(), row.gbps.clone()))
        .collect();
    let mut found = warning::of_samples(&rows);
    if let Some(baseline) = baseline {
        let others = measured.iter().filter(|row| row.row != baseline.row);
        let ratios: Vec<Repeat> = others
            .filter_map(|row| Repeat::of_ratio(row.row.name(), &row.gbps, &baseline.gbps))
            .collect();
        found.extend(repeat::warn(&ratios, "--runs"));
    }
    let all = memory.all_threads();
    let with_all = measured.iter().filter(|row| row.row.threads == all);
    let slowest = with_all.map(|row| row.summary.mean).min_by(f64::total_cmp);
    found.extend(slowest.and_then(|clear| warning::first_touch(memory.populate_gbps(), clear)));
    found
}
