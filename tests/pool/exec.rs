//! `prezero exec`: what the command is given, and what becomes of the segment.

use std::fs;
use std::path::Path;

use prezero_testkit::maps_containing_of;

use crate::command::finish;
use crate::fixture::{Fixture, SEGMENT, Supervised};
use crate::sys::View;

#[test]
fn the_command_is_told_of_its_segment_and_its_exit_code_is_handed_on() {
    let Some(fixture) = Fixture::with_pool(1) else {
        return;
    };
    let script = "echo $1; stat -c %s $2; exit 7";
    let command = ["sh", "-c", script, "sh", "size={size},on={node}{", "{path}"];
    let ran = finish(fixture.exec("--memory 4M", &command)).exits_with(7);
    assert_eq!(ran.stderr, "");
    assert_eq!(ran.stdout, format!("size={SEGMENT},on=0{{\n{SEGMENT}\n"));
    assert_eq!(fixture.counts(), [0, 1, 0, 0, 0]);
}

#[test]
fn a_dirty_segment_is_zero_when_the_command_sees_it() {
    let Some(fixture) = Fixture::with_pool(1) else {
        return;
    };
    fixture.stain_all();
    for options in ["--memory 4M", "--memory 4M --exchange"] {
        assert_eq!(fixture.counts(), [0, 1, 0, 0, 0]);
        let command = ["cmp", "--bytes=4194304", "{path}", "/dev/zero"];
        finish(fixture.exec(options, &command)).exits_with(0);
        View::of(&fixture.segments()[0]).fill(0xa5);
        // The same command, asked behind the pool's back: the test can fail.
        let path = fixture.segments().remove(0);
        assert_eq!(View::of(&path).stained() as u64, SEGMENT / 64);
    }
}

#[test]
fn the_command_inherits_the_lock_and_nothing_else() {
    let Some(fixture) = Fixture::with_pool(1) else {
        return;
    };
    let exec = Supervised::start(&fixture, "--memory 4M", &["sleep", "30"]);
    let child = exec.child("sleep").expect("it runs");
    let open = |pid: u32| {
        let fds = fs::read_dir(format!("/proc/{pid}/fd")).expect("it lives");
        let fds = fds
            .flatten()
            .map(|fd| fs::read_link(fd.path()).expect("an open file"));
        let mut fds: Vec<_> = fds.map(|path| path.display().to_string()).collect();
        fds.sort();
        fds
    };
    let segment = fixture.segments()[0].display().to_string();
    let fds = open(child);
    assert_eq!(
        fds.iter().filter(|fd| **fd == segment).count(),
        1,
        "{fds:?}"
    );
    // What the test itself leaks to every child is not prezero's.
    let inherited = open(std::process::id());
    let ours = |fd: &&String| !fd.starts_with("pipe:") && !inherited.contains(fd);
    assert_eq!(fds.iter().filter(ours).collect::<Vec<_>>(), [&segment]);
    // prezero keeps the lock as well, but not the memory.
    assert!(open(exec.pid()).contains(&segment));
    let mount = fixture.mount().to_str().expect("UTF-8");
    assert_eq!(maps_containing_of(exec.pid(), mount), [] as [String; 0]);
}

#[test]
fn a_command_that_cannot_be_started_has_the_codes_of_env() {
    let Some(fixture) = Fixture::with_pool(1) else {
        return;
    };
    for (command, code) in [("/nonexistent", 127), ("/etc/passwd", 126)] {
        let ran = finish(fixture.exec("--memory 4M", &[command, "{path}"])).exits_with(code);
        let said = format!("error: Cannot run {command}: ");
        assert!(ran.stderr.starts_with(&said), "{ran:#?}");
        assert_eq!(fixture.counts()[2], 0);
    }
}

#[test]
fn a_command_that_is_not_told_its_path_is_warned_of() {
    let Some(fixture) = Fixture::with_pool(1) else {
        return;
    };
    let ran = finish(fixture.exec("--memory 4M", &["echo", "{size}"])).exits_with(0);
    assert!(ran.stderr.starts_with("warning: "), "{ran:#?}");
    assert!(Path::new(&fixture.dir()).exists());
}
