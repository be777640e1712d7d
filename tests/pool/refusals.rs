//! What is refused, with which code, and what to type.

use std::os::unix::fs::PermissionsExt;
use std::{env, fs};

use crate::command::{error_of, finish, prezero};
use crate::fixture::{Fixture, Supervised, size_of};

#[test]
fn command_lines_that_cannot_be_read_are_answered_in_json() {
    for (args, schema, part) in [
        ("pool create --json", "prezero/pool-create/1", "--size"),
        (
            "pool create --size 1.5G --json",
            "prezero/pool-create/1",
            "1536M",
        ),
        (
            "pool create --size 1G --node 0 --nodes 0 --json",
            "prezero/pool-create/1",
            "--node",
        ),
        ("pool status --json --no", "prezero/pool-status/1", "--no"),
        (
            "pool drain --json --size x",
            "prezero/pool-drain/1",
            "--size",
        ),
        ("pool destroy --json --no", "prezero/pool-destroy/1", "--no"),
        (
            "pool scrub --json --rate x",
            "prezero/pool-scrub/1",
            "--rate",
        ),
        (
            "pool scrub --json --exchange --method cached",
            "prezero/pool-scrub/1",
            "--method",
        ),
    ] {
        let ran = finish(prezero(args)).exits_with(2);
        let report = ran.json();
        assert_eq!(report["schema"], schema);
        let (class, message, fix) = error_of(&report);
        assert_eq!(class, "usage");
        assert!(message.contains(part), "{args}: {message}");
        let command = args.split(' ').take(2).collect::<Vec<_>>().join(" ");
        assert_eq!(fix, Some(&*format!("prezero {command} --help")));
    }
    finish(prezero("exec --memory 4M")).exits_with(2);
    finish(prezero("exec --memory 4M true")).exits_with(2);
}

#[test]
fn what_is_no_pool_is_a_usage_error() {
    let dir = env::temp_dir();
    let missing = dir.join("prezero-no-such-pool");
    for what in ["status", "scrub", "drain", "destroy"] {
        let ran = finish(prezero(&format!("pool {what} {}", missing.display()))).exits_with(2);
        let (message, fix) = ran.error_and_fix();
        assert!(message.starts_with("There is no pool "), "{message}");
        assert!(fix.starts_with("prezero pool create "), "{fix}");
        let json = format!("pool {what} {} --json", missing.display());
        let report = finish(prezero(&json)).exits_with(2).json();
        assert_eq!(report["schema"], format!("prezero/pool-{what}/1"));
        assert_eq!(report["pool"], missing.display().to_string());
        assert_eq!(error_of(&report), ("usage", message, Some(fix)));
        let ran = finish(prezero(&format!("pool {what} {}", dir.display()))).exits_with(2);
        let (message, _) = ran.error_and_fix();
        assert!(message.contains("is not on a hugetlbfs mount"), "{message}");
    }
    let create = format!("pool create {} --size 2M", missing.display());
    finish(prezero(&create)).exits_with(2);
    assert!(!missing.exists());
    let exec = format!("exec --pool {} --memory 2M -- true", missing.display());
    finish(prezero(&exec)).exits_with(2);
}

#[test]
fn no_segment_of_the_length_is_a_shortage_that_says_how_to_add_one() {
    let Some(fixture) = Fixture::with_pool(1) else {
        return;
    };
    let ran = finish(fixture.exec("--memory 2M", &["true"])).exits_with(3);
    let (message, fix) = ran.error_and_fix();
    assert!(
        message.ends_with("has no segment of 2 MiB; it has 4 MiB"),
        "{message}"
    );
    let pool = fixture.dir();
    assert_eq!(
        fix,
        format!(
            "prezero pool create {} --size 2M --segment 2M",
            pool.display()
        )
    );
    // No segment could be that long.
    let ran = finish(fixture.exec("--memory 3M", &["true"])).exits_with(2);
    assert_eq!(ran.error_and_fix().1, "--memory 2M or 4M");
    let ran = finish(fixture.exec("--memory 4M --node 7", &["true"])).exits_with(3);
    assert!(ran.error_and_fix().0.contains("on node 7"));
    assert_eq!(fixture.counts(), [1, 0, 0, 0, 0]);
}

#[test]
fn what_exec_says_to_type_makes_the_pool_that_is_missing() {
    let Some(fixture) = Fixture::new(1) else {
        return;
    };
    let exec = || finish(fixture.exec("--memory 2M --node 0", &["true", "{path}"]));
    let ran = exec().exits_with(2);
    let (message, fix) = ran.error_and_fix();
    assert!(message.starts_with("There is no pool "), "{message}");
    let args = fix.strip_prefix("prezero ").expect("a command of ours");
    finish(prezero(args)).exits_with(0);
    exec().exits_with(0);
}

