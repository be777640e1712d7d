//! What a fence costs: one for each hugepage against one for everything.
//!
//!     cargo bench -p prezero-clear --bench fence -- [--size 512M] [--rounds 11]
//!
//! The cost is the mean of the differences within a round; below the standard deviation of the passes it does not matter
//! how often a worker fences.

#[path = "../measuring/mod.rs"]
mod measuring;

use std::process::ExitCode;

use prezero_clear::{Clearing, Coherent, Incoherent, Method, Span, Stores};

use measuring::{Benchmark, DIRT, HUGEPAGE, Memory, Result, Run, median, time};

fn main() -> ExitCode {
    let benchmark = Benchmark {
        name: "fence",
        size: 512 << 20,
        rounds: 11,
    };
    benchmark.run(measure)
}

fn measure(run: &Run, memory: &mut Memory) -> Result<()> {
    println!("              one each, ms    one for all, ms      cost, ms");
    println!("method     median        σ   median        σ");
    for method in Method::available().filter(|method| method.stores() == Stores::Uncached) {
        let how = Clearing::new(method);
        let (mut each, mut all, mut cost) = (Vec::new(), Vec::new(), Vec::new());
        // The round before the first is not counted.
        for round in 0..=run.rounds {
            run.check_stopped()?;
            let (one_each, one_for_all) = if round % 2 == 0 {
                let one_each = pass(memory, |span| span.clear(&how).fence(), |receipts| receipts)?;
                (
                    one_each,
                    pass(memory, |span| span.clear(&how), Incoherent::fence_all)?,
                )
            } else {
                let one_for_all = pass(memory, |span| span.clear(&how), Incoherent::fence_all)?;
                (
                    pass(memory, |span| span.clear(&how).fence(), |receipts| receipts)?,
                    one_for_all,
                )
            };
            if round > 0 {
                each.push(one_each);
                all.push(one_for_all);
                cost.push(one_each - one_for_all);
            }
        }
        let (sigma_each, sigma_all) = (sigma(&each), sigma(&all));
        println!(
            "{method:<10} {:>6.2} {sigma_each:>8.2} {:>8.2} {sigma_all:>8.2} {:>8.2} ± {:.2}",
            median(each),
            median(all),
            mean(&cost),
            sigma(&cost)
        );
    }
    Ok(())
}

/// Milliseconds for clearing hugepage by hugepage and what follows in the end.
fn pass<'m, T>(
    memory: &'m mut Memory,
    clear: impl Fn(Span<'m>) -> T,
    finish: impl FnOnce(Vec<T>) -> Vec<Coherent<'m>>,
) -> Result<f64> {
    let mut rest = memory.span()?.stain(DIRT);
    let mut spans = Vec::new();
    while rest.len() > HUGEPAGE {
        let (hugepage, others) = rest
            .split_at(HUGEPAGE)
            .map_err(|_| "a hugepage is no span")?;
        spans.push(hugepage);
        rest = others;
    }
    spans.push(rest);
    let (elapsed, receipts) = time(|| finish(spans.into_iter().map(clear).collect()));
    drop(receipts);
    Ok(elapsed.as_secs_f64() * 1e3)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The sample standard deviation; of one value, 0.
fn sigma(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (values.len().max(2) - 1) as f64).sqrt()
}
