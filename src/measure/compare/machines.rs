//! What two documents say about their machines, and when that makes a ratio doubtful.

use std::fmt;

use prezero_memory::ByteSize;
use serde_json::Value;

use super::document::Document;
use crate::measure::warning::Warning;

/// A fact that is not the same in both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) fact: &'static str,
    /// `None` where the document does not say.
    pub(crate) a: Option<String>,
    pub(crate) b: Option<String>,
}

/// Why a ratio may be of something else than it seems.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Caution {
    /// Both documents are one and the same.
    Same,
    Kernels {
        a: String,
        b: String,
    },
    Cpus {
        a: String,
        b: String,
    },
    Machines,
    /// One installation, two boots.
    Boots,
    /// A document that does not say which machine it is of.
    Unknown {
        who: &'static str,
    },
    /// A measurement that was warned about.
    Warned {
        which: &'static str,
        count: usize,
    },
    /// Rows of one name that are not the same thing in both.
    Settings {
        facts: Vec<&'static str>,
    },
    /// Ratios that two other measurements may not give again.
    Repeat(Warning),
}

impl fmt::Display for Caution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same => f.write_str("A and B are the same document: every ratio is 1"),
            Self::Kernels { a, b } => write!(
                f,
                "A and B are of different kernels ({a} and {b}): ratios show that difference, too"
            ),
            Self::Cpus { a, b } => write!(
                f,
                "A and B are of different CPUs ({a} and {b}): ratios show that difference, too"
            ),
            Self::Machines => f.write_str(
                "A and B are of different machines: ratios show that difference, too; measure both on one machine to compare anything else",
            ),
            Self::Boots => f.write_str(
                "A and B are of different boots of one machine, or of copies of one image: what is not listed here may differ, too",
            ),
            Self::Unknown { who } => write!(
                f,
                "{who} which machine it is of: whether both are of one cannot be told; measure again with this version"
            ),
            Self::Settings { facts } => write!(
                f,
                "A and B do not have the same {}: rows of one name are not the same thing in both; measure again with the same options and programs to compare anything else",
                facts.join(", ")
            ),
            Self::Repeat(warning) => warning.fmt(f),
            Self::Warned { which, count: 1 } => {
                write!(f, "{which} was measured with a warning, which it holds")
            }
            Self::Warned { which, count } => {
                write!(f, "{which} was measured with {count} warnings, which it holds")
            }
        }
    }
}

/// Facts and where documents have them; documents before `machine` have some below `host`.
const FACTS: &[(&str, &[&str])] = &[
    ("version of prezero", &["/version"]),
    ("kernel", &["/machine/kernel", "/host/kernel"]),
    ("kernel build", &["/machine/kernel_build"]),
    ("preemption", &["/machine/preempt", "/host/preempt"]),
    ("CPU", &["/machine/cpu", "/host/cpu"]),
    ("microcode", &["/machine/microcode"]),
    ("online CPUs", &["/machine/cpus"]),
    ("usable CPUs", &["/machine/usable_cpus"]),
    ("NUMA nodes", &["/machine/nodes"]),
    (
        "virtual machine",
        &["/machine/hypervisor", "/host/hypervisor"],
    ),
    ("product", &["/machine/product"]),
    ("transparent hugepages", &["/machine/thp/enabled"]),
    ("their defrag", &["/machine/thp/defrag"]),
    ("governor", &["/machine/governor"]),
    ("turbo", &["/machine/turbo"]),
    ("SMT", &["/machine/smt"]),
];

pub(super) fn differences(a: &Document, b: &Document) -> Vec<Difference> {
    let known = FACTS.iter().map(|(fact, places)| {
        let find = |of: &Document| places.iter().find_map(|place| of.fact(place));
        (*fact, find(a), find(b))
    });
    type Find = fn(&Document) -> Option<String>;
    let made: [(&str, Find); 6] = [
        ("default hugepage", |of| {
            size(of.value.pointer("/machine/default_hugepage_size")?)
        }),
        ("hugepages", hugepages),
        ("mitigations", mitigations),
        ("page size", |of| sizes(of, "page_size")),
        ("memory", |of| sizes(of, "bytes")),
        ("runs", runs),
    ];
    let made = made
        .into_iter()
        .map(|(fact, find)| (fact, find(a), find(b)));
    let differ = known.chain(made).filter(|(_, a, b)| a != b);
    differ
        .map(|(fact, a, b)| Difference { fact, a, b })
        .collect()
}

