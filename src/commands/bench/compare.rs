//! `prezero bench compare`: two documents of one measurement against each other.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::process::ExitCode;

use prezero_memory::{ByteSize, Class};

use crate::cli::BenchCompareArgs;
use crate::failure::Failure;
use crate::measure::compare::{Document, DocumentError, compare};
use crate::output;
use crate::report::bench_compare::{CompareReport, SideFacts};
use crate::report::facts::ErrorFacts;

/// A document of hundreds of rows with hundreds of samples is a tenth of it.
const LARGEST: u64 = 16 << 20;

/// Runs the command and prints its report.
pub(crate) fn main(args: &BenchCompareArgs) -> ExitCode {
    let mut report = CompareReport::new();
    let result = run(args, &mut report);
    report.error = result.as_ref().err().map(ErrorFacts::from);
    if args.json {
        // In text they are part of the result.
        report
            .warnings
            .iter()
            .for_each(|warning| output::warn(warning));
    }
    output::finish(&report, result, args.json, |out| {
        output::bench_compare::compare(out, &report)
    })
}

fn run(args: &BenchCompareArgs, report: &mut CompareReport) -> Result<(), Failure> {
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    if a.schema.name != b.schema.name {
        return Err(Failure {
            class: Class::Usage,
            message: format!(
                "{} has the schema {} and {} has {}: figures of two measurements cannot be compared",
                args.a.display(),
                a.schema.name,
                args.b.display(),
                b.schema.name
            ),
            fix: Some("name two documents of the same command".to_owned()),
        });
    }
    report.compared = Some(a.schema.name);
    report.a = Some(SideFacts::new(&args.a, &a));
    report.b = Some(SideFacts::new(&args.b, &b));
    report.set(compare(&a, &b));
    if report.rows.is_empty() {
        return Err(Failure {
            class: Class::Usage,
            message: format!(
                "{} and {} have no row in common",
                args.a.display(),
                args.b.display()
            ),
            fix: Some("measure both with the same options".to_owned()),
        });
    }
    Ok(())
}

fn read(path: &Path) -> Result<Document, Failure> {
    let text = text(path)?;
    Document::parse(&text).map_err(|error| Failure {
        class: Class::Usage,
        message: format!("{} {error}", path.display()),
        fix: Some(match error {
            DocumentError::Foreign(_) => "prezero bench compare --help".to_owned(),
            _ => "prezero bench clear --json > FILE, or what else was measured".to_owned(),
        }),
    })
}

/// What is in a file, a pipe or standard input, as far as it can be a document.
fn text(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut text));
    read.map_err(|error| Failure {
        class: match error.kind() {
            ErrorKind::PermissionDenied => Class::Host,
            ErrorKind::NotFound | ErrorKind::IsADirectory | ErrorKind::NotADirectory => {
                Class::Usage
            }
            _ => Class::Internal,
        },
        message: format!("{} cannot be read: {error}", path.display()),
        fix: Some(format!("ls -l {}", path.display())),
    })?;
    if text.len() as u64 > LARGEST {
        return Err(Failure {
            class: Class::Usage,
            message: format!(
                "{} is larger than {}, which no document of a measurement is",
                path.display(),
                ByteSize(LARGEST)
            ),
            fix: Some("prezero bench clear --json > FILE, or what else was measured".to_owned()),
        });
    }
    Ok(text)
}
