//! Reading a document that may be anything: half of one, another program's, or made up.

use std::collections::HashMap;
use std::fmt;

use prezero_memory::ByteSize;
use serde_json::Value;

use super::schema::{self, Figure, Key, Kind, Schema, Source};
use crate::measure::clear::counted;
use crate::measure::stats::{Spread, Summary};
use crate::printable::printable;

/// A document with everything in it that is compared.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    pub(crate) schema: &'static Schema,
    pub(crate) rows: Vec<Row>,
    /// Where the row with each identity is.
    index: HashMap<String, usize>,
    /// All of it.
    pub(super) value: Value,
}

/// A row and its figures.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The values of the fields that identify it.
    pub(crate) key: Vec<(&'static str, Value)>,
    /// These as one text, which is the same for the same row.
    identity: String,
    /// The same for people.
    pub(crate) name: String,
    pub(crate) figures: Vec<(&'static Figure, Spread)>,
    pub(crate) runs: Option<usize>,
    /// With what memory was cleared, where that is not what the row is told by.
    pub(super) method: Option<String>,
}

/// Why something is no document that can be compared: one sentence that says where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DocumentError {
    /// No JSON; the parser says line and column.
    Syntax(String),
    /// JSON, and no document of `prezero bench`, or a later one than this program knows.
    Foreign(String),
    /// A field that is not what it has to be, and what it has to be.
    Field { place: String, wanted: &'static str },
    /// Two rows of one name.
    Twice { place: String, name: String },
    /// Nothing to compare, perhaps because of the error that is in it.
    NoRows { error: Option<String> },
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(why) => write!(f, "is no whole JSON document: {why}"),
            Self::Foreign(schema) => write!(
                f,
                "has the schema {schema}, which is none of {} that this version compares",
                schema::names().join(", ")
            ),
            Self::Field { place, wanted } => write!(f, "has no {wanted} at {place}"),
            Self::Twice { place, name } => {
                write!(f, "has the row '{name}' a second time at {place}")
            }
            Self::NoRows { error: None } => f.write_str("has no rows"),
            Self::NoRows { error: Some(error) } => {
                write!(f, "has no rows, because its measurement failed: {error}")
            }
        }
    }
}

impl std::error::Error for DocumentError {}

impl Document {
    pub(crate) fn parse(text: &[u8]) -> Result<Self, DocumentError> {
        let value: Value = serde_json::from_slice(text)
            .map_err(|error| DocumentError::Syntax(error.to_string()))?;
        let name = value.get("schema").and_then(Value::as_str);
        let name = name.ok_or_else(|| field("schema".to_owned(), "name of a schema"))?;
        let schema = schema::named(name).ok_or_else(|| DocumentError::Foreign(shortened(name)))?;
        let found = value.get("rows").and_then(Value::as_array);
        let found = found.ok_or_else(|| field("rows".to_owned(), "array"))?;
        let mut rows: Vec<Row> = Vec::with_capacity(found.len());
        let mut index = HashMap::with_capacity(found.len());
        for (n, value) in found.iter().enumerate() {
            let place = format!("rows[{n}]");
            let row = row(schema, value, &place)?;
            if index.insert(row.identity.clone(), n).is_some() {
                let name = row.name;
                return Err(DocumentError::Twice { place, name });
            }
            rows.push(row);
        }
        if rows.is_empty() {
            let error = value.pointer("/error/message").and_then(Value::as_str);
            return Err(DocumentError::NoRows {
                error: error.map(shortened),
            });
        }
        Ok(Self {
            schema,
            rows,
            index,
            value,
        })
    }

    /// The row with the same key.
    pub(super) fn row(&self, like: &Row) -> Option<&Row> {
        self.rows.get(*self.index.get(&like.identity)?)
    }

