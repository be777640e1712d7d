//! The report of `prezero bench compare` as data: schema `prezero/bench-compare/1`. Ratios are B to A.

use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value};

use super::facts::ErrorFacts;
use crate::measure::compare::{Comparison, Document, Pair, Verdict};
use crate::measure::stats::Spread;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct CompareReport {
    pub(crate) schema: &'static str,
    pub(crate) version: &'static str,
    /// The schema of both documents.
    pub(crate) compared: Option<&'static str>,
    pub(crate) a: Option<SideFacts>,
    pub(crate) b: Option<SideFacts>,
    /// Other kernels, other machines, and what else makes the ratios doubtful.
    pub(crate) warnings: Vec<String>,
    pub(crate) differences: Vec<DifferenceFacts>,
    /// One for each figure of each row that both have, in the order of A.
    pub(crate) rows: Vec<PairFacts>,
    pub(crate) only_a: Vec<String>,
    pub(crate) only_b: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<ErrorFacts>,
}

/// One of the documents.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SideFacts {
    pub(crate) file: String,
    pub(crate) version: Option<String>,
    pub(crate) kernel: Option<String>,
    pub(crate) cpu: Option<String>,
    pub(crate) rows: usize,
    /// What was said when it was measured.
    pub(crate) warnings: Vec<String>,
}

impl SideFacts {
    pub(crate) fn new(file: &Path, document: &Document) -> Self {
        let fact = |name: &str| {
            let places = [format!("/machine/{name}"), format!("/host/{name}")];
            places.iter().find_map(|place| document.fact(place))
        };
        Self {
            // JSON has no other text.
            file: file.display().to_string(),
            version: document.fact("/version"),
            kernel: fact("kernel"),
            cpu: fact("cpu"),
            rows: document.rows.len(),
            warnings: document.warnings(),
        }
    }
}

/// A fact of the machines or measurements that is not the same; null where a document does not say.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DifferenceFacts {
    pub(crate) fact: &'static str,
    pub(crate) a: Option<String>,
    pub(crate) b: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct PairFacts {
    pub(crate) row: String,
    /// The fields that identify the row, as they are in the documents.
    pub(crate) key: Map<String, Value>,
    pub(crate) figure: &'static str,
    #[serde(skip)]
    pub(crate) title: &'static str,
    pub(crate) unit: &'static str,
    /// `higher` or `lower`.
    pub(crate) better: &'static str,
    pub(crate) a: SpreadFacts,
    pub(crate) b: SpreadFacts,
    /// Null where one of them is not above zero.
    pub(crate) ratio: Option<SpreadFacts>,
    /// `better` or `worse`; `unclear` where the ratio is no further from 1 than its own σ.
    pub(crate) verdict: &'static str,
}

/// A mean and the sample standard deviation; null for one run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct SpreadFacts {
    pub(crate) mean: f64,
    pub(crate) stdev: Option<f64>,
}

impl From<Spread> for SpreadFacts {
    fn from(Spread { mean, stdev }: Spread) -> Self {
        Self { mean, stdev }
    }
}

impl From<&Pair> for PairFacts {
    fn from(pair: &Pair) -> Self {
        let key = pair.row.key.iter();
        Self {
            row: pair.row.name.clone(),
            key: key
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect(),
            figure: pair.figure.name,
            title: pair.figure.title,
            unit: pair.figure.unit.name(),
            better: pair.figure.better.name(),
            a: pair.a.into(),
            b: pair.b.into(),
            ratio: pair.ratio.map(|ratio| SpreadFacts {
                mean: ratio.mean,
                stdev: ratio.stdev,
            }),
            verdict: match pair.verdict() {
                Verdict::Better => "better",
                Verdict::Worse => "worse",
                Verdict::Unclear => "unclear",
            },
        }
    }
}

impl CompareReport {
    pub(crate) fn new() -> Self {
        Self {
            schema: "prezero/bench-compare/1",
            version: env!("CARGO_PKG_VERSION"),
            compared: None,
            a: None,
            b: None,
            warnings: Vec::new(),
            differences: Vec::new(),
            rows: Vec::new(),
            only_a: Vec::new(),
            only_b: Vec::new(),
            error: None,
        }
    }

    pub(crate) fn set(&mut self, comparison: Comparison) {
        let cautions = comparison.cautions.iter();
        self.warnings = cautions.map(ToString::to_string).collect();
        let differences = comparison.differences.into_iter();
        self.differences = differences
            .map(|differing| DifferenceFacts {
                fact: differing.fact,
                a: differing.a,
                b: differing.b,
            })
            .collect();
        self.rows = comparison.pairs.iter().map(Into::into).collect();
        self.only_a = comparison.only_a;
        self.only_b = comparison.only_b;
    }
}
