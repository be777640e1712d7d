//! `prezero bench mmap`: how fast the kernel gives fresh memory.

use std::process::ExitCode;

use prezero_host::PageSize;
use prezero_memory::{ByteSize, Cancel, Class};

use super::result_file::ResultFiles;
use super::session::{self, step, warn};
use crate::cli::{BenchMmapArgs, MmapFunction};
use crate::failure::Failure;
use crate::measure::cpus;
use crate::measure::machine::Watch;
use crate::measure::mmap::{self, Function, Measured, Work};
use crate::measure::warning::{self, Warning};
use crate::output;
use crate::report::bench_mmap::{MmapReport, RowFacts};
use crate::report::own_cost::InstrumentFacts;

/// Runs the command and prints its report.
pub(crate) fn main(args: &BenchMmapArgs) -> ExitCode {
    session::main(
        MmapReport::new(),
        args.json,
        |cancel, report| run(args, cancel, report),
        output::bench_mmap::mmap,
    )
}

fn run(args: &BenchMmapArgs, cancel: &Cancel, report: &mut MmapReport) -> Result<(), Failure> {
    // What cannot be is refused before anything is measured.
    let (page, bytes) = pages(args.page, args.size)?;
    let files = ResultFiles::open(args.csv.as_deref(), args.chart.as_deref())?;
    let host = session::probe(report);
    cpus::check("-t", args.threads.get(), &host)?;
    let work = Work {
        page,
        bytes,
        cpus: cpus::in_turn(&host, args.threads.get()),
        cancel,
    };
    mmap::check(&host, &work)?;
    report.cpus.clone_from(&work.cpus);
    warn(report, warning::of_machine(&host));
    let cpus = host.unasked_cpus().len();
    if work.cpus.len() > cpus {
        let threads = work.cpus.len();
        warn(report, [Warning::SharedCpus { threads, cpus }]);
    }

    let functions = match args.function {
        MmapFunction::Demand => &[Function::Demand][..],
        MmapFunction::Populate => &[Function::Populate],
        MmapFunction::All => &Function::ALL,
    };
    let loops = args.loops.get();
    let passes = functions.len() as u64 * (loops as u64 + 1);
    let total = work.all_bytes().saturating_mul(passes);
    let watch = Watch::here(&host);
    let outcome = step("mmap", total, |done| {
        mmap::measure(&work, functions, loops, done)
    })?;
    session::watched(report, &watch);
    report.rows = (outcome.measured.iter())
        .map(|measured| RowFacts::of(measured, &work))
        .collect();
    let (own, shortest) = &outcome.own;
    report.instrument = Some(InstrumentFacts::new(own, *shortest));
    warn(report, warning::of_own_cost(own, *shortest, "-s"));
    report.counters_unavailable = outcome.uncounted.map(Into::into);
    if outcome.loose > 0 {
        let workers = outcome.loose;
        warn(report, [Warning::Loose { workers }]);
    }
    warn(report, warning::of_samples(&samples(&outcome.measured)));
    files.write(
        |file| output::csv::mmap(file, &report.rows),
        || output::bench_mmap::chart(report),
    )
}

fn samples(measured: &[Measured]) -> Vec<(String, Vec<f64>)> {
    let rows = measured.iter();
    rows.map(|row| (row.function.name().to_owned(), row.gbps.clone()))
        .collect()
}

/// A page size, and how many bytes in whole pages.
fn pages(page: u64, bytes: u64) -> Result<(PageSize, u64), Failure> {
    let refused = |message, fix| Failure {
        class: Class::Usage,
        message,
        fix: Some(fix),
    };
    let Some(size) = PageSize::new(page) else {
        let message = format!(
            "--page {}: it is no size of a page",
            ByteSize(page).to_spec()
        );
        return Err(refused(message, "--page 2M".to_owned()));
    };
    if size.is_aligned(bytes) {
        return Ok((size, bytes));
    }
    let (below, above) = (size.round_down(bytes), size.round_up(bytes));
    let near = [Some(below).filter(|below| *below > 0), above];
    let near: Vec<String> = (near.into_iter().flatten())
        .map(|bytes| format!("-s {}", ByteSize(bytes).to_spec()))
        .collect();
    Err(refused(
        format!("{} is not a whole number of {size} pages", ByteSize(bytes)),
        near.join(" or "),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_pages() {
        assert_eq!(
            pages(2 << 20, 64 << 20).expect("32 pages"),
            (PageSize::HUGE_2M, 64 << 20)
        );
        let fix = |page, bytes| pages(page, bytes).expect_err("refused").fix;
        assert_eq!(fix(2 << 20, 5 << 20).as_deref(), Some("-s 4M or -s 6M"));
        assert_eq!(fix(1 << 30, 5 << 20).as_deref(), Some("-s 1G"));
        assert_eq!(fix(3 << 20, 6 << 20).as_deref(), Some("--page 2M"));
    }
}
