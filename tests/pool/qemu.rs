//! Stock QEMU on a leased segment.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use prezero_testkit::skip;

use crate::command::finish;
use crate::fixture::{Fixture, Supervised, eventually};
use crate::sys::kill;

const QEMU: &str = "qemu-system-x86_64";

/// The arguments of a machine that stands still. No KVM is needed for that.
fn machine(monitor: &Path) -> Vec<String> {
    let monitor = format!("unix:{},server=on,wait=off", monitor.display());
    let args = "-S -display none -nodefaults -accel tcg -m 4M -object \
                memory-backend-file,id=m,size={size},mem-path={path},share=on \
                -machine q35,memory-backend=m -qmp";
    let args = [QEMU].into_iter().chain(args.split_whitespace());
    args.map(str::to_owned).chain([monitor]).collect()
}

/// The monitor, and what QEMU says first on it.
fn greeting(monitor: &Path) -> Option<(UnixStream, String)> {
    let mut line = String::new();
    let stream = UnixStream::connect(monitor).ok()?;
    BufReader::new(&stream).read_line(&mut line).ok()?;
    Some((stream, line))
}

#[track_caller]
fn with_qemu(test: impl FnOnce(&Fixture, Supervised, UnixStream)) {
    if Command::new(QEMU).arg("--version").output().is_err() {
        skip("qemu", "there is no QEMU");
        return;
    }
    let Some(fixture) = Fixture::with_pool(1) else {
        return;
    };
    fixture.stain_all();
    let dir = tempfile::tempdir().expect("a new directory");
    let monitor = dir.path().join("qmp");
    let args = machine(&monitor);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let exec = Supervised::start(&fixture, "--memory 4M", &args);
    let mut said = None;
    eventually("QEMU's greeting", || {
        said = greeting(&monitor);
        said.is_some()
    });
    let (monitor, said) = said.expect("checked");
    assert!(said.contains("\"QMP\""), "{said}");
    test(&fixture, exec, monitor);
}

#[test]
fn qemu_starts_on_a_segment_and_leaves_it_free_and_dirty() {
    with_qemu(|fixture, exec, mut monitor| {
        assert_eq!(fixture.counts(), [0, 0, 1, 0, 0]);
        for command in ["qmp_capabilities", "quit"] {
            writeln!(monitor, "{{\"execute\": \"{command}\"}}").expect("it listens");
        }
        exec.finish().exits_with(0);
        assert_eq!(fixture.counts(), [0, 1, 0, 0, 0]);
        fixture.pool("scrub", "").exits_with(0);
        assert_eq!(fixture.counts(), [1, 0, 0, 0, 0]);
    });
}

#[test]
fn the_segment_of_a_qemu_whose_supervisor_was_killed_is_never_taken() {
    with_qemu(|fixture, exec, _monitor| {
        let qemu = exec.child(QEMU).expect("it runs");
        kill(exec.pid(), libc::SIGKILL);
        let again = fixture.exec("--memory 4M", &["true", "{path}"]);
        let ran = finish(again).exits_with(3);
        let (message, _) = ran.error_and_fix();
        // The supervisor may still be dying, and named before it.
        assert!(
            message.contains(&format!(" {qemu} (qemu-system")),
            "{message}"
        );
        fixture.pool("scrub", "").exits_with(0);
        fixture.pool("drain", "").exits_with(0);
        fixture.pool("destroy", "").exits_with(3);
        assert_eq!(fixture.counts(), [0, 0, 1, 0, 0]);
        kill(qemu, libc::SIGKILL);
        eventually("free", || fixture.counts() == [0, 1, 0, 0, 0]);
    });
}
