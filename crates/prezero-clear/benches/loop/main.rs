//! The yardstick: clearing through spans, tokens and receipts against the bare loop of the same instruction.
//!
//!     cargo bench -p prezero-clear --bench loop -- [--size 512M] [--rounds 11]
//!
//! Both clear the same memory, which is dirtied before each pass, in turn, and each round begins with the other one. The
//! ratio is the speed of the library over that of the bare loop in the same round; its median should be near 1.

mod arch;
#[path = "../measuring/mod.rs"]
mod measuring;

use std::process::ExitCode;

use prezero_clear::{Clearing, Method};

use arch::Bare;
use measuring::{Benchmark, DIRT, Memory, Result, Run, median, time};

fn main() -> ExitCode {
    let benchmark = Benchmark {
        name: "loop",
        size: 512 << 20,
        rounds: 11,
    };
    benchmark.run(measure)
}

fn measure(run: &Run, memory: &mut Memory) -> Result<()> {
    let bare = Bare::available();
    if bare.is_empty() {
        println!("no bare loop is written for this CPU");
        return Ok(());
    }
    println!(
        "{:<10} {:>12} {:>12} {:>8}",
        "method", "library GB/s", "bare GB/s", "ratio"
    );
    let mut best = (0.0_f64, 0.0_f64);
    for bare in bare {
        let how = Clearing::new(Method::named(bare.name)?);
        let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        // The round before the first is not counted.
        for round in 0..=run.rounds {
            run.check_stopped()?;
            let (library, loop_alone) = if round % 2 == 0 {
                let library = library_pass(memory, &how)?;
                (library, bare_pass(memory, bare)?)
            } else {
                let loop_alone = bare_pass(memory, bare)?;
                (library_pass(memory, &how)?, loop_alone)
            };
            if round > 0 {
                ours.push(library);
                theirs.push(loop_alone);
                ratios.push(library / loop_alone);
            }
        }
        let (ours, theirs) = (median(ours), median(theirs));
        println!(
            "{:<10} {ours:>12.2} {theirs:>12.2} {:>8.3}",
            bare.name,
            median(ratios)
        );
        best = (best.0.max(ours), best.1.max(theirs));
    }
    println!(
        "{:<10} {:>12.2} {:>12.2} {:>8.3}",
        "best",
        best.0,
        best.1,
        best.0 / best.1
    );
    Ok(())
}

/// GB/s of the library.
fn library_pass(memory: &mut Memory, how: &Clearing) -> Result<f64> {
    let span = memory.span()?.stain(DIRT);
    let (elapsed, receipt) = time(|| span.clear(how).fence());
    Ok(receipt.len() as f64 / elapsed.as_secs_f64() / 1e9)
}

/// GB/s of the loop alone.
fn bare_pass(memory: &mut Memory, bare: Bare) -> Result<f64> {
    let span = memory.span()?.stain(DIRT);
    let bytes = span.len();
    let (elapsed, ()) = time(|| bare.clear(span));
    Ok(bytes as f64 / elapsed.as_secs_f64() / 1e9)
}