fn size(value: &Value) -> Option<String> {
    value.as_u64().map(|bytes| ByteSize(bytes).to_string())
}

/// Pools as they were set up. How many pages are free differs from minute to minute.
fn hugepages(of: &Document) -> Option<String> {
    let pools = of.value.pointer("/machine/hugepages")?.as_array()?;
    let pools = pools.iter().filter_map(|pool| {
        let number = |name: &str| pool.get(name)?.as_u64();
        let overcommit = match number("overcommit")? {
            0 => String::new(),
            pages => format!(" (and {pages} more on demand)"),
        };
        let page = ByteSize(number("page_size")?);
        Some(format!("{} of {page}{overcommit}", number("total")?))
    });
    Some(pools.collect::<Vec<_>>().join(", "))
}

/// The states of vulnerabilities are long; one hash of them would tell nothing.
fn mitigations(of: &Document) -> Option<String> {
    let states = of.value.pointer("/machine/mitigations")?.as_object()?;
    let states = states.iter().filter_map(|(name, state)| {
        let state = state.as_str()?;
        let state = state.split([';', '.']).next().unwrap_or(state);
        Some(format!(
            "{name}: {}",
            state.trim_start_matches("Mitigation: ")
        ))
    });
    Some(states.collect::<Vec<_>>().join(", "))
}

/// The values of a field of the rows, each once.
fn values(of: &Document, name: &str) -> Vec<u64> {
    let rows = of
        .value
        .get("rows")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let mut values: Vec<u64> = rows.filter_map(|row| row.get(name)?.as_u64()).collect();
    values.sort_unstable();
    values.dedup();
    values
}

pub(super) fn sizes(of: &Document, name: &str) -> Option<String> {
    listed(
        values(of, name)
            .into_iter()
            .map(|bytes| ByteSize(bytes).to_string()),
    )
}

fn runs(of: &Document) -> Option<String> {
    let mut runs: Vec<usize> = of.rows.iter().filter_map(|row| row.runs).collect();
    runs.sort_unstable();
    runs.dedup();
    listed(runs.into_iter().map(|runs| runs.to_string()))
}

fn listed(values: impl Iterator<Item = String>) -> Option<String> {
    let values: Vec<String> = values.collect();
    (!values.is_empty()).then(|| values.join(", "))
}

pub(super) fn cautions(a: &Document, b: &Document) -> Vec<Caution> {
    if a.value == b.value {
        return vec![Caution::Same];
    }
    let mut found = Vec::new();
    let pair = |places: &[&str]| {
        let find = |of: &Document| places.iter().find_map(|place| of.fact(place));
        find(a).zip(find(b)).filter(|(a, b)| a != b)
    };
    if let Some((a, b)) = pair(&["/machine/kernel", "/host/kernel"]) {
        found.push(Caution::Kernels { a, b });
    }
    let cpus = pair(&["/machine/cpu", "/host/cpu"]);
    let same = |place: &str| Some(a.fact(place)? == b.fact(place)?);
    match (same("/machine/boot"), same("/machine/id"), &cpus) {
        (Some(true), ..) => {}
        (_, Some(false), _) | (.., Some(_)) => found.push(Caution::Machines),
        (_, Some(true), None) => found.push(Caution::Boots),
        (_, None, None) => {
            let knows = |of: &Document| of.fact("/machine/boot").is_some();
            let who = match (knows(a), knows(b)) {
                (false, true) => "A does not say",
                (true, false) => "B does not say",
                // Two boots of machines without an id are none to be told apart, either.
                _ => "Neither A nor B says",
            };
            found.push(Caution::Unknown { who });
        }
    }
    found.extend(cpus.map(|(a, b)| Caution::Cpus { a, b }));
    for (which, document) in [("A", a), ("B", b)] {
        let count = document.warnings().len();
        if count > 0 {
            found.push(Caution::Warned { which, count });
        }
    }
    found
}
