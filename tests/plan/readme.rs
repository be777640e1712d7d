//! The examples in the README's table of exit codes are what the command says.

use crate::command::{finish, prezero};

/// What is said in an answer, in the README's form.
#[track_caller]
fn assert_in_readme(args: &str, code: i32) {
    let readme = include_str!("../../README.md");
    let ran = finish(prezero(args));
    assert_eq!(ran.status.code(), Some(code), "{}", ran.stderr);
    let said = ran
        .stderr
        .lines()
        .map(|line| line.trim().trim_start_matches("error: "));
    for line in said {
        // A pipe ends a cell of a table.
        let cell = match line.strip_prefix("fix: ") {
            Some(fix) => format!("fix: `{}`", fix.replace('|', "\\|")),
            None => format!("`{line}`"),
        };
        assert!(readme.contains(&cell), "not in the README: {cell}");
    }
}

fn host(name: &str) -> String {
    format!("{}/tests/fixtures/hosts/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_size_that_is_not_whole_pages() {
    assert_in_readme(
        &format!("plan --memory 19M,hugepages=on --root {}", host("one-node")),
        2,
    );
}

#[test]
fn a_node_that_is_short() {
    let root = host("two-sockets-uneven");
    let spec = "size=2G,hugepages=on,host_numa_node=1";
    assert_in_readme(&format!("plan --memory {spec} --root {root}"), 3);
}
