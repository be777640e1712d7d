//! How long it takes to touch a page after clearing, with and without naming it before.
//!
//!     cargo bench -p prezero-clear --bench touch -- [--size 2M] [--rounds 101]
//!
//! A page in the middle of the memory is read, one word from each of its 64 lines, each address depending on the word
//! before: once after the page was named by `Span::used_next`, once after it was not, in turn. The clearing is timed
//! apart, because keeping five pages in the cache may cost there what it saves here.

#[path = "../measuring/mod.rs"]
mod measuring;
mod sys;

use std::process::ExitCode;
use std::time::Duration;

use prezero_clear::{Clearing, Method};

use measuring::{Benchmark, DIRT, Memory, Result, Run, median, time};

fn main() -> ExitCode {
    let benchmark = Benchmark {
        name: "touch",
        size: 2 << 20,
        rounds: 101,
    };
    benchmark.run(measure)
}

fn measure(run: &Run, memory: &mut Memory) -> Result<()> {
    println!("                 clear, us            read 64 lines, ns");
    println!("method       unnamed    named      unnamed    named    ratio");
    for method in Method::available() {
        let (mut clear, mut read) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        // The round before the first is not counted.
        for round in 0..=run.rounds {
            run.check_stopped()?;
            // In turn, so that neither is always the one after the other.
            for named in [round % 2, (round + 1) % 2] {
                let (clearing, reading) = pass(memory, method, named == 1)?;
                if round > 0 {
                    clear[named].push(clearing.as_secs_f64() * 1e6);
                    read[named].push(reading.as_secs_f64() * 1e9);
                }
            }
        }
        let ([unnamed_clear, named_clear], [unnamed, named]) =
            (clear.map(median), read.map(median));
        println!(
            "{method:<10} {unnamed_clear:>9.1} {named_clear:>8.1} {unnamed:>12.0} {named:>8.0} {:>8.2}",
            unnamed / named
        );
    }
    Ok(())
}

/// How long clearing and then reading took.
fn pass(memory: &mut Memory, method: Method, named: bool) -> Result<(Duration, Duration)> {
    let mut span = memory.span()?.stain(DIRT);
    let used = span.addr() + span.len() / 2;
    if named {
        span = span.used_next(used);
    }
    let how = Clearing::new(method);
    let (clearing, receipt) = time(|| span.clear(&how).fence());
    let (reading, sum) = time(|| sys::read_lines(&receipt, used));
    match sum {
        0 => Ok((clearing, reading)),
        _ => Err(format!("{method} left bytes that are not zero").into()),
    }
}
