//! `cargo xtask check`: what can be found without running prezero.

use std::env;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use crate::{Failure, placement};

type Check = fn() -> Result<(), Failure>;

/// The checks in their order, the quick ones first.
const CHECKS: [(&str, Check); 5] = [
    ("fmt", || cargo(&["fmt", "--all", "--check"], None)),
    ("unsafe", || placement::check(workspace())),
    ("clippy", || {
        let everything = [
            "clippy",
            "--workspace",
            "--all-targets",
            "--all-features",
            "--",
        ];
        cargo(&[&everything[..], &["-D", "warnings"]].concat(), None)
    }),
    // On its own, because vm-memory is switched on for the whole workspace as soon as one member wants it.
    ("features", || {
        cargo(
            &["clippy", "-p", "prezero-memory", "--", "-D", "warnings"],
            None,
        )
    }),
    ("doc", || {
        let everything = ["doc", "--workspace", "--no-deps", "--all-features"];
        cargo(&everything, Some(("RUSTDOCFLAGS", "-Dwarnings")))
    }),
];

/// Runs the named checks, or all of them; every one runs, also after a failure.
pub(crate) fn run(names: &[String]) -> Result<ExitCode, Failure> {
    for name in names {
        if !CHECKS.iter().any(|(known, _)| known == name) {
            let known: Vec<&str> = CHECKS.iter().map(|(name, _)| *name).collect();
            let text = format!("There is no check named {name}, only {}", known.join(", "));
            return Err(Failure::usage(text));
        }
    }
    let mut failed = Vec::new();
    for (name, check) in CHECKS {
        if !names.is_empty() && !names.iter().any(|wanted| wanted == name) {
            continue;
        }
        let start = Instant::now();
        let verdict = match check() {
            Ok(()) => "ok".to_owned(),
            Err(failure) => {
                failed.push(name);
                format!("FAILED\n{}", failure.text)
            }
        };
        eprintln!(
            "check {name}: {:.1} s: {verdict}",
            start.elapsed().as_secs_f64()
        );
    }
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let again = failed.join(" ");
    Err(Failure::other(format!(
        "Failed, to be repeated with: cargo xtask check {again}"
    )))
}

fn cargo(args: &[&str], variable: Option<(&str, &str)>) -> Result<(), Failure> {
    // Cargo tells its sub-commands which cargo they belong to.
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(program)
        .args(args)
        .envs(variable)
        .current_dir(workspace())
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::other(format!(
            "cargo {}: {status}",
            args.join(" ")
        ))),
        Err(error) => Err(Failure::other(format!("Cannot run cargo: {error}"))),
    }
}

/// The directory of the workspace's Cargo.toml.
pub(crate) fn workspace() -> &'static Path {
    let this = Path::new(env!("CARGO_MANIFEST_DIR"));
    this.ancestors().nth(2).unwrap_or(this)
}
