//! The long calibration: every method with one and with all threads, the crossing, and what a run would
//! choose. A run finds the same out on the first pieces of what it has to clear, in milliseconds.

use prezero_clear::Method;
use prezero_host::{Host, HugepagePool, PageSize};
use prezero_memory::{Class, Control, Hugepages, MemorySpec};

use super::crossing::{self, Crossing};
use super::{By, Measured, Memory, best_of_each, measure, rows, thread_count, work};
use crate::failure::Failure;
use crate::measure::stats::Ratio;
use crate::measure::warning::{self, Warning};

/// Enough for all CPUs to be at their steady rate.
const MOST: u64 = 1 << 30;
/// With less, the crossing has too few sizes.
const LEAST: u64 = 64 << 20;
/// Of ordinary memory: it belongs to whatever else runs here, too.
const MOST_ORDINARY: u64 = 256 << 20;
const RUNS: usize = 5;

/// What was measured.
#[derive(Clone, Debug)]
pub(crate) struct Calibration {
    pub(crate) bytes: u64,
    pub(crate) page_size: PageSize,
    pub(crate) hugepages: bool,
    pub(crate) rows: Vec<Measured>,
    /// `None` where this CPU has no uncached stores.
    pub(crate) crossing: Option<Crossing>,
    pub(crate) choice: Choice,
    pub(crate) warnings: Vec<Warning>,
}

/// What a run would clear with, and why.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choice {
    pub(crate) method: Method,
    pub(crate) why: String,
}

/// Takes memory, measures, and gives it back. `progress` is told how many bytes of how many are done.
pub(crate) fn calibrate(
    host: &Host,
    control: Control<'_>,
    progress: &dyn Fn(u64, u64),
) -> Result<Calibration, Failure> {
    let mut memory = take(host, control)?;
    let methods: Vec<By> = Method::available().map(By::Name).collect();
    let mut threads = vec![memory.threads(1), memory.all_threads()];
    threads.dedup();
    // In chunks as large as those of a run.
    let rows = rows(&methods, &[None], &threads);
    let total = work(memory.bytes(), rows.len(), RUNS);
    let measured = measure(&mut memory, &rows, RUNS, &|done| progress(done, total))?;
    let kept = memory.keep_this_thread();
    let crossing = match best_of_each(tried(&measured, threads[0])) {
        Some((cached, uncached)) => Some(crossing::measure(&mut memory, cached, uncached)?),
        None => None,
    };
    drop(kept);
    let names = measured
        .iter()
        .map(|row| (row.row.name(), row.gbps.clone()));
    let mut warnings = warning::of_machine(host);
    warnings.extend(warning::of_samples(&names.collect::<Vec<_>>()));
    Ok(Calibration {
        bytes: memory.bytes(),
        page_size: memory.page_size(),
        hugepages: memory.is_hugetlb(),
        choice: choice(&measured, memory.all_threads()),
        rows: measured,
        crossing,
        warnings,
    })
}

/// Free hugepages; where there are too few, or a limit is in the way, ordinary memory.
fn take<'a>(host: &Host, control: Control<'a>) -> Result<Memory<'a>, Failure> {
    let hugepages = host.pools.iter().filter_map(|pool| {
        let bytes = free(pool).min(MOST);
        (bytes >= LEAST).then(|| MemorySpec {
            hugepages: Hugepages::On,
            hugepage_size: Some(pool.page_size),
            ..MemorySpec::new(pool.page_size.round_down(bytes))
        })
    });
    // The smallest pages that there are: more hosts have them, and larger ones are cleared alike.
    if let Some(spec) = hugepages.min_by_key(|spec| spec.hugepage_size) {
        match Memory::take(host, spec, &[1], control, &|_| ()) {
            Err(failure) if failure.class == Class::Shortage => {}
            taken => return taken,
        }
    }
    let bytes = host
        .mem_available
        .map_or(LEAST, |free| (free / 4).clamp(LEAST, MOST_ORDINARY));
    let spec = MemorySpec {
        hugepages: Hugepages::Off,
        ..MemorySpec::new(PageSize::HUGE_2M.round_down(bytes))
    };
    Memory::take(host, spec, &[1], control, &|_| ())
}

