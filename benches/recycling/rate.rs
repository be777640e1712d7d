//! `prezero pool scrub --rate R`: how fast it is then.

use prezero_memory::PageSize;
use serde_json::{Value, json};

use crate::Setup;
use crate::figures::median;
use crate::ground::Ground;
use crate::peers::Result;
use crate::prezero::{command, document};

/// In bytes a second; None is as fast as it goes.
const RATES: [Option<u64>; 5] = [
    None,
    Some(1 << 30),
    Some(2 << 30),
    Some(4 << 30),
    Some(8 << 30),
];

pub(crate) fn measure(setup: &Setup) -> Result<Option<Value>> {
    // Some seconds at the lowest rate.
    let size = setup.size.min(4 << 30);
    let Some(ground) = Ground::take(PageSize::HUGE_2M, size) else {
        return Ok(None);
    };
    let pool = ground.pool(size, size / 4)?;
    let mut measured: [Vec<f64>; RATES.len()] = Default::default();
    for round in setup.rounds() {
        for (rate, measured) in RATES.iter().zip(&mut measured) {
            setup.stop.check()?;
            ground.stain(&pool)?;
            let mut scrub = command(&["pool", "scrub", "--json"]);
            scrub.arg(pool.path());
            if let Some(rate) = rate {
                scrub.args(["--rate", &rate.to_string()]);
            }
            let report = document(scrub)?;
            let figure = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
            let bytes = figure(&report["cleaned"]["bytes"]);
            if bytes != size as f64 {
                return Err(format!("{bytes} of {size} bytes were scrubbed").into());
            }
            if round > 0 {
                measured.push(bytes / figure(&report["ns"]) * 1e9);
            }
        }
        setup.tell("rate", round);
    }
    pool.destroy()?;
    let (rounds, mib) = (setup.rounds, size >> 20);
    println!("Scrubbing {mib} MiB at a rate, medians of {rounds}, GB/s");
    println!("  asked measured  measured / asked");
    for (rate, measured) in RATES.iter().zip(&measured) {
        let measured = median(measured.iter().copied());
        let asked = rate.map(|rate| rate as f64);
        match asked {
            Some(asked) => println!(
                "{:>7.2} {:>8.2} {:>12.3}",
                asked / 1e9,
                measured / 1e9,
                measured / asked
            ),
            None => println!("   none {:>8.2}", measured / 1e9),
        }
    }
    println!("(0.9 to 1.1 is the aim)\n");
    let rates = RATES.iter().zip(&measured).map(
        |(rate, measured)| json!({ "bytes_per_second_asked": rate, "bytes_per_second": measured }),
    );
    Ok(Some(
        json!({ "bytes": size, "rates": rates.collect::<Vec<_>>() }),
    ))
}
