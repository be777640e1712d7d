//! `prezero exec` on a terminal.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use prezero_testkit::skip;

use crate::fixture::Fixture;

/// Counts what it gets, until two seconds after the first at most. A shell would count two that come at once as one.
const COUNTING: &str = "$SIG{INT} = sub { $n++ }; $| = 1; print \"ready\\n\"; \
     select(undef, undef, undef, 60) until $n; my $end = time + 2; \
     select(undef, undef, undef, 0.02) while time < $end; print \"total $n\\n\"";

#[test]
fn a_key_interrupts_the_command_once() {
    for tool in ["script", "perl"] {
        if Command::new(tool).arg("--version").output().is_err() {
            skip(tool, "it is not installed");
            return;
        }
    }
    let Some(fixture) = Fixture::with_pool(1) else {
        return;
    };
    let pool = fixture.dir().display().to_string();
    // Without a shell in between, which a key would interrupt too.
    let exec = format!(
        "exec {} exec --pool {pool} --memory 4M -- perl -e \"$COUNTING\" {{path}}",
        env!("CARGO_BIN_EXE_prezero")
    );
    let mut terminal = Command::new("script")
        .args(["--quiet", "--return", "--command", &exec, "/dev/null"])
        .env("COUNTING", COUNTING)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script starts");
    let mut keys = terminal.stdin.take().expect("a pipe");
    let mut screen = BufReader::new(terminal.stdout.take().expect("a pipe"));
    let mut until = |word: &str| {
        let mut line = String::new();
        while !line.contains(word) {
            line.clear();
            let read = screen.read_line(&mut line).expect("a pipe");
            assert_ne!(read, 0, "it ended before it said {word}");
        }
        line
    };
    until("ready");
    // Ctrl-C.
    keys.write_all(b"\x03").expect("it lives");
    let total = until("total");
    // The terminal may echo the key.
    assert!(total.trim_end().ends_with("total 1"), "{total}");
    drop(keys);
    let status = terminal.wait().expect("it ends");
    assert!(status.success(), "{status}");
}
