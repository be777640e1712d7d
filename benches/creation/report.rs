//! The figures: a table for the terminal, a record for the repository.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use serde_json::{Value, json};

use crate::peers::PAGE;
use crate::peers::machine::Machine;
use crate::prezero::Details;
use crate::{Sample, Subject};

/// All counted runs of one subject.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) subject: Subject,
    pub(crate) samples: Vec<Sample>,
}

impl Series {
    pub(crate) fn new(subject: Subject) -> Self {
        Self {
            subject,
            samples: Vec::new(),
        }
    }

    fn seconds(&self) -> Spread {
        Spread::of(self.samples.iter().map(|sample| sample.seconds))
    }

    fn details(&self, value: impl Fn(&Details) -> Option<f64>) -> Option<Spread> {
        let values = self
            .samples
            .iter()
            .map(|sample| sample.details.as_ref().and_then(&value));
        values
            .collect::<Option<Vec<f64>>>()
            .map(|values| Spread::of(values.into_iter()))
    }

    fn peak_rss(&self) -> u64 {
        self.samples
            .iter()
            .map(|sample| sample.peak_rss)
            .max()
            .unwrap_or(0)
    }
}

/// The middle and the ends of some values.
#[derive(Debug, Clone, Copy)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        let median = match values.len() % 2 {
            1 => at(middle),
            _ => f64::midpoint(at(middle.saturating_sub(1)), at(middle)),
        };
        Self {
            median,
            min: at(0),
            max: at(values.len().saturating_sub(1)),
        }
    }

    fn json(self) -> Value {
        json!({ "median": self.median, "min": self.min, "max": self.max })
    }
}

/// Everything that was measured.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    /// Bytes of guest memory, except for the small guest.
    pub(crate) size: u64,
    pub(crate) series: Vec<Series>,
}

impl Report {
    fn series(&self, subject: Subject) -> Option<&Series> {
        self.series.iter().find(|series| series.subject == subject)
    }

    /// The median time of one subject in those of another.
    fn ratio(&self, subject: Subject, base: Subject) -> Option<f64> {
        let seconds = |subject| self.series(subject).map(|series| series.seconds().median);
        Some(seconds(subject)? / seconds(base)?)
    }

    /// Name, unit and value of what is computed from the runs; None where a run is missing.
    fn figures(&self) -> Vec<(&'static str, &'static str, Option<f64>)> {
        let detail = |subject, value: fn(&Details) -> Option<f64>| {
            Some(self.series(subject)?.details(value)?.median)
        };
        let all = detail(Subject::Prezero, Details::populate_bandwidth);
        let one = detail(Subject::PrezeroOneThread, Details::populate_bandwidth);
        let own = detail(Subject::Prezero, |run| Some(run.own_seconds() * 1e3));
        let creation = detail(Subject::Prezero, |run| Some(run.creation_ns as f64 / 1e9));
        let first = detail(Subject::Prezero, |run| {
            Some(run.first_instruction_ns as f64 / 1e9)
        });
        vec![
            (
                "prezero / QEMU, 1 thread",
                "",
                self.ratio(Subject::Prezero, Subject::QemuOneThread),
            ),
            (
                "prezero / QEMU, pinned threads",
                "",
                self.ratio(Subject::Prezero, Subject::QemuBest),
            ),
            ("populate, all workers", "GB/s", all),
            ("populate, 1 worker", "GB/s", one),
            (
                "populate, all workers / 1 worker",
                "",
                all.zip(one).map(|(all, one)| all / one),
            ),
            ("creation outside populate, register and kvm", "ms", own),
            ("start of main to the last slot", "s", creation),
            ("start of main to the first instruction", "s", first),
        ]
    }

    fn title(&self) -> String {
        let rounds = self.series.first().map_or(0, |series| series.samples.len());
        let mib = self.size >> 20;
        format!(
            "{mib} MiB guest on 2 MiB pages, counted rounds: {rounds}, seconds from the start of the process"
        )
    }

    fn rows(&self) -> Vec<[String; 5]> {
        let row = |series: &Series| {
            let Spread { median, min, max } = series.seconds();
            let rss = series.peak_rss() as f64 / f64::from(1 << 20);
            [
                series.subject.name(self.machine.cpus),
                format!("{median:.3}"),
                format!("{min:.3}"),
                format!("{max:.3}"),
                format!("{rss:.1}"),
            ]
        };
        self.series.iter().map(row).collect()
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}\n{}\n\n", self.machine.description(), self.title());
        let head = ["", "median", "min", "max", "peak RSS, MiB"].map(str::to_owned);
        for [name, median, min, max, rss] in std::iter::once(head).chain(self.rows()) {
            let _ = writeln!(text, "{name:<24} {median:>9} {min:>9} {max:>9} {rss:>14}");
        }
        text.push('\n');
        for (name, unit, value) in self.figures() {
            let value = value.map_or("not measured".to_owned(), |value| {
                format!("{value:.3} {unit}")
            });
            let _ = writeln!(text, "{name:<44} {}", value.trim_end());
        }
        text
    }

    fn markdown(&self) -> String {
        let mut text = format!(
            "# Creation time\n\n{}.\n\n{}.\n\n",
            self.machine.description(),
            self.title()
        );
        text.push_str("| | median | min | max | peak RSS, MiB |\n|---|---|---|---|---|\n");
        for row in self.rows() {
            let _ = writeln!(text, "| {} |", row.join(" | "));
        }
        text.push_str("\n| | |\n|---|---|\n");
        for (name, unit, value) in self.figures() {
            let value = value.map_or("not measured".to_owned(), |value| {
                format!("{value:.3} {unit}")
            });
            let _ = writeln!(text, "| {name} | {} |", value.trim_end());
        }
        text
    }

    fn json(&self) -> Value {
        let unix = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |age| age.as_secs());
        let machine = &self.machine;
        json!({
            "schema": "prezero/bench-creation/1",
            "version": env!("CARGO_PKG_VERSION"),
            "unix_seconds": unix,
            "machine": machine.json(),
            "bytes": self.size,
            "page_size": PAGE,
            "subjects": self.series.iter().map(|series| json!({
                "name": series.subject.name(machine.cpus),
                "seconds": series.seconds().json(),
                "samples": series.samples.iter().map(sample).collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
            "figures": self.figures().into_iter().map(|(name, unit, value)| {
                json!({ "name": name, "unit": unit, "value": value })
            }).collect::<Vec<_>>(),
        })
    }

    /// Writes the record, as JSON with every sample or, for any other ending than `.json`, as Markdown.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            fs::write(path, format!("{:#}\n", self.json()))
        } else {
            fs::write(path, self.markdown())
        }
    }
}

fn sample(sample: &Sample) -> Value {
    let phases = |details: &Details| {
        let phases = details.phases.iter();
        phases
            .map(|(name, ns, bytes)| json!({ "name": name, "ns": ns, "bytes": bytes }))
            .collect::<Vec<_>>()
    };
    json!({
        "seconds": sample.seconds,
        "peak_rss_bytes": sample.peak_rss,
        "creation_ns": sample.details.as_ref().map(|details| details.creation_ns),
        "first_instruction_ns": sample.details.as_ref().map(|details| details.first_instruction_ns),
        "phases": sample.details.as_ref().map(phases),
    })
}
