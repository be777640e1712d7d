//! What came of the scenarios of one boot, from what the machine wrote to its second serial port.
//!
//! ```text
//! begin NAME
//! again NAME WHY
//! pass NAME SECONDS
//! fail NAME WHY
//! end COUNT
//! ```

use std::fmt::{self, Display, Formatter};

use super::scenario::Scenario;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// With how long it took inside the machine, in seconds.
    Passed(String),
    Failed(String),
    Skipped(String),
}

/// A scenario's result, for people.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) machine: &'static str,
    pub(crate) name: String,
    pub(crate) verdict: Verdict,
    /// Whether it boots Linux guests.
    pub(crate) boots_guests: bool,
    /// What QEMU spent on it, if it ran.
    pub(crate) cpu_seconds: Option<f64>,
}

impl Outcome {
    pub(crate) fn new(scenario: &Scenario, verdict: Verdict) -> Self {
        Self {
            machine: scenario.machine.name,
            name: scenario.name.clone(),
            verdict,
            boots_guests: scenario.boots_guests,
            cpu_seconds: None,
        }
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { machine, name, .. } = self;
        match &self.verdict {
            Verdict::Passed(seconds) => write!(f, "pass     {machine}: {name} ({seconds} s)"),
            Verdict::Failed(why) => write!(f, "FAIL     {machine}: {name}: {why}"),
            Verdict::Skipped(why) => write!(f, "skipped: {machine}: {name}: {why}"),
        }
    }
}

/// One verdict for each expected scenario. Nothing counts as passed unless the machine says at the end that it ran
/// as many as expected: a kernel that died half-way may have been out of order before. `otherwise` is how the boot ended, for
/// that case.
pub(crate) fn verdicts(results: &str, expected: &[&str], otherwise: &str) -> Vec<Verdict> {
    let finished =
        results.lines().last().map(str::trim) == Some(&format!("end {}", expected.len()));
    let verdict = |name: &&str| match (reported(results, name), finished) {
        (Some(verdict @ Verdict::Failed(_)), _) | (Some(verdict), true) => verdict,
        (Some(_), false) => Verdict::Failed(format!("passed, but {otherwise}")),
        (None, _) if begun(results, name) => Verdict::Failed(format!("while it ran, {otherwise}")),
        (None, true) => Verdict::Failed("the machine said nothing about it".to_owned()),
        (None, false) => Verdict::Failed(format!("not run: {otherwise}")),
    };
    expected.iter().map(verdict).collect()
}

/// What follows the word and the name in a line.
fn said<'a>(results: &'a str, word: &str, name: &str) -> Option<&'a str> {
    let mut lines = results.lines().filter_map(|line| {
        let rest = line.trim().strip_prefix(word)?.strip_prefix(' ')?;
        let rest = rest.strip_prefix(name)?;
        (rest.is_empty() || rest.starts_with(' ')).then(|| rest.trim())
    });
    lines.next()
}

/// Why a scenario was begun once more, for each time: what the machine did in its first attempts does not count.
pub(crate) fn again<'a>(results: &'a str, name: &str) -> Vec<&'a str> {
    let lines = results.lines();
    lines.filter_map(|line| said(line, "again", name)).collect()
}

fn begun(results: &str, name: &str) -> bool {
    said(results, "begin", name).is_some()
}

/// A failure counts, whatever else is said.
fn reported(results: &str, name: &str) -> Option<Verdict> {
    let failed = said(results, "fail", name).map(|why| Verdict::Failed(why.to_owned()));
    failed.or_else(|| said(results, "pass", name).map(|time| Verdict::Passed(time.to_owned())))
}

/// How a console marks where a scenario's output begins.
const MARK: &str = "##### ";

/// The part of a console that belongs to the last run of a scenario, or all of it if the scenario did not begin.
pub(crate) fn console_of<'a>(console: &'a str, name: &str) -> &'a str {
    let mark = format!("{MARK}{name}");
    let mut at = 0;
    let mut begun = None;
    for line in console.split_inclusive('\n') {
        if line.trim_end() == mark {
            begun = Some((at, at + line.len()));
        }
        at += line.len();
    }
    let Some((from, first)) = begun else {
        return console;
    };
    let end = console[first..].find(&format!("\n{MARK}"));
    &console[from..end.map_or(console.len(), |end| first + end)]
}

/// The last line of the lab's output.
pub(crate) fn summary(outcomes: &[Outcome]) -> String {
    let (passed, failed, skipped) = count(outcomes);
    match skipped {
        0 => format!("{passed} passed, {failed} failed"),
        _ => format!("{passed} passed, {failed} failed, {skipped} skipped"),
    }
}

