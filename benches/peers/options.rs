//! What can be typed behind `cargo bench --bench NAME --`, and how it ends.

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use prezero_memory::parse_size;

use super::Result;
use super::machine::Machine;

/// Bytes of a guest that shows that everything works.
pub(crate) const SMALL: u64 = 64 << 20;

/// What was typed.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// Whether figures are wanted, and not only to see that everything works.
    pub(crate) measure: bool,
    /// Words that are no options, of those that there are.
    pub(crate) names: Vec<String>,
    size: Option<u64>,
    rounds: Option<usize>,
    pub(crate) record: Option<PathBuf>,
}

/// Runs a benchmark of this name. `names` are the words that it knows besides the options, and `usage`
/// says all of them.
pub(crate) fn main(
    program: &str,
    names: &[&str],
    usage: &str,
    measure: impl FnOnce(&Options) -> Result<()>,
) -> ExitCode {
    // Asked by test runners that look for tests; there are none by name here.
    if env::args().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    match Options::typed(names, usage).and_then(|options| measure(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Options {
    fn typed(names: &[&str], usage: &str) -> Result<Self> {
        // cargo puts it last.
        let mut options = Self {
            measure: env::args().any(|argument| argument == "--bench"),
            ..Self::default()
        };
        let mut args = env::args().skip(1);
        while let Some(argument) = args.next() {
            let mut value = || args.next().ok_or(format!("{argument} wants a value"));
            match argument.as_str() {
                "--bench" => {}
                "--size" => options.size = Some(parse_size(&value()?)?),
                "--rounds" => options.rounds = Some(value()?.parse()?),
                "--record" => options.record = Some(PathBuf::from(value()?)),
                name if names.contains(&name) => options.names.push(argument),
                // Meant for the harness that other test binaries have, and passed to all of them.
                _ if !options.measure => {}
                _ => return Err(format!("There is no {argument}; {usage}").into()),
            }
        }
        Ok(options)
    }

    /// Bytes of the largest guest, and how many rounds count.
    pub(crate) fn size_and_rounds(&self, program: &str, machine: &Machine) -> (u64, usize) {
        if !self.measure {
            return (SMALL, 1);
        }
        let rounds = self.rounds.unwrap_or(5);
        if rounds < 5 {
            eprintln!("{program}: {rounds} rounds are too few for a median to mean much");
        }
        (
            self.size.unwrap_or_else(|| machine.size_that_fits()),
            rounds,
        )
    }
}
