//! What a pool of recycled hugepages saves, and what it costs.
//!
//!     cargo bench --bench recycling -- [slopes] [exec] [rate] [beside] [--size 16G] [--rounds 5] [--record FILE.json]
//!
//! Each word is a measurement, see its file; without one, all of them are made. What is compared is run in turn within
//! each round, a round before the first is not counted, and figures are medians. Every round makes its pool, so that the
//! hugepages of one guest are enough. The memory of dirty segments holds `0xA5` before it is cleared, because some CPUs
//! clear what is zero faster. Without `--bench`, as under `cargo test`, one small round shows that everything works.

mod beside;
mod exec;
mod figures;
mod ground;
#[allow(dead_code, reason = "shared with the benchmark of creation")]
#[path = "../peers/mod.rs"]
mod peers;
mod prezero;
mod rate;
mod slopes;

use std::fs;
use std::process::ExitCode;
use std::time::SystemTime;

use prezero_testkit::require_kvm;
use serde_json::{Map, Value, json};

use peers::Result;
use peers::machine::Machine;
use peers::options::{self, Options, SMALL};
use peers::stop::Stop;

const PROGRAM: &str = "recycling";
const USAGE: &str = "the measurements are slopes, exec, rate and beside, the options --size 16G, --rounds 5 and \
                     --record FILE.json";

/// What all measurements need to know.
struct Setup {
    machine: Machine,
    /// Whether figures are wanted, and not only to see that everything works.
    measure: bool,
    /// Bytes of the largest guest.
    size: u64,
    /// Counted rounds.
    rounds: usize,
    stop: Stop,
}

impl Setup {
    /// The numbers of the rounds; 0 is not counted, and touches every page for the host below a virtual machine.
    fn rounds(&self) -> std::ops::RangeInclusive<usize> {
        usize::from(!self.measure)..=self.rounds
    }

    /// Tells how far a measurement is.
    fn tell(&self, what: &str, round: usize) {
        eprintln!("recycling: {what}: round {round} of {}", self.rounds);
    }
}

/// Makes its rounds, prints its figures, and returns its record; None where the machine lacks something.
type Measurement = fn(&Setup) -> Result<Option<Value>>;

const MEASUREMENTS: [(&str, Measurement); 4] = [
    ("slopes", slopes::measure),
    ("exec", exec::measure),
    ("rate", rate::measure),
    ("beside", beside::measure),
];

fn main() -> ExitCode {
    let names = MEASUREMENTS.map(|(name, _)| name);
    options::main(PROGRAM, &names, USAGE, measure)
}

fn measure(options: &Options) -> Result<()> {
    if !require_kvm() {
        return Ok(());
    }
    let machine = Machine::look()?;
    let (size, rounds) = options.size_and_rounds(PROGRAM, &machine);
    if !size.is_power_of_two() || size < SMALL {
        return Err("the size is a power of two of at least 64M".into());
    }
    println!("{}\n", machine.description());
    let setup = Setup {
        machine,
        measure: options.measure,
        size,
        rounds,
        stop: Stop::on_signals()?,
    };
    let mut record = Map::new();
    for (name, measurement) in MEASUREMENTS {
        let wanted = options.names.is_empty() || options.names.iter().any(|of| of == name);
        if let Some(figures) = wanted.then(|| measurement(&setup)).transpose()?.flatten() {
            record.insert(name.to_owned(), figures);
        }
    }
    if let Some(path) = &options.record {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        record.insert("schema".to_owned(), json!("prezero/bench-recycling/1"));
        record.insert("version".to_owned(), json!(env!("CARGO_PKG_VERSION")));
        record.insert("unix_seconds".to_owned(), json!(unix?.as_secs()));
        record.insert("machine".to_owned(), setup.machine.json());
        record.insert("rounds".to_owned(), json!(rounds));
        fs::write(path, format!("{:#}\n", Value::from(record)))?;
    }
    Ok(())
}
