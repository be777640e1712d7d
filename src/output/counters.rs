//! Hardware counters for people.

use std::io::{self, Write};

use super::figures::table;
use crate::report::counters::{CountsFacts, UnavailableFacts};

/// What figures are per.
#[derive(Clone, Copy, Debug)]
pub(super) struct Per {
    name: &'static str,
    amount: u64,
    digits: usize,
}

impl Per {
    /// A base page of memory.
    const PAGE: Self = Self {
        name: "per 4 KiB",
        amount: 4096,
        digits: 1,
    };
    pub(super) const READ: Self = Self {
        name: "per read",
        amount: 1,
        digits: 2,
    };
}

/// A table of what each row of so many bytes counted, or why there is none.
pub(super) fn counters<'a>(
    out: &mut impl Write,
    rows: impl IntoIterator<Item = (String, u64, Option<&'a CountsFacts>)>,
    unavailable: Option<&UnavailableFacts>,
) -> io::Result<()> {
    counters_per(out, Per::PAGE, rows, unavailable)
}

/// A table of what each row counted while so much was done, or why there is none.
pub(super) fn counters_per<'a>(
    out: &mut impl Write,
    per: Per,
    rows: impl IntoIterator<Item = (String, u64, Option<&'a CountsFacts>)>,
    unavailable: Option<&UnavailableFacts>,
) -> io::Result<()> {
    if let Some(UnavailableFacts { reason, fix }) = unavailable {
        writeln!(out, "perf counters: not available here ({reason})")?;
        return match fix {
            Some(fix) => writeln!(out, "  fix: {fix}"),
            None => Ok(()),
        };
    }
    let counted: Vec<_> = rows
        .into_iter()
        .filter_map(|(name, bytes, counts)| Some((name, bytes, counts?)))
        .collect();
    let Some((_, _, first)) = counted.first() else {
        return Ok(());
    };
    let head = [per.name, "cycles", "L1d loads", "misses", "missed"];
    let lines = counted.iter().map(|(name, done, counts)| {
        vec![
            name.clone(),
            figure(counts.cycles, *done, per),
            figure(counts.l1_dcache_loads, *done, per),
            figure(counts.l1_dcache_load_misses, *done, per),
            part(counts.l1_dcache_load_misses, counts.l1_dcache_loads),
        ]
    });
    let table = table(head.map(str::to_owned).to_vec(), lines.collect());
    writeln!(out, "\nperf counters ({}):\n{table}", first.scope)
}

#[allow(clippy::cast_precision_loss)] // a measured figure
fn figure(count: Option<u64>, done: u64, per: Per) -> String {
    let times = (done / per.amount).max(1) as f64;
    count.map_or("–".to_owned(), |count| {
        format!("{:.*}", per.digits, count as f64 / times)
    })
}

#[allow(clippy::cast_precision_loss)] // a measured figure
fn part(misses: Option<u64>, loads: Option<u64>) -> String {
    match misses.zip(loads.filter(|loads| *loads > 0)) {
        Some((misses, loads)) => format!("{:.1} %", misses as f64 / loads as f64 * 100.0),
        None => "–".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(rows: &[(&str, Option<CountsFacts>)], why: Option<&UnavailableFacts>) -> String {
        let rows = rows
            .iter()
            .map(|(name, counts)| ((*name).to_owned(), 8192, counts.as_ref()));
        let mut out = Vec::new();
        counters(&mut out, rows, why).expect("memory takes it");
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn fixed_counts_have_their_text() {
        let counts = |cycles, loads, misses| {
            Some(CountsFacts {
                scope: "user",
                cycles: Some(cycles),
                l1_dcache_loads: loads,
                l1_dcache_load_misses: misses,
            })
        };
        let rows = [
            ("cached 4K", counts(1001, Some(400), Some(100))),
            ("movnti 4K", counts(500, None, Some(2))),
            ("not counted", None),
        ];
        let wanted = "
perf counters (user):
per 4 KiB  cycles  L1d loads  misses  missed
cached 4K   500.5      200.0    50.0  25.0 %
movnti 4K   250.0          –     1.0       –
";
        assert_eq!(text(&rows, None), wanted);
    }

    #[test]
    fn why_there_are_none_is_said_with_what_to_type() {
        let why = UnavailableFacts {
            reason: "no PMU".to_owned(),
            fix: Some("get one".to_owned()),
        };
        assert_eq!(
            text(&[("a", None)], Some(&why)),
            "perf counters: not available here (no PMU)\n  fix: get one\n"
        );
        assert_eq!(text(&[("a", None)], None), "");
    }
}