    /// A word, number or truth value that this JSON pointer leads to, as text.
    pub(crate) fn fact(&self, pointer: &str) -> Option<String> {
        match self.value.pointer(pointer)? {
            Value::String(text) => Some(shortened(text)),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(true) => Some("yes".to_owned()),
            Value::Bool(false) => Some("no".to_owned()),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// What was said when it was measured.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let list = self.value.get("warnings").and_then(Value::as_array);
        let texts = list.into_iter().flatten().filter_map(Value::as_str);
        texts.map(shortened).collect()
    }
}

/// A document may hold anything.
fn shortened(text: &str) -> String {
    const LONGEST: usize = 300;
    printable(text).chars().take(LONGEST).collect()
}

fn field(place: String, wanted: &'static str) -> DocumentError {
    DocumentError::Field { place, wanted }
}

fn row(schema: &'static Schema, value: &Value, place: &str) -> Result<Row, DocumentError> {
    let mut names = Vec::new();
    let mut key = Vec::new();
    for Key { field: name, kind } in schema.keys {
        let place = || format!("{place}.{name}");
        let found = value.get(name).unwrap_or(&Value::Null);
        let known = |row: &Value| !key.is_empty() && row.get(name).is_some();
        let number = || found.as_u64().filter(|number| *number > 0);
        match (kind, found) {
            // Not every row has one, but its first, which it is told by, it has.
            (Kind::Word(Some(none)), Value::Null) if known(value) => names.push((*none).to_owned()),
            (_, Value::Null) if known(value) => {}
            (Kind::Word(_), Value::String(word)) => names.push(shortened(word)),
            (Kind::Word(_), _) => return Err(field(place(), "word")),
            (Kind::Bytes(prefix), _) => {
                let bytes = number().ok_or_else(|| field(place(), "number of bytes"))?;
                names.push(format!("{prefix}{}", ByteSize(bytes).to_spec()));
            }
            (Kind::Count(noun), _) => {
                let count = number().and_then(|count| usize::try_from(count).ok());
                let count = count.ok_or_else(|| field(place(), "number above zero"))?;
                names.push(counted(count, noun));
            }
        }
        key.push((*name, found.clone()));
    }
    let mut figures = Vec::new();
    let mut runs = None;
    for figure in schema.figures {
        if let Some((spread, samples)) = spread(&figure.source, value, place)? {
            figures.push((figure, spread));
            runs = runs.or(samples);
        }
    }
    if figures.is_empty() {
        return Err(field(place.to_owned(), "figure"));
    }
    Ok(Row {
        identity: Value::from_iter(key.iter().map(|(_, value)| value.clone())).to_string(),
        key,
        name: names.join(", "),
        figures,
        runs,
        method: value.get("method").and_then(Value::as_str).map(shortened),
    })
}

/// The figure, and the number of its samples where it has them; `None` where it is null or absent.
fn spread(
    source: &Source,
    row: &Value,
    place: &str,
) -> Result<Option<(Spread, Option<usize>)>, DocumentError> {
    let samples = |path: &[&str]| samples(row, path, place);
    let of =
        |samples: &[f64]| Summary::of(samples).map(|summary| (summary.into(), Some(samples.len())));
    match source {
        Source::Samples(path) => Ok(samples(path)?.and_then(|samples| of(&samples))),
        Source::Rate {
            bytes,
            samples: path,
        } => {
            let Some(samples) = samples(path)? else {
                return Ok(None);
            };
            let total = row.get(bytes).and_then(Value::as_f64);
            let total = total.filter(|bytes| *bytes > 0.0);
            let total =
                total.ok_or_else(|| field(format!("{place}.{bytes}"), "number of bytes"))?;
            let rates: Vec<f64> = samples.iter().map(|ns| total / ns).collect();
            Ok(of(&rates))
        }
        Source::Mean { mean, stdev, runs } => {
            let number = |path: &[&str], least: f64| match at(row, path) {
                None | Some(Value::Null) => Ok(None),
                Some(found) => match found.as_f64() {
                    Some(number) if number >= least => Ok(Some(number)),
                    _ => Err(field(format!("{place}.{}", path.join(".")), "figure")),
                },
            };
            let (mean, stdev) = (number(mean, f64::MIN)?, number(stdev, 0.0)?);
            let runs = row.get(runs).and_then(Value::as_u64);
            let runs = runs.and_then(|runs| usize::try_from(runs).ok());
            Ok(mean.map(|mean| (Spread { mean, stdev }, runs)))
        }
    }
}

/// What a path leads to; `None` where the row does not have its first field, or has null.
fn at<'a>(row: &'a Value, path: &[&str]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    let start = row.get(first).filter(|found| !found.is_null())?;
    let next = |value: &'a Value, name: &&str| value.get(name).unwrap_or(&Value::Null);
    Some(rest.iter().fold(start, next))
}

fn samples(row: &Value, path: &[&str], place: &str) -> Result<Option<Vec<f64>>, DocumentError> {
    let Some(found) = at(row, path) else {
        return Ok(None);
    };
    let place = format!("{place}.{}", path.join("."));
    let list = found.as_array().filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| field(place.clone(), "array of samples"))?;
    let numbers = list.iter().enumerate().map(|(n, sample)| {
        let number = sample
            .as_f64()
            .filter(|number| *number > 0.0 && number.is_finite());
        number.ok_or_else(|| field(format!("{place}[{n}]"), "number of nanoseconds above zero"))
    });
    numbers.collect::<Result<_, _>>().map(Some)
}
