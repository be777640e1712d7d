//! `prezero bench compare`: two documents of one measurement against each other.

use std::path::Path;
use std::process::ExitCode;

use prezero_memory::Class;

use crate::cli::BenchCompareArgs;
use crate::commands::saved;
use crate::failure::Failure;
use crate::measure::compare::{Document, DocumentError, compare};
use crate::output;
use crate::report::bench_compare::{CompareReport, SideFacts};
use crate::report::facts::ErrorFacts;

/// How a document is made.
const MAKE: &str = "prezero bench clear --json > FILE, or what else was measured";

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
    let text = saved::read(path, MAKE)?;
    Document::parse(&text).map_err(|error| Failure {
        class: Class::Usage,
        message: format!("{} {error}", path.display()),
        fix: Some(match error {
            DocumentError::Foreign(_) => "prezero bench compare --help".to_owned(),
            _ => MAKE.to_owned(),
        }),
    })
}
