//! What is tested: prezero and test programs, linked statically because the machines have no libraries for them.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::Failure;
use crate::check::workspace;

/// Named, so that the flags are not for build scripts and procedural macros too: they cannot be static.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Builds prezero; `dir` is the target directory.
pub(crate) fn prezero(dir: &Path) -> Result<PathBuf, Failure> {
    let built = cargo(dir, &["build", "--package", "prezero", "--bin", "prezero"])?;
    let mut built = built.into_iter();
    let found = built.find(|(name, _)| name == "prezero");
    found
        .map(|(_, file)| file)
        .ok_or_else(|| Failure::other("cargo build made no program prezero".to_owned()))
}

/// Builds the test programs that `select` chooses, such as `--package prezero --bin prezero`; by their targets' names.
pub(crate) fn tests(dir: &Path, select: &[String]) -> Result<Vec<(String, PathBuf)>, Failure> {
    let mut args = vec!["test", "--no-run"];
    args.extend(select.iter().map(String::as_str));
    let built = cargo(dir, &args)?;
    if built.is_empty() {
        let select = select.join(" ");
        return Err(Failure::other(format!(
            "cargo test {select} makes no test program"
        )));
    }
    Ok(built)
}

/// Builds the programs that `select` chooses, such as `--package prezero-testkit --example poison`; by their names.
pub(crate) fn others(dir: &Path, select: &[String]) -> Result<Vec<(String, PathBuf)>, Failure> {
    let mut args = vec!["build"];
    args.extend(select.iter().map(String::as_str));
    let built = cargo(dir, &args)?;
    if built.is_empty() {
        let select = select.join(" ");
        return Err(Failure::other(format!(
            "cargo build {select} makes no program"
        )));
    }
    Ok(built)
}

/// The programs that cargo made, by their targets' names.
fn cargo(dir: &Path, args: &[&str]) -> Result<Vec<(String, PathBuf)>, Failure> {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(program)
        .args(args)
        .args(["--locked", "--target", TARGET, "--message-format"])
        .arg("json-render-diagnostics")
        .arg("--target-dir")
        .arg(dir)
        .current_dir(workspace())
        // A debug build, which also finds overflows, but one that does not crawl under emulation.
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Failure::other(format!("Cannot run cargo: {error}")))?;
    let shown = args.join(" ");
    if !output.status.success() {
        return Err(Failure::other(format!("cargo {shown}: {}", output.status)));
    }
    Ok(executables(
        &String::from_utf8_lossy(&output.stdout),
        args[0] == "test",
    ))
}

/// Of cargo's messages those about programs; of `cargo test` only test programs.
fn executables(messages: &str, tests: bool) -> Vec<(String, PathBuf)> {
    let messages = messages.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let file = message["executable"].as_str()?;
        let name = message["target"]["name"].as_str()?;
        (message["profile"]["test"] == tests).then(|| (name.to_owned(), file.into()))
    });
    messages.collect()
}

#[cfg(test)]
mod tests_of_messages {
    use super::*;

    #[test]
    fn only_programs_of_the_right_kind_are_taken() {
        let messages = r#"
            {"reason":"compiler-artifact","target":{"name":"libc"},"profile":{"test":false},"executable":null}
            {"reason":"compiler-artifact","target":{"name":"prezero"},"profile":{"test":false},"executable":"/t/prezero"}
            {"reason":"compiler-artifact","target":{"name":"prezero"},"profile":{"test":true},"executable":"/t/prezero-1"}
            {"reason":"build-finished","success":true}"#;
        let found = |tests| executables(messages, tests);
        assert_eq!(found(false), [("prezero".to_owned(), "/t/prezero".into())]);
        assert_eq!(found(true), [("prezero".to_owned(), "/t/prezero-1".into())]);
    }
}
