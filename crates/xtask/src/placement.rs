//! `cargo xtask check unsafe`: unsafe code stands only where a reviewer looks for it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::Failure;
use crate::rust_tokens::lines_with;

/// Where Rust sources are, below the workspace.
const SOURCES: [&str; 4] = ["benches", "crates", "src", "tests"];

/// What makes code unsafe: the keyword, and the one macro that does without it.
const UNSAFE: [&str; 2] = ["unsafe", "global_asm"];

/// Files that hold unsafe code elsewhere than [`is_place_for_unsafe`] says, and why they have to.
const ALLOWED: &[(&str, &str)] = &[
    (
        "crates/prezero-clear/src/span.rs",
        "what a span's memory must be is a promise no type can express, and its stores rest on it",
    ),
    (
        "crates/prezero-memory/src/adapter.rs",
        "vm-memory takes a raw pointer to memory that is mapped already",
    ),
    (
        "crates/prezero-memory/src/clear/mod.rs",
        "its caller owns the memory, and no type can express that of plain addresses",
    ),
    (
        "crates/prezero-memory/src/clear/spans.rs",
        "makes spans of plain addresses that one worker has claimed",
    ),
    (
        "crates/prezero-memory/src/mapping.rs",
        "only the owner of a range knows that nobody uses what it maps over or unmaps",
    ),
    (
        "crates/prezero-memory/src/pool/mapped.rs",
        "the same for a segment that is worked on, which it has cleared as its only owner",
    ),
    (
        "crates/prezero-memory/src/ram/clear.rs",
        "keeps the contract of clearing: it owns the memory, and nobody has seen it",
    ),
    (
        "crates/prezero-memory/src/register.rs",
        "the trait by which a VMM registers slots has a contract no type can express",
    ),
    (
        "crates/prezero-memory/src/ram.rs",
        "keeps that contract: it owns the mapping and the slot",
    ),
    (
        "crates/prezero-vmm/src/vm.rs",
        "hands that contract on to the caller",
    ),
    (
        "crates/prezero-vmm/src/probe/code.rs",
        "the guest's program, which this process never executes",
    ),
];

/// Fails when unsafe code stands elsewhere, and when an entry of the list is no longer needed.
pub(crate) fn check(workspace: &Path) -> Result<(), Failure> {
    let complaints = complaints(workspace, ALLOWED)
        .map_err(|error| Failure::other(format!("Cannot read the sources: {error}")))?;
    if complaints.is_empty() {
        return Ok(());
    }
    let advice = "Move it to the crate's sys.rs, or name the file and the reason in ALLOWED";
    let here = file!();
    Err(Failure::other(format!(
        "{}\n{advice} of {here}",
        complaints.join("\n")
    )))
}

fn complaints(workspace: &Path, allowed: &[(&str, &str)]) -> io::Result<Vec<String>> {
    let mut files = Vec::new();
    for dir in SOURCES {
        collect(&workspace.join(dir), &mut files)?;
    }
    files.sort();
    let mut complaints = Vec::new();
    let mut unused: BTreeSet<&str> = allowed.iter().map(|(path, _)| *path).collect();
    for file in &files {
        let path = file.strip_prefix(workspace).unwrap_or(file);
        let source = fs::read_to_string(file)?;
        let lines: BTreeSet<usize> = UNSAFE
            .iter()
            .flat_map(|word| lines_with(&source, word))
            .collect();
        if lines.is_empty() || is_place_for_unsafe(path) {
            continue;
        }
        let listed = unused.len();
        unused.retain(|entry| Path::new(entry) != path);
        let in_list = unused.len() < listed;
        if !in_list {
            complaints.extend(
                lines
                    .iter()
                    .map(|line| format!("{}:{line}: unsafe", path.display())),
            );
        }
    }
    complaints.extend(
        unused
            .iter()
            .map(|entry| format!("{entry}: listed, but without unsafe code")),
    );
    Ok(complaints)
}

/// System calls, instruction sets, and tests, which set up what the code under test must cope with.
fn is_place_for_unsafe(path: &Path) -> bool {
    let is_file = |wanted| path.file_name().is_some_and(|name| name == wanted);
    let is_below = |wanted| path.components().any(|part| part.as_os_str() == wanted);
    is_file("sys.rs") || is_file("tests.rs") || is_below("arch") || is_below("tests")
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            // A crate may be built on its own, into a target directory of its own.
            if entry.file_name() != "target" {
                collect(&path, files)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("temporary directory");
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().expect("below the directory")).expect("created");
            fs::write(path, text).expect("written");
        }
        dir
    }

    #[test]
    fn unsafe_code_has_its_places() {
        let dir = workspace(&[
            ("crates/a/src/sys.rs", "unsafe {}"),
            ("crates/a/src/arch/x86_64.rs", "unsafe {}"),
            ("crates/a/src/tests.rs", "unsafe {}"),
            ("crates/a/tests/t.rs", "unsafe {}"),
            ("crates/a/src/lib.rs", "fn safe() {}"),
            ("crates/a/target/x.rs", "unsafe {}"),
        ]);
        assert_eq!(complaints(dir.path(), &[]).expect("readable"), [""; 0]);
    }

    #[test]
    fn unsafe_code_elsewhere_is_refused_with_its_line() {
        let dir = workspace(&[
            ("src/main.rs", "fn main() {\n    unsafe {}\n}"),
            ("benches/b.rs", "global_asm!()"),
        ]);
        let found = complaints(dir.path(), &[]).expect("readable");
        assert_eq!(found, ["benches/b.rs:1: unsafe", "src/main.rs:2: unsafe"]);
    }

    #[test]
    fn a_listed_file_is_allowed_as_long_as_it_needs_it() {
        let list = [("src/main.rs", "a reason")];
        let dir = workspace(&[("src/main.rs", "unsafe {}")]);
        assert_eq!(complaints(dir.path(), &list).expect("readable"), [""; 0]);
        fs::write(dir.path().join("src/main.rs"), "fn main() {}").expect("written");
        let found = complaints(dir.path(), &list).expect("readable");
        assert_eq!(found, ["src/main.rs: listed, but without unsafe code"]);
    }
}
