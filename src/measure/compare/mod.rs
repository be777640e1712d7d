//! Two documents of one measurement against each other: ratios with their uncertainty, and what differs
//! between the machines.

mod document;
mod machines;
mod schema;
mod settings;
#[cfg(test)]
mod tests;

pub(crate) use self::document::{Document, DocumentError, Row};
pub(crate) use self::machines::{Caution, Difference};
pub(crate) use self::schema::{Better, Figure};
use super::repeat::{self, Repeat};
use super::stats::{Ratio, Spread};

/// What two documents say together.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    /// Why ratios may be of something else than they seem.
    pub(crate) cautions: Vec<Caution>,
    pub(crate) differences: Vec<Difference>,
    /// One for each figure of each row that both have, in the order of the first document.
    pub(crate) pairs: Vec<Pair>,
    /// The names of the rows that only one of them has.
    pub(crate) only_a: Vec<String>,
    pub(crate) only_b: Vec<String>,
}

/// One figure of one row in both.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) row: Row,
    pub(crate) figure: &'static Figure,
    pub(crate) a: Spread,
    pub(crate) b: Spread,
    /// Of the second to the first; `None` where one of them is not above zero.
    pub(crate) ratio: Option<Ratio>,
}

/// What a ratio means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Better,
    Worse,
    /// No further from 1 than its own deviation, of unknown deviation, or none at all.
    Unclear,
}

impl Pair {
    pub(crate) fn verdict(&self) -> Verdict {
        let Some(Ratio {
            mean,
            stdev: Some(stdev),
        }) = self.ratio
        else {
            return Verdict::Unclear;
        };
        let away = mean - 1.0;
        if away.abs() <= stdev {
            return Verdict::Unclear;
        }
        match (self.figure.better, away > 0.0) {
            (Better::Higher, true) | (Better::Lower, false) => Verdict::Better,
            _ => Verdict::Worse,
        }
    }
}

/// Compares documents of the same schema; the rows that both have are those of the same name.
pub(crate) fn compare(a: &Document, b: &Document) -> Comparison {
    let (mut pairs, mut repeats) = (Vec::new(), Vec::new());
    let mut only_a = Vec::new();
    for row in &a.rows {
        let Some(other) = b.row(row) else {
            only_a.push(row.name.clone());
            continue;
        };
        for (figure, mine) in &row.figures {
            let theirs = other
                .figures
                .iter()
                .find(|(found, _)| found.name == figure.name);
            let Some((_, theirs)) = theirs else { continue };
            let ratio =
                (mine.mean > 0.0 && theirs.mean > 0.0).then(|| Ratio::of_spreads(theirs, mine));
            // What is a difference can be near zero, and is then uncertain in terms of itself.
            let of_itself = ratio.filter(|_| !figure.unit.is_difference());
            if let (Some(_), Some(runs)) = (of_itself, row.runs.zip(other.runs)) {
                let name = format!("{} of {}", figure.title, row.name);
                let runs = [runs.1, runs.0];
                repeats.extend(Repeat::of_sides(name, [*theirs, *mine], runs));
            }
            pairs.push(Pair {
                row: row.clone(),
                figure,
                a: *mine,
                b: *theirs,
                ratio,
            });
        }
    }
    let only_b = b.rows.iter().filter(|row| a.row(row).is_none());
    let settings = settings::differences(a, b);
    let mut cautions = machines::cautions(a, b);
    if !settings.is_empty() {
        let facts = settings.iter().map(|differing| differing.fact).collect();
        cautions.push(Caution::Settings { facts });
    }
    let mut differences = machines::differences(a, b);
    let known = |of: &Difference| differences.iter().any(|known| known.fact == of.fact);
    let new: Vec<Difference> = settings.into_iter().filter(|of| !known(of)).collect();
    differences.extend(new);
    if cautions != [Caution::Same] {
        let option = match a.schema.name {
            "prezero/bench-mmap/1" => "-l",
            _ => "--runs",
        };
        cautions.extend(repeat::warn(&repeats, option).map(Caution::Repeat));
    }
    Comparison {
        cautions,
        differences,
        pairs,
        only_a,
        only_b: only_b.map(|row| row.name.clone()).collect(),
    }
}
