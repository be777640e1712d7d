//! `prezero exec` on a terminal: the command gets each key, each new size and a hang-up once.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use prezero_testkit::skip;

use crate::fixture::Fixture;
use crate::sys::Terminal;

/// Counts what it gets until a second or so after the first, or for ten seconds. A shell would count two that come at
/// once as one.
const COUNTING: &str = r#"
    my %n;
    for my $s (qw(INT QUIT HUP WINCH)) { $SIG{$s} = sub { $n{$s}++ } }
    $| = 1;
    print "ready\n";
    for (1 .. 500) { last if %n; select(undef, undef, undef, 0.02) }
    select(undef, undef, undef, 0.02) for 1 .. 40;
    print join(" ", map { "$_ $n{$_}" } sort keys %n), "\n";
"#;

/// The command in prezero's process group, in one of its own, and in a session of its own.
const FORMS: [&[&str]; 3] = [
    &["perl", "-e"],
    &["perl", "-e", "setpgrp(0, 0);"],
    &["setsid", "perl", "-e"],
];

/// What the command in one of the forms says it got, when that was done to prezero's terminal. `before` is
/// what starts prezero.
#[track_caller]
fn told(fixture: &Fixture, before: &[&str], form: &[&str], act: impl FnOnce(Terminal)) -> String {
    let mut words: Vec<String> = form.iter().map(|&word| word.to_owned()).collect();
    match words.last_mut() {
        Some(last) if last != "-e" => last.push_str(COUNTING),
        _ => words.push(COUNTING.to_owned()),
    }
    words.push("{path}".to_owned());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let exec = fixture.exec("--memory 4M", &words);
    let line = before
        .iter()
        .map(|&word| word.as_ref())
        .chain([exec.get_program()])
        .chain(exec.get_args());
    let line: Vec<_> = line.collect();
    let mut command = Command::new(line[0]);
    command.args(&line[1..]).stdout(Stdio::piped());
    let (terminal, mut leader) = Terminal::spawn(&mut command);
    let mut output = BufReader::new(leader.stdout.take().expect("a pipe"));
    let mut next = || {
        let mut line = String::new();
        output.read_line(&mut line).expect("a pipe");
        line.trim_end().to_owned()
    };
    assert_eq!(next(), "ready");
    act(terminal);
    let got = next();
    leader.wait().expect("it ends");
    got
}

/// A fixture, where the machine has what these tests need.
fn fixture() -> Option<Fixture> {
    for tool in ["perl", "setsid"] {
        if Command::new(tool).arg("--version").output().is_err() {
            skip(tool, "it is not installed");
            return None;
        }
    }
    Fixture::with_pool(1)
}

#[test]
fn a_key_reaches_the_command_once_whatever_its_process_group() {
    let Some(fixture) = fixture() else {
        return;
    };
    for form in FORMS {
        for (key, signal) in [(3, "INT 1"), (28, "QUIT 1")] {
            // The terminal stays until the command has told what it got.
            let mut kept = None;
            let got = told(&fixture, &[], form, |terminal| {
                terminal.press(key);
                kept = Some(terminal);
            });
            assert_eq!(got, signal, "{form:?}");
        }
    }
}

#[test]
fn a_new_size_of_the_terminal_reaches_the_command_once() {
    let Some(fixture) = fixture() else {
        return;
    };
    for form in FORMS {
        let mut kept = None;
        let got = told(&fixture, &[], form, |terminal| {
            terminal.resize(100);
            kept = Some(terminal);
        });
        assert_eq!(got, "WINCH 1", "{form:?}");
    }
}

#[test]
fn a_hang_up_reaches_the_command_once_whoever_leads_the_session() {
    let Some(fixture) = fixture() else {
        return;
    };
    // A shell that waits for it is ended by the hang-up, and then all of its group are told.
    let shell = ["sh", "-c", "\"$@\"; exit", "sh"];
    for before in [&[][..], &shell] {
        for form in FORMS {
            let got = told(&fixture, before, form, drop);
            assert_eq!(got, "HUP 1", "{before:?} {form:?}");
        }
    }
}
