//! What scrubbing costs others: a run that populates fresh pages, alone and beside a scrub of segments it does not use.
//!
//! The scrub has begun when the run starts, and should be at work when it ends; how often it was is part of the figures.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use prezero_memory::PageSize;
use serde_json::{Value, json};

use crate::Setup;
use crate::figures::{median, ratio};
use crate::ground::Ground;
use crate::peers::Result;
use crate::prezero::{command, run};

/// The options of the scrub; None is no scrub.
const WAYS: [(&str, Option<&[&str]>); 3] = [
    ("alone", None),
    ("scrub", Some(&[])),
    ("scrub --rate 4G", Some(&["--rate", "4G"])),
];

/// How long a scrub may take to clean its first segment.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Default)]
struct OfWay {
    populate_ms: Vec<f64>,
    /// Whether the scrub was still at work at the end of the run.
    to_the_end: Vec<bool>,
}

pub(crate) fn measure(setup: &Setup) -> Result<Option<Value>> {
    let size = setup.size / 2;
    let Some(ground) = Ground::take(PageSize::HUGE_2M, setup.size) else {
        return Ok(None);
    };
    let memory = ground.memory(size);
    let pool = ground.pool(size, (1 << 30).min(size / 8))?;
    let mut ways: [OfWay; WAYS.len()] = Default::default();
    for round in setup.rounds() {
        for ((_, options), of) in WAYS.iter().zip(&mut ways) {
            setup.stop.check()?;
            ground.stain(&pool)?;
            let scrub = options.map(|options| Scrub::start(pool.path(), options));
            let mut scrub = scrub.transpose()?;
            let ran = run(&memory, None)?;
            let to_the_end = match &mut scrub {
                Some(scrub) => scrub.is_at_work()?,
                None => false,
            };
            if let Some(scrub) = scrub {
                scrub.finish()?;
            }
            if round > 0 {
                of.populate_ms.push(ran.populate());
                of.to_the_end.push(to_the_end);
            }
        }
        setup.tell("beside", round);
    }
    pool.destroy()?;
    print(setup, size, &ways);
    let ways = WAYS.iter().zip(&ways).map(|((way, _), of)| {
        let OfWay {
            populate_ms,
            to_the_end,
        } = of;
        json!({ "way": way, "populate_ms": populate_ms, "scrub_to_the_end": to_the_end })
    });
    Ok(Some(
        json!({ "bytes": size, "ways": ways.collect::<Vec<_>>() }),
    ))
}

fn print(setup: &Setup, size: u64, ways: &[OfWay]) {
    let (rounds, mib) = (setup.rounds, size >> 20);
    println!("Populating {mib} MiB of fresh pages beside a scrub, medians of {rounds}");
    println!("beside                ms     cost  scrub at work to the end");
    for ((way, _), of) in WAYS.iter().zip(ways) {
        let ms = median(of.populate_ms.iter().copied());
        let cost = (ratio(&of.populate_ms, &ways[0].populate_ms) - 1.0) * 100.0;
        let to_the_end = of.to_the_end.iter().filter(|at_work| **at_work).count();
        println!("{way:15} {ms:>8.1} {cost:>6.1} %  {to_the_end} of {rounds}");
    }
    println!("(less than 10 % is the aim)\n");
}

/// A scrub beside. Killed on drop, which leaves dirty what it has not cleared.
struct Scrub(Child);

impl Scrub {
    /// Returns when it has cleaned a segment.
    fn start(pool: &Path, options: &[&str]) -> Result<Self> {
        let mut command: Command = command(&["pool", "scrub", "--json"]);
        let mut scrub = Self(command.arg(pool).args(options).spawn()?);
        let deadline = Instant::now() + PATIENCE;
        while !any_clean(pool)? && scrub.is_at_work()? {
            if Instant::now() > deadline {
                return Err("the scrub does not clean anything".into());
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(scrub)
    }

    fn is_at_work(&mut self) -> Result<bool> {
        Ok(self.0.try_wait()?.is_none())
    }

    fn finish(mut self) -> Result<()> {
        let status = self.0.wait()?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("prezero pool scrub: {status}").into()),
        }
    }
}

impl Drop for Scrub {
    fn drop(&mut self) {
        // It has ended, or the measurement has failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn any_clean(pool: &Path) -> Result<bool> {
    for node in fs::read_dir(pool)? {
        for segment in fs::read_dir(node?.path())? {
            if segment?
                .path()
                .extension()
                .is_some_and(|state| state == "clean")
            {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