/// Whether something was tested and all of it passed.
pub(crate) fn is_success(outcomes: &[Outcome]) -> bool {
    let (passed, failed, _) = count(outcomes);
    passed > 0 && failed == 0
}

fn count(outcomes: &[Outcome]) -> (usize, usize, usize) {
    let mut counts = (0, 0, 0);
    for outcome in outcomes {
        match outcome.verdict {
            Verdict::Passed(_) => counts.0 += 1,
            Verdict::Failed(_) => counts.1 += 1,
            Verdict::Skipped(_) => counts.2 += 1,
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEAD: &str = "the machine was stopped";

    fn failed(verdicts: &[Verdict]) -> usize {
        let is_failure = |verdict: &&Verdict| matches!(verdict, Verdict::Failed(_));
        verdicts.iter().filter(is_failure).count()
    }

    #[test]
    fn a_finished_boot_passes_what_passed() {
        let results = "begin a\r\npass a 1.5\r\nbegin a-b\r\nfail a-b node 1: 3 pages\r\nend 2\r\n";
        let found = verdicts(results, &["a", "a-b"], DEAD);
        let expected = [
            Verdict::Passed("1.5".to_owned()),
            Verdict::Failed("node 1: 3 pages".to_owned()),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn nothing_passes_in_a_boot_that_dies_half_way() {
        let results = "begin a\npass a 1\nbegin b\npass b 1\nbegin c\n";
        let found = verdicts(results, &["a", "b", "c", "d", "e"], DEAD);
        assert_eq!(failed(&found), 5);
        assert_eq!(found[1], Verdict::Failed(format!("passed, but {DEAD}")));
        assert_eq!(found[2], Verdict::Failed(format!("while it ran, {DEAD}")));
        assert_eq!(found[4], Verdict::Failed(format!("not run: {DEAD}")));
    }

    #[test]
    fn nothing_passes_without_the_right_count_at_the_end() {
        for end in ["", "end", "end 1", "end 3", "end 2\nbegin c"] {
            let results = format!("begin a\npass a 1\nbegin b\npass b 1\n{end}\n");
            assert_eq!(failed(&verdicts(&results, &["a", "b"], DEAD)), 2, "{end}");
        }
    }

    #[test]
    fn a_scenario_that_the_machine_does_not_mention_fails() {
        let results = "begin a\npass a 1\nend 2\n";
        assert_eq!(failed(&verdicts(results, &["a", "b"], DEAD)), 1);
        // Nor is it mixed up with one whose name begins alike.
        let results = "begin ab\npass ab 1\nend 1\n";
        assert_eq!(failed(&verdicts(results, &["a"], DEAD)), 1);
    }

    #[test]
    fn a_scenario_that_ran_again_is_judged_by_its_last_run() {
        let results = "begin a\nagain a why not\nbegin a\npass a 2\nend 1\n";
        let passed = Verdict::Passed("2".to_owned());
        assert_eq!(verdicts(results, &["a"], DEAD), [passed]);
        assert_eq!(again(results, "a"), ["why not"]);
        let results = "begin a\nagain a why not\nbegin a\n";
        assert_eq!(failed(&verdicts(results, &["a"], DEAD)), 1);
    }

    #[test]
    fn the_console_of_a_scenario_ends_where_the_next_begins() {
        let console = "boot\r\n##### a\r\none\r\n##### b\r\ntwo\r\n";
        assert_eq!(console_of(console, "a"), "##### a\r\none\r");
        assert_eq!(console_of(console, "b"), "##### b\r\ntwo\r\n");
        assert_eq!(console_of(console, "c"), console);
        let again = format!("{console}##### a\nthree\n");
        assert_eq!(console_of(&again, "a"), "##### a\nthree\n");
    }

    #[test]
    fn nothing_run_is_no_success() {
        let outcome = |verdict| Outcome {
            machine: "one-node",
            name: "a".to_owned(),
            verdict,
            boots_guests: false,
            cpu_seconds: None,
        };
        let passed = outcome(Verdict::Passed("1".to_owned()));
        let skipped = outcome(Verdict::Skipped("later".to_owned()));
        let failure = outcome(Verdict::Failed("x".to_owned()));
        assert!(!is_success(&[]));
        assert!(!is_success(std::slice::from_ref(&skipped)));
        assert!(is_success(&[passed.clone(), skipped.clone()]));
        assert_eq!(
            summary(&[passed.clone(), skipped]),
            "1 passed, 0 failed, 1 skipped"
        );
        assert!(!is_success(&[passed.clone(), failure.clone()]));
        assert_eq!(summary(&[passed, failure]), "1 passed, 1 failed");
    }
}
