//! Growing that is refused, comes out short, or is killed.

mod growths;

use std::env;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use growths::{
    PAGE, State, child, counters, more, operator, pool, root_with, state_of_child, type_in,
};
use prezero_memory::{Class, Control, GrowError, Growth, LeftPages, PoolNeed, leftovers};
use prezero_testkit::{MachineLock, skip};

const SYSFS: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

fn read(root: &Path, file: &str) -> String {
    fs::read_to_string(root.join(file)).expect("readable")
}

#[test]
fn a_pool_that_comes_out_short_is_reported_and_given_back() {
    let Some((guard, before)) = pool(PAGE) else {
        return;
    };
    // The pool grows, but whatever is added is never free: somebody else has it.
    let Some(root) = root_with(Some(0), 8192) else {
        return skip("hugepages", "no directory of a node");
    };
    let state = State::new();
    let need = PoolNeed {
        page: PAGE,
        node: None,
        pages: 12,
    };
    let error = Growth::grow(root.path(), &state.dir(), &[need], &Control::default());
    let error = error.expect_err("short");
    assert_eq!(error.class(), Class::Shortage);
    let text = "Asked the kernel for 12 more pages of 2 MiB, got 0, short by 12";
    assert_eq!(error.to_string(), text);
    let fix = error.fix().expect("a fix");
    assert!(fix.contains("compact_memory"), "{fix}");
    assert!(fix.contains("hugepagesz=2M hugepages="), "{fix}");
    assert_eq!(read(root.path(), "proc/sys/vm/compact_memory"), "1");
    assert_eq!(read(root.path(), "proc/sys/vm/drop_caches"), "1");
    assert_eq!(guard.counters(), before);
    assert_eq!(state.journals(), [""; 0]);
}

#[test]
fn more_than_the_host_can_spare_is_refused_before_anything_is_added() {
    let Some((guard, before)) = pool(PAGE) else {
        return;
    };
    // Of 300 MiB the host keeps 256.
    let Some(root) = root_with(None, 300) else {
        return skip("hugepages", "no directory of a node");
    };
    let state = State::new();
    let grow = |pages| {
        let needs = [more(PAGE, pages)];
        Growth::grow(root.path(), &state.dir(), &needs, &Control::default())
    };
    let error = grow(23).expect_err("46 MiB");
    assert!(matches!(error, GrowError::Memory { .. }), "{error:?}");
    assert_eq!(error.class(), Class::Shortage);
    let text = "Adding 46 MiB to the hugepage pools, but 300 MiB is available (MemAvailable), of which 256 MiB stay free";
    assert_eq!(error.to_string(), text);
    assert_eq!(guard.counters(), before);
    assert_eq!(state.journals(), [""; 0]);
    drop(grow(22).expect("44 MiB"));
    assert_eq!(guard.counters(), before);
}

#[test]
fn a_host_without_that_pool_is_an_error_with_its_name() {
    let root = tempfile::tempdir().expect("temporary directory");
    let state = State::new();
    let need = PoolNeed {
        page: PAGE,
        node: Some(1),
        pages: 1,
    };
    let error = Growth::grow(root.path(), &state.dir(), &[need], &Control::default());
    let error = error.expect_err("no pool");
    assert_eq!(error.class(), Class::Host);
    assert_eq!(
        error.to_string(),
        "This host has no pool of 2 MiB hugepages"
    );
}

#[test]
fn an_ordinary_user_is_told_what_root_has_to_type() {
    let _lock = MachineLock::acquire();
    let state = State::new();
    let dir = state.dir();
    // The binary may be where an ordinary user cannot read it.
    let copy = dir.join("test");
    fs::create_dir(&dir).expect("created");
    fs::copy(env::current_exe().expect("path"), &copy).expect("copied");
    let public = format!("chmod 755 {0}/.. {0} {0}/test", dir.display());
    type_in(&public);
    let mut user = Command::new("setpriv");
    user.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    user.arg(copy).env_remove("TMPDIR");
    let output = match child(user, "child_grows_without_permission", &dir).output() {
        Ok(output) => output,
        Err(error) => return skip("hugepages", &format!("setpriv: {error}")),
    };
    let printed = String::from_utf8_lossy(&output.stdout);
    if !printed.contains("running 1 test") {
        return skip("hugepages", &format!("no other user: {output:?}"));
    }
    assert!(
        output.status.success() && printed.contains("1 passed"),
        "{output:?}"
    );
}

#[test]
#[ignore = "run as a child by an_ordinary_user_is_told_what_root_has_to_type"]
fn child_grows_without_permission() {
    let Some(parents) = state_of_child() else {
        return;
    };
    let total = counters(PAGE).total + 5;
    let typed = format!("echo {total} | sudo tee {SYSFS}/nr_hugepages");
    let grow = |dir: &Path, pages| {
        let needs = [more(PAGE, pages)];
        Growth::grow(Path::new("/"), dir, &needs, &Control::default())
    };
    let own = State::new();
    for (dir, what) in [
        (parents.join("prezero"), "create"),
        (parents.clone(), "open"),
        (own.dir(), "write"),
    ] {
        let error = grow(&dir, 5).expect_err("not root");
        assert_eq!(error.class(), Class::Host, "{error:?}");
        let refused = matches!(error, GrowError::Refused { what: of, .. } if of == what);
        assert!(refused, "{what}: {error:?}");
        assert_eq!(error.fix().as_deref(), Some(&*typed));
        // Where nothing is missing there is nothing to refuse.
        assert_eq!(grow(&dir, 0).expect("enough").grown(), []);
    }
    assert_eq!(own.journals(), [""; 0]);
}

