//! Which rows are measured, and which one the others are compared with, from what was typed.

use prezero_clear::{Clearing, Method, MethodError};
use prezero_memory::{ByteSize, Class, parse_size};

use crate::failure::Failure;
use crate::measure::clear::{By, Measured, Row};
use crate::measure::warning::Warning;

/// What the kernel did for decades: one string instruction for every base page.
const BASELINE: (&str, u64) = ("rep-stosb", 4 << 10);

/// The methods with these names, or all that this CPU has. One that it lacks is left out with a
/// warning; `auto` is the choice by measuring.
pub(super) fn methods(names: &[String]) -> Result<(Vec<By>, Vec<Warning>), Failure> {
    if names.is_empty() {
        return Ok((Method::available().map(By::Name).collect(), Vec::new()));
    }
    let (mut methods, mut warnings) = (Vec::new(), Vec::new());
    for name in names {
        let by = match name == By::MEASURING {
            true => Ok(By::Measuring),
            false => Method::named(name).map(By::Name),
        };
        match by {
            Ok(method) if methods.contains(&method) => {}
            Ok(method) => methods.push(method),
            Err(error @ MethodError::Unavailable { .. }) => {
                let why = error.to_string();
                warnings.push(Warning::LeftOut { why });
            }
            Err(error) => return Err(error.into()),
        }
    }
    if !methods.is_empty() {
        return Ok((methods, warnings));
    }
    Err(Failure {
        class: Class::Host,
        message: format!(
            "This CPU has none of the methods named: {}",
            names.join(", ")
        ),
        fix: Some(format!(
            "--method {}",
            all(Method::available().map(Method::name))
        )),
    })
}

fn all(names: impl Iterator<Item = &'static str>) -> String {
    names.collect::<Vec<_>>().join(",")
}

/// The largest chunk, in bytes.
const LARGEST: u64 = 1 << 30;

/// Chunks that a method can have, each once.
pub(super) fn chunks(sizes: &[u64]) -> Result<Vec<u64>, Failure> {
    let mut chunks = Vec::new();
    for &size in sizes {
        let refused = |error: &dyn std::error::Error| {
            let near = (size / 4096).clamp(1, LARGEST / 4096) * 4096;
            Failure::new(
                Class::Usage,
                error,
                Some(format!("--chunk {}", ByteSize(near).to_spec())),
            )
        };
        if size > LARGEST {
            return Err(Failure {
                class: Class::Usage,
                message: format!("A chunk of {} is more than 1 GiB", ByteSize(size)),
                fix: Some("--chunk 1G".to_owned()),
            });
        }
        let bytes = usize::try_from(size).map_err(|error| refused(&error))?;
        Clearing::new(Method::cached())
            .in_chunks(bytes)
            .map_err(|error| refused(&error))?;
        if !chunks.contains(&size) {
            chunks.push(size);
        }
    }
    Ok(chunks)
}

/// The row that others are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Baseline {
    method: &'static str,
    chunk: u64,
    /// Whether it was asked for.
    named: bool,
}

impl Baseline {
    /// `METHOD:CHUNK`, or the usual one.
    pub(super) fn new(text: Option<&str>) -> Result<Self, Failure> {
        let Some(text) = text else {
            let (method, chunk) = BASELINE;
            return Ok(Self {
                method,
                chunk,
                named: false,
            });
        };
        let refused = |why: String| Failure {
            class: Class::Usage,
            message: format!("The baseline '{text}' is not METHOD:CHUNK: {why}"),
            fix: Some(format!(
                "--baseline {}:{}",
                BASELINE.0,
                ByteSize(BASELINE.1).to_spec()
            )),
        };
        let (name, chunk) = text
            .split_once(':')
            .ok_or_else(|| refused("it has no colon".to_owned()))?;
        let known = Method::NAMES.iter().find(|known| **known == name);
        let names = all(Method::NAMES.iter().copied());
        let method = known.ok_or_else(|| refused(format!("methods are {names}")))?;
        let chunk = parse_size(chunk).map_err(|error| refused(error.to_string()))?;
        Ok(Self {
            method,
            chunk,
            named: true,
        })
    }

    /// Its row among those to be measured, with the smallest number of threads. A baseline that was
    /// asked for has to be there; the usual one is missed with a warning.
    pub(super) fn among(&self, rows: &[Row]) -> Result<Result<Row, Warning>, Failure> {
        let mine = rows
            .iter()
            .filter(|row| row.method.name() == self.method && row.chunk == Some(self.chunk));
        let chunk = ByteSize(self.chunk).to_spec();
        match mine.min_by_key(|row| row.threads) {
            Some(row) => Ok(Ok(*row)),
            None if self.named => Err(Failure {
                class: Class::Usage,
                message: format!(
                    "The baseline {}:{chunk} is not among the rows to be measured",
                    self.method
                ),
                fix: Some(format!(
                    "name it as well: --method LIST,{} --chunk LIST,{chunk}",
                    self.method
                )),
            }),
            None => Ok(Err(Warning::NoBaseline {
                name: format!("{}:{chunk}", self.method),
            })),
        }
    }
}

