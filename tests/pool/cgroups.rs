//! Who pays for a pool.

use std::process::Command;

use prezero_testkit::skip;

use crate::cgroup::Group;
use crate::command::{Ran, finish};
use crate::fixture::{Fixture, SEGMENT};

#[track_caller]
fn with_group(test: impl FnOnce(&Fixture, &Group)) {
    // First: its lock is also what keeps two tests from making the same group.
    let Some(fixture) = Fixture::new(2) else {
        return;
    };
    let group = match Group::new() {
        Ok(group) => group,
        Err(error) => {
            skip("cgroup", &format!("cannot make one: {error}"));
            return;
        }
    };
    test(&fixture, &group);
}

/// `prezero pool create`, run in the group.
#[track_caller]
fn create_in(group: &Group, fixture: &Fixture, args: &str) -> Ran {
    let create = fixture.command("create", args);
    let join = format!(
        "echo $$ > {}/cgroup.procs; exec \"$0\" \"$@\"",
        group.dir().display()
    );
    let mut command = Command::new("bash");
    command
        .args(["-c", &join])
        .arg(create.get_program())
        .args(create.get_args());
    finish(command)
}

#[test]
fn the_cgroup_that_pays_is_named() {
    with_group(|fixture, group| {
        let cgroup = group.dir().display().to_string();
        let ran = create_in(group, fixture, "--size 4M --json").exits_with(0);
        assert_eq!(ran.json()["cgroup"], *cgroup);
        // From outside of the group, and for as long as the pages are there.
        let status = fixture.status();
        let charges = status["charges"].as_array().expect("a list");
        let own = charges.iter().find(|charge| charge["cgroup"] == *cgroup);
        assert_eq!(own.expect("it pays")["bytes"], SEGMENT, "{status:#}");
        let text = fixture.pool("status", "").exits_with(0).stdout;
        let said = format!("to the cgroup {cgroup}\n");
        assert!(text.contains(&said), "{text}");
        // Whoever uses them.
        finish(fixture.exec("--memory 4M", &["true", "{path}"])).exits_with(0);
        assert_eq!(fixture.status()["charges"], status["charges"]);
        fixture.pool("destroy", "").exits_with(0);
    });
}

#[test]
fn a_limit_of_the_cgroup_that_pays_is_a_shortage_with_its_file() {
    with_group(|fixture, group| {
        group.set("hugetlb.2MB.max", &(SEGMENT / 2).to_string());
        let ran = create_in(group, fixture, "--size 4M").exits_with(3);
        let (message, _) = ran.error_and_fix();
        let file = group.dir().join("hugetlb.2MB.max").display().to_string();
        assert!(message.contains(&file), "{message}");
        assert_eq!(fixture.counts(), [0; 5]);
    });
}