/// A child that has grown the pool by ten pages, and lives.
fn grown_child(state: &State) -> Child {
    let this = Command::new(env::current_exe().expect("path"));
    let mut child = child(this, "child_grows_and_waits", &state.dir())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut printed = Vec::new();
    let output = child.stdout.as_mut().expect("piped");
    let mut byte = [0];
    while !printed.ends_with(b"has grown") {
        assert_eq!(
            output.read(&mut byte).expect("readable"),
            1,
            "it ended: {printed:?}"
        );
        printed.push(byte[0]);
    }
    child
}

#[test]
#[ignore = "run as a child by what_a_killed_process_left_is_found_and_its_fix_works"]
fn child_grows_and_waits() {
    let Some(dir) = state_of_child() else {
        return;
    };
    let needs = [more(PAGE, 10)];
    let growth = Growth::grow(Path::new("/"), &dir, &needs, &Control::default()).expect("20 MiB");
    assert_eq!(growth.grown()[0].got, 10);
    println!("has grown");
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn what_a_killed_process_left_is_found_and_its_fix_works() {
    let Some((guard, before)) = pool(PAGE) else {
        return;
    };
    let state = State::new();
    let mut child = grown_child(&state);
    assert_eq!(guard.counters().total, before.total + 10);
    assert_eq!(leftovers(&state.dir()).expect("readable"), [], "it lives");
    child.kill().expect("our child");
    child.wait().expect("our child");

    let found = leftovers(&state.dir()).expect("readable");
    let [leftover] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(leftover.pid, child.id());
    let sum: u64 = leftover.pools.iter().map(|left| left.pages).sum();
    assert_eq!(sum, 10);
    let certain = |left: &LeftPages| left.page == PAGE && left.node.is_some() && !left.at_most;
    assert!(leftover.pools.iter().all(certain), "{leftover:?}");

    // The lock went with the process, and what others do is not touched by the fix.
    let mut other = state.grow(&[more(PAGE, 3)]).expect("six MiB");
    other.settled();
    type_in(&leftover.fix());
    assert_eq!(leftovers(&state.dir()).expect("readable"), []);
    assert_eq!(guard.counters().total, before.total + 3);
    drop(other);
    assert_eq!(guard.counters(), before);
}

#[test]
fn a_process_that_is_killed_while_it_gives_back_leaves_at_most_its_share() {
    let state = State::new();
    fs::create_dir(state.dir()).expect("created");
    let journal = "prezero growth 1\nintend 2097152 any +10 from 10\ndone 2097152 0=+10\nintend 2097152 0 -10 from 10\n";
    fs::write(state.dir().join("growth-1-0"), journal).expect("written");
    let found = leftovers(&state.dir()).expect("readable");
    assert_eq!(
        found[0].pools,
        [LeftPages {
            page: PAGE,
            node: Some(0),
            pages: 10,
            at_most: true,
            floor: 0,
        }]
    );
    let fix = found[0].fix();
    assert!(fix.contains("m=$((n - 10))"), "{fix}");
}

#[test]
fn what_a_process_killed_in_the_middle_added_is_settled_by_the_next_growth() {
    let Some((guard, before)) = pool(PAGE) else {
        return;
    };
    let state = State::new();
    fs::create_dir(state.dir()).expect("created");
    // It wanted 16 pages, and was killed when it had 10; nobody has the journal locked.
    let from = before.total - before.surplus;
    let journal = format!("prezero growth 1\nintend 2097152 any +16 from {from}\ndone 20");
    fs::write(state.dir().join("growth-1-0"), journal).expect("written");
    operator(10);
    let mut growth = state.grow(&[more(PAGE, 3)]).expect("six MiB");
    growth.settled();
    let found = leftovers(&state.dir()).expect("readable");
    let [leftover] = &found[..] else {
        panic!("{found:?}")
    };
    let expected = LeftPages {
        page: PAGE,
        node: None,
        pages: 10,
        at_most: false,
        floor: 0,
    };
    assert_eq!(leftover.pools, [expected]);
    // The pool has changed since, and the right pages are taken out all the same, once.
    operator(2);
    for _ in 0..2 {
        type_in_anyhow(&leftover.fix());
        assert_eq!(guard.counters().total, before.total + 3 + 2);
    }
    operator(-2);
    drop(growth);
    assert_eq!(guard.counters(), before);
}

/// A second time there is nothing to do, which `test` says with a code of its own.
fn type_in_anyhow(fix: &str) {
    let typed = Command::new("sh")
        .args(["-c", &fix.replace("sudo ", "")])
        .status();
    typed.expect("sh starts");
}

#[test]
fn what_is_no_plain_file_is_no_journal() {
    let state = State::new();
    fs::create_dir_all(state.dir().join("growth-1-0")).expect("created");
    let valid = "prezero growth 1\nintend 2097152 0 +3 from 0\ndone 2097152 0=+3\n";
    fs::write(state.dir().join("growth-2-0"), valid).expect("written");
    let found = leftovers(&state.dir()).expect("readable");
    assert_eq!(found.iter().map(|left| left.pid).collect::<Vec<_>>(), [2]);
}