#[test]
fn what_exec_says_to_type_adds_the_segment_that_is_missing() {
    let Some(fixture) = Fixture::new(4) else {
        return;
    };
    fixture.pool("create", &size_of(1)).exits_with(0);
    let exec = || finish(fixture.exec("--memory 2M --node 0", &["true", "{path}"]));
    let typed = |fix: &str| {
        let args = fix.strip_prefix("prezero ").expect("a command of ours");
        finish(prezero(args)).exits_with(0);
    };
    // None of that length.
    typed(exec().exits_with(3).error_and_fix().1);
    exec().exits_with(0);
    // All in use: one more.
    let held = Supervised::start(&fixture, "--memory 2M", &["sleep", "30"]);
    let ran = exec().exits_with(3);
    let (message, fix) = ran.error_and_fix();
    assert!(
        message.contains("1 segments of 2 MiB on node 0"),
        "{message}"
    );
    assert!(fix.ends_with(" --node 0"), "{fix}");
    typed(fix);
    exec().exits_with(0);
    drop(held);
}

#[test]
fn sizes_that_do_not_go_together_are_refused_with_those_that_do() {
    let Some(fixture) = Fixture::new(2) else {
        return;
    };
    for (args, fix) in [
        ("--size 5M --segment 3M", "--segment 2M or 4M"),
        ("--size 3M", "--size 2M or 4M"),
        ("--size 6M --segment 4M", "--size 4M or 8M"),
        ("--size 2M --page 3M", "--page 2M"),
        ("--size 2M --node 999", ""),
        ("--size 1G --page 1G", ""),
    ] {
        let ran = fixture.pool("create", args).exits_with(2);
        let (_, found) = ran.error_and_fix();
        assert!(found.starts_with(fix), "{args}: {found}");
        assert!(!fixture.dir().join("node0").exists());
    }
}

#[test]
fn a_pool_that_others_may_change_is_the_hosts_refusal() {
    let Some(fixture) = Fixture::with_pool(1) else {
        return;
    };
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(fixture.dir(), open).expect("it is ours");
    for what in ["status", "scrub", "drain", "destroy"] {
        let ran = fixture.pool(what, "").exits_with(4);
        let (message, fix) = ran.error_and_fix();
        assert!(message.contains("is open to others"), "{message}");
        assert!(fix.starts_with("chmod 700 "), "{fix}");
    }
    finish(fixture.exec("--memory 4M", &["true"])).exits_with(4);
}

#[test]
fn the_directory_of_a_node_is_refused_with_the_pools_own() {
    let Some(fixture) = Fixture::with_pool(1) else {
        return;
    };
    let (pool, node) = (fixture.dir(), fixture.segments()[0].clone());
    let node = node.parent().expect("a node's").display();
    for args in [
        format!("pool status {node}"),
        format!("pool scrub {node}"),
        format!("pool destroy {node}"),
        format!("pool create {node} --size 4M"),
        format!("exec --pool {node}/ --memory 4M -- true"),
        format!("run --pool {node} --memory size=4M,hugepages=on"),
    ] {
        let ran = finish(prezero(&args)).exits_with(2);
        let (message, fix) = ran.error_and_fix();
        assert!(
            message.ends_with("is the directory of a node, not a pool"),
            "{args}: {message}"
        );
        assert_eq!(fix, pool.display().to_string(), "{args}");
    }
}

#[test]
fn a_segment_that_others_may_use_is_mentioned_with_what_to_type() {
    let Some(fixture) = Fixture::with_pool(2) else {
        return;
    };
    fixture.stain_all();
    let open = fixture.segments().remove(0);
    fs::set_permissions(&open, fs::Permissions::from_mode(0o666)).expect("it is ours");
    let fix = format!("chmod 600 {}", open.display());
    let status = fixture.status();
    assert_eq!(status["problems"][0]["kind"], "mode");
    assert_eq!(status["problems"][0]["fix"], *fix);
    assert_eq!(fixture.counts(), [0, 1, 0, 0, 0]);
    let text = fixture.pool("status", "").exits_with(0).stdout;
    assert!(
        text.contains(&format!("has mode 0666, not 0600\n  fix: {fix}\n")),
        "{text}"
    );
    let ran = fixture.pool("scrub", "").exits_with(0);
    assert!(ran.stderr.contains(&format!("  fix: {fix}\n")), "{ran:#?}");
    assert_eq!(fixture.counts(), [1, 0, 0, 0, 0]);
    fs::set_permissions(&open, fs::Permissions::from_mode(0o600)).expect("it is ours");
    assert_eq!(fixture.counts(), [1, 1, 0, 0, 0]);
}