/// The measured row.
pub(super) fn find(measured: &[Measured], row: Option<Row>) -> Option<&Measured> {
    measured.iter().find(|measured| Some(measured.row) == row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::clear;

    fn names(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn without_names_every_method_of_this_cpu_is_measured() {
        let (found, warnings) = methods(&[]).expect("every CPU has some");
        assert_eq!(found, Method::available().map(By::Name).collect::<Vec<_>>());
        assert_eq!(warnings, []);
    }

    #[test]
    fn a_method_named_twice_is_measured_once() {
        let (found, _) = methods(&names(&["portable", "cached", "portable"])).expect("everywhere");
        assert_eq!(
            found.iter().map(|method| method.name()).collect::<Vec<_>>(),
            ["portable", "cached"]
        );
    }

    #[test]
    fn a_method_this_cpu_lacks_is_left_out_and_none_left_is_the_hosts_refusal() {
        let lacking = Method::NAMES
            .iter()
            .filter(|name| Method::named(name).is_err());
        // No CPU has both, but it may be that one day one has all.
        let Some(lacking) = lacking.copied().next() else {
            return;
        };
        let (found, warnings) = methods(&names(&["cached", lacking])).expect("one is there");
        assert_eq!(found.len(), 1);
        assert!(
            matches!(&warnings[..], [Warning::LeftOut { why }] if why.contains(lacking)),
            "{warnings:?}"
        );
        let failure = methods(&names(&[lacking])).expect_err("none is there");
        assert_eq!(failure.class, Class::Host);
        assert!(failure.fix.is_some_and(|fix| fix.contains("cached")));
    }

    #[test]
    fn an_unknown_method_is_refused_with_the_list() {
        let failure = methods(&names(&["cached", "memset"])).expect_err("no such method");
        assert_eq!(failure.class, Class::Usage);
        assert!(
            failure.message.contains("memset") && failure.message.contains("rep-stosb, movnti"),
            "{}",
            failure.message
        );
        assert!(failure.fix.is_some_and(|fix| fix.contains("cached")));
    }

    #[test]
    fn chunks_are_whole_base_pages_and_each_once() {
        assert_eq!(
            chunks(&[4096, 2 << 20, 4096]).expect("sizes"),
            [4096, 2 << 20]
        );
        let failure = chunks(&[4096, 6000]).expect_err("not whole");
        assert_eq!(
            (failure.class, failure.fix.as_deref()),
            (Class::Usage, Some("--chunk 4K"))
        );
        let failure = chunks(&[2 << 30]).expect_err("too large");
        assert_eq!(failure.fix.as_deref(), Some("--chunk 1G"));
    }

    #[test]
    fn the_choice_of_a_run_is_one_more_method() {
        let (found, _) = methods(&names(&["auto", "cached", "auto"])).expect("everywhere");
        assert_eq!(found, [By::Measuring, By::Name(Method::cached())]);
    }

    #[test]
    fn the_baseline_has_the_fewest_threads() {
        let methods = [
            By::Name(Method::cached()),
            By::Name(Method::named("portable").expect("everywhere")),
        ];
        let rows = clear::rows(&methods, &[Some(4096), Some(8192)], &[2, 1]);
        let baseline = Baseline::new(Some("portable:8K")).expect("a baseline");
        let row = baseline
            .among(&rows)
            .expect("it was named")
            .expect("it is there");
        assert_eq!(row.name(), "portable 8K, 1 thread");
    }

    #[test]
    fn a_baseline_that_is_not_measured_is_refused_if_it_was_named() {
        let rows = clear::rows(&[By::Name(Method::cached())], &[Some(8192)], &[1]);
        let named = Baseline::new(Some("cached:4K")).expect("a baseline");
        assert_eq!(
            named.among(&rows).expect_err("it was named").class,
            Class::Usage
        );
        let usual = Baseline::new(None).expect("the usual one");
        let missed = usual.among(&rows).expect("it was not named");
        assert_eq!(
            missed,
            Err(Warning::NoBaseline {
                name: "rep-stosb:4K".to_owned()
            })
        );
    }

    #[test]
    fn a_baseline_is_a_method_and_a_size() {
        for wrong in ["cached", "memset:4K", "cached:", "cached:x"] {
            let failure = Baseline::new(Some(wrong)).expect_err(wrong);
            assert_eq!(failure.class, Class::Usage, "{wrong}");
            assert_eq!(failure.fix.as_deref(), Some("--baseline rep-stosb:4K"));
        }
    }
}
