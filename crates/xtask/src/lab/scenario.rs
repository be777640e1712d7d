//! Scenarios: shell scripts under tests/lab/scenarios that begin with a header.
//!
//! ```sh
//! # machine: two-nodes
//! # proves: what this shows, in one sentence
//! # pending: why it cannot pass yet; it then runs only when it is named
//! # tests: --package prezero --bin prezero
//! # programs: --package prezero-testkit --example poison
//! # files: tests/fixtures/hosts/one-node
//! # guest: linux
//! # seconds: 300
//! ```
//!
//! `machine` and `proves` are required. `tests` chooses what `cargo test --no-run` builds for the scenario, which
//! starts it as `$tests/NAME`, NAME being the target's; `programs` the same for `cargo build`. `files` are files or
//! directories of the workspace, which the scenario finds below `$files`. With `guest: linux` it finds a kernel and a
//! first file system for guests below `$guest`, which only the machines of such scenarios have. `seconds` bounds the
//! scenario, 120 if it does not say.

use std::fs;
use std::path::Path;

use super::machine::Machine;
use crate::Failure;

#[derive(Debug)]
pub(crate) struct Scenario {
    /// The file's name without `.sh`.
    pub(crate) name: String,
    pub(crate) machine: &'static Machine,
    pub(crate) proves: String,
    pub(crate) pending: Option<String>,
    /// Arguments for cargo; none for most scenarios.
    pub(crate) tests: Vec<String>,
    /// The same for other programs.
    pub(crate) programs: Vec<String>,
    /// Paths in the workspace.
    pub(crate) files: Vec<String>,
    /// Whether it boots guests of its own.
    pub(crate) boots_guests: bool,
    pub(crate) seconds: u64,
    /// The whole file.
    pub(crate) script: String,
}

/// How long a scenario may take if it does not say; most need a few seconds, and a busy host makes five times of them.
const SECONDS: u64 = 120;

/// All scenarios in a directory, by name.
pub(crate) fn read_all(dir: &Path) -> Result<Vec<Scenario>, Failure> {
    let unreadable = |error| Failure::other(format!("{}: {error}", dir.display()));
    let mut scenarios = Vec::new();
    for entry in fs::read_dir(dir).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_none_or(|extension| extension != "sh") {
            continue;
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let script = fs::read_to_string(&path).map_err(unreadable)?;
        let scenario = parse(&name, &script)
            .map_err(|error| Failure::other(format!("{}: {error}", path.display())))?;
        scenarios.push(scenario);
    }
    scenarios.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(scenarios)
}

pub(crate) fn parse(name: &str, script: &str) -> Result<Scenario, String> {
    let mut machine = None;
    let mut proves = None;
    let mut pending = None;
    let (mut tests, mut programs) = (Vec::new(), Vec::new());
    let mut files = Vec::new();
    let mut boots_guests = false;
    let mut seconds = SECONDS;
    for line in script.lines().take_while(|line| line.starts_with('#')) {
        let (key, value) = line
            .strip_prefix("# ")
            .and_then(|line| line.split_once(": "))
            .ok_or_else(|| format!("'{line}' is not '# KEY: VALUE'"))?;
        match key {
            "machine" => {
                let known = Machine::named(value);
                machine = Some(known.ok_or_else(|| format!("there is no machine {value}"))?);
            }
            "proves" => proves = Some(value.to_owned()),
            "pending" => pending = Some(value.to_owned()),
            "tests" => tests = words(value),
            "programs" => programs = words(value),
            "files" => files = words(value),
            "guest" if value == "linux" => boots_guests = true,
            "guest" => return Err(format!("there is no guest {value}")),
            "seconds" => {
                let number = value.parse();
                seconds = number.map_err(|_| format!("{value} is not a number of seconds"))?;
            }
            _ => return Err(format!("there is no key {key}")),
        }
    }
    Ok(Scenario {
        name: name.to_owned(),
        machine: machine.ok_or("the header names no machine")?,
        proves: proves.ok_or("the header does not say what this proves")?,
        pending,
        tests,
        programs,
        files,
        boots_guests,
        seconds,
        script: script.to_owned(),
    })
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// The scenarios to run, and those that are left out because they are pending.
pub(crate) type Chosen<'a> = (Vec<&'a Scenario>, Vec<&'a Scenario>);

/// The named ones, pending or not, or all; in both cases only those of the named machine, if one is.
pub(crate) fn choose<'a>(
    scenarios: &'a [Scenario],
    names: &[String],
    machine: Option<&str>,
) -> Result<Chosen<'a>, String> {
    if let Some(name) = machine.filter(|name| Machine::named(name).is_none()) {
        return Err(format!("There is no machine named {name}"));
    }
    for name in names {
        if !scenarios.iter().any(|scenario| scenario.name == *name) {
            return Err(format!("There is no scenario named {name}"));
        }
    }
    let chosen = scenarios
        .iter()
        .filter(|scenario| names.is_empty() || names.contains(&scenario.name))
        .filter(|scenario| machine.is_none_or(|name| scenario.machine.name == name));
    Ok(chosen.partition(|scenario| scenario.pending.is_none() || !names.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "# machine: two-nodes\n# proves: that it binds\n";

    #[test]
    fn a_header_ends_at_the_first_line_that_is_no_comment() {
        let script = format!("{HEADER}# tests: --bin prezero\n# seconds: 7\n\n# note: a comment\n");
        let scenario = parse("bind", &script).expect("valid");
        assert_eq!(scenario.machine.name, "two-nodes");
        assert_eq!(scenario.proves, "that it binds");
        assert_eq!(scenario.tests, ["--bin", "prezero"]);
        assert_eq!((scenario.seconds, scenario.pending), (7, None));
    }

    #[test]
    fn a_header_that_is_not_understood_is_refused() {
        for (script, message) in [
            ("# proves: x\n", "names no machine"),
            ("# machine: one-node\n", "does not say what this proves"),
            ("# machine: vax\n", "no machine vax"),
            ("# machines: one-node\n", "no key machines"),
            ("# a comment\n", "is not '# KEY: VALUE'"),
            ("# seconds: soon\n", "not a number of seconds"),
            ("# guest: windows\n", "no guest windows"),
        ] {
            let error = parse("x", script).expect_err(script);
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn a_pending_scenario_runs_only_when_it_is_named() {
        let ready = parse("ready", HEADER).expect("valid");
        let pending = format!("{HEADER}# pending: not built\n");
        let scenarios = [ready, parse("later", &pending).expect("valid")];
        let names = |scenarios: &[&Scenario]| {
            let names: Vec<String> = scenarios.iter().map(|one| one.name.clone()).collect();
            names.join(" ")
        };
        let (run, left) = choose(&scenarios, &[], None).expect("known");
        assert_eq!(
            (names(&run), names(&left)),
            ("ready".into(), "later".into())
        );
        let (run, left) = choose(&scenarios, &["later".to_owned()], None).expect("known");
        assert_eq!((names(&run), names(&left)), ("later".into(), String::new()));
        let (run, left) = choose(&scenarios, &[], Some("one-node")).expect("known");
        assert!(run.is_empty() && left.is_empty());
        assert!(choose(&scenarios, &["other".to_owned()], None).is_err());
        assert!(choose(&scenarios, &[], Some("vax")).is_err());
    }

    #[test]
    fn every_scenario_of_this_workspace_is_understood() {
        let dir = crate::check::workspace().join("tests/lab/scenarios");
        let scenarios = read_all(&dir).unwrap_or_else(|failure| panic!("{}", failure.text));
        assert!(!scenarios.is_empty());
    }
}