fn free(pool: &HugepagePool) -> u64 {
    pool.available().saturating_mul(pool.page_size.bytes())
}

/// The rows with so many threads, of methods that a run tries: the portable loop is none.
fn tried(measured: &[Measured], threads: usize) -> impl Iterator<Item = &Measured> + Clone {
    let rows = measured.iter();
    rows.filter(move |row| row.row.threads == threads && row.row.method.name() != "portable")
}

/// The fastest method with all threads.
fn choice(measured: &[Measured], threads: usize) -> Choice {
    let tried = || tried(measured, threads);
    let best = Measured::best(tried().filter(|row| row.is_uncached()));
    let cached = Measured::best(tried().filter(|row| !row.is_uncached()));
    let all = thread_count(threads);
    match (best, cached) {
        (Some(best), Some(cached)) if best.summary.mean > cached.summary.mean => {
            let method = best.row.method.method().unwrap_or_else(Method::cached);
            let ratio = Ratio::of(&best.summary, &cached.summary).mean;
            let (name, cached) = (best.row.method.name(), cached.row.method.name());
            let why = format!(
                "uncached stores ({name}) are {ratio:.1} times as fast as the best cached ones ({cached}) here, with {all}"
            );
            Choice { method, why }
        }
        (Some(best), Some(cached)) => {
            let method = cached.row.method.method().unwrap_or_else(Method::cached);
            let ratio = Ratio::of(&best.summary, &cached.summary).mean;
            let (name, best) = (cached.row.method.name(), best.row.method.name());
            let why = format!(
                "cached stores ({name}) are not slower here: the best uncached ones ({best}) reach {ratio:.2} of their rate, with {all}"
            );
            Choice { method, why }
        }
        (_, cached) => Choice {
            method: (cached.and_then(|cached| cached.row.method.method()))
                .unwrap_or_else(Method::cached),
            why: "this CPU has no uncached stores that prezero knows".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::measure::clear::Row;

    /// A row of one pass at so many GB/s.
    fn row(method: Method, threads: usize, gbps: u64) -> Measured {
        let row = Row {
            method: By::Name(method),
            chunk: None,
            threads,
        };
        Measured::new(row, gbps * 1_000_000_000, vec![Duration::from_secs(1)]).expect("a sample")
    }

    fn uncached() -> Option<Method> {
        Method::available().find(|method| method.stores() == prezero_clear::Stores::Uncached)
    }

    #[test]
    fn uncached_stores_are_chosen_where_they_win_with_all_threads() {
        let Some(uncached) = uncached() else { return };
        let (cached, portable) = (
            Method::cached(),
            Method::named("portable").expect("everywhere"),
        );
        let rows = [
            row(cached, 1, 90),
            row(uncached, 2, 25),
            row(cached, 2, 10),
            row(portable, 2, 99),
        ];
        let choice = choice(&rows, 2);
        assert_eq!(choice.method, uncached);
        assert!(choice.why.contains("2.5 times"), "{}", choice.why);
    }

    #[test]
    fn cached_stores_are_chosen_where_uncached_ones_are_slow() {
        let Some(uncached) = uncached() else { return };
        let rows = [row(uncached, 2, 6), row(Method::cached(), 2, 10)];
        let choice = choice(&rows, 2);
        assert_eq!(choice.method, Method::cached());
        assert!(
            choice.why.contains("are not slower here") && choice.why.contains("0.60"),
            "{}",
            choice.why
        );
    }

    #[test]
    fn a_cpu_without_uncached_stores_has_its_cached_ones() {
        let choice = choice(&[row(Method::cached(), 1, 10)], 1);
        assert_eq!(choice.method, Method::cached());
        assert!(choice.why.contains("no uncached stores"), "{}", choice.why);
    }
}
