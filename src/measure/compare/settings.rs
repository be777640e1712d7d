//! What was measured under the names of the rows, as far as the names do not say it: with another method,
//! another monitor's version or another background, rows of one name are two things.

use prezero_memory::ByteSize;
use serde_json::Value;

use super::document::Document;
use super::machines::{Difference, sizes};
use crate::printable::printable;

type Find = fn(&Document) -> Option<String>;

/// Of the documents of `bench neighbour`; others have none of it.
const NEIGHBOUR: &[(&str, Find)] = &[
    ("memory cleared", |of| {
        let bytes = of.value.pointer("/background/bytes")?.as_u64()?;
        Some(ByteSize(bytes).to_string())
    }),
    ("its page size", |of| {
        let bytes = of.value.pointer("/background/page_size")?.as_u64()?;
        Some(ByteSize(bytes).to_string())
    }),
    ("rate of clearing", |of| {
        let rate = of.value.pointer("/background/rate")?;
        Some(match rate.as_u64() {
            Some(rate) => format!("{} a second", ByteSize(rate)),
            None => "as fast as it goes".to_owned(),
        })
    }),
    ("threads that clear", |of| {
        let cpus = of.value.pointer("/cpus/background")?.as_array()?;
        Some(cpus.len().to_string())
    }),
    ("cache in common", |of| of.fact("/cpus/same_cache")),
    ("core in common", |of| of.fact("/cpus/same_core")),
];

/// Of those of `bench vm`.
const VM: &[(&str, Find)] = &[("node with all memory", |of| {
    let node = of.value.get("memory_node")?;
    Some(match node.as_u64() {
        Some(node) => node.to_string(),
        None => "none".to_owned(),
    })
})];

/// What is not the same in both.
pub(super) fn differences(a: &Document, b: &Document) -> Vec<Difference> {
    let told = NEIGHBOUR
        .iter()
        .chain(VM)
        .map(|(fact, find)| (*fact, find(a), find(b)));
    // A size that tells rows apart is the same in both of a pair.
    let fields = [("page size", "page_size"), ("memory", "bytes")];
    let lengths = fields
        .into_iter()
        .filter(|(_, field)| !a.schema.keys.iter().any(|key| key.field == *field))
        .map(|(fact, field)| (fact, sizes(a, field), sizes(b, field)));
    let of_rows = [("method", methods(a, b)), ("other monitors", peers(a, b))];
    let of_rows = of_rows.into_iter().filter_map(|(fact, both)| {
        let (a, b) = both?;
        Some((fact, Some(a), Some(b)))
    });
    let all = told.chain(lengths).chain(of_rows);
    all.filter(|(_, a, b)| a != b)
        .map(|(fact, a, b)| Difference { fact, a, b })
        .collect()
}

/// The methods of the rows that both have, where a row is not told by it: each way with another one.
fn methods(a: &Document, b: &Document) -> Option<(String, String)> {
    let pairs = a.rows.iter().filter_map(|row| {
        let other = b.row(row)?;
        let (mine, theirs) = (row.method.as_deref()?, other.method.as_deref()?);
        let of = |method: &str| format!("{method} ({})", row.name);
        (mine != theirs).then(|| (of(mine), of(theirs)))
    });
    listed(pairs)
}

/// Other monitors that both have, each of another version.
fn peers(a: &Document, b: &Document) -> Option<(String, String)> {
    let of_b: Vec<(&str, &str)> = versions(b).collect();
    let pairs = versions(a).filter_map(|(peer, version)| {
        let (_, other) = of_b.iter().find(|(name, _)| *name == peer)?;
        let of = |version: &str| format!("{peer}: {version}");
        (version != *other).then(|| (of(version), of(other)))
    });
    listed(pairs)
}

fn versions(of: &Document) -> impl Iterator<Item = (&str, &str)> {
    let peers = of.value.get("peers").and_then(Value::as_array);
    let peers = peers.into_iter().flatten();
    peers.filter_map(|peer| Some((peer["peer"].as_str()?, peer["version"].as_str()?)))
}

/// `None` where nothing differs.
fn listed(pairs: impl Iterator<Item = (String, String)>) -> Option<(String, String)> {
    let (a, b): (Vec<String>, Vec<String>) = pairs.unzip();
    let text = |texts: Vec<String>| printable(&texts.join(", "));
    (!a.is_empty()).then(|| (text(a), text(b)))
}
