//! What is not a whole segment of ours is left alone and mentioned, and is never a SIGBUS.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

use prezero_memory::pool::{Pool, PoolError, Problem, ProblemKind, State};
use prezero_memory::{Class, Control, Host};

use crate::fixture::{Fixture, PAGE, SEGMENT, counts, open, punch, request, scrub, take};

/// Nothing is done to what is at `path`, and everybody who looks is told about it.
#[track_caller]
fn assert_left_alone(fixture: &Fixture, path: &Path) -> ProblemKind {
    let pool = Pool::open(&fixture.dir()).expect("a pool");
    let of = |problems: &[Problem]| {
        let mut of = problems.iter().filter(|problem| problem.path == path);
        of.next()
            .unwrap_or_else(|| panic!("{path:?} in {problems:?}"))
            .kind
            .clone()
    };
    let kind = of(&pool.status().expect("readable").problems);
    let found = pool
        .lock(&crate::fixture::up_to(u64::MAX))
        .expect("readable");
    assert!(found.locked.iter().all(|locked| locked.path() != path));
    assert_eq!(of(&found.problems), kind);
    drop(found);
    assert_eq!(of(&scrub(&pool).problems), kind);
    assert_eq!(
        of(&pool.drain(None, None).expect("readable").problems),
        kind
    );
    let destroyed = pool.destroy().expect("readable");
    assert_eq!(of(&destroyed.drained.problems), kind);
    assert!(destroyed.left.contains(&fixture.dir()), "{destroyed:?}");
    assert!(path.symlink_metadata().is_ok(), "{path:?} is gone");
    kind
}

/// A pool of one dirty segment, which something is done to.
fn with_dirty(pages: u64) -> Option<(Fixture, std::path::PathBuf)> {
    let fixture = Fixture::new(pages)?;
    drop(take(&fixture.pool(1), u64::MAX));
    let path = fixture.only(State::Dirty);
    Some((fixture, path))
}

#[test]
fn a_shortened_segment() {
    let Some((fixture, path)) = with_dirty(2) else {
        return;
    };
    open(&path, true).set_len(PAGE).expect("a page less");
    let kind = assert_left_alone(&fixture, &path);
    let (named, found) = (SEGMENT, PAGE);
    assert_eq!(kind, ProblemKind::Length { named, found });
    assert_eq!(
        counts(&Pool::open(&fixture.dir()).expect("a pool")),
        [0, 0, 0, 0, 1]
    );
}

#[test]
fn a_clean_segment_that_was_punched() {
    let Some(fixture) = Fixture::new(2) else {
        return;
    };
    drop(fixture.pool(1));
    let path = fixture.only(State::Clean);
    punch(&path, 0, SEGMENT);
    assert!(assert_left_alone(&fixture, &path).is_incomplete());
}

#[test]
fn something_else_in_place_of_a_segment() {
    let Some((fixture, path)) = with_dirty(2) else {
        return;
    };
    // In the mount's root, so that what the link leads to is on the same file system, and whole.
    let away = fixture.mount().join("away");
    fs::rename(&path, &away).expect("the same mount");
    match symlink(&away, &path) {
        Ok(()) => {
            assert_eq!(assert_left_alone(&fixture, &path), ProblemKind::NotAFile);
            fs::remove_file(&path).expect("it was left alone");
        }
        // hugetlbfs cannot keep a link's text (no write(2)).
        Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EINVAL)),
    }
    assert!(away.exists());
    fs::rename(&away, &path).expect("the same mount");
    let file = tempfile::NamedTempFile::new().expect("a file on another file system");
    file.as_file().set_len(SEGMENT).expect("as long");
    let mut mount = std::process::Command::new("mount");
    let mounted = mount.arg("--bind").args([file.path(), &path]).status();
    assert!(mounted.expect("mount").success());
    assert_eq!(assert_left_alone(&fixture, &path), ProblemKind::OtherMount);
}

#[test]
fn one_file_under_two_names() {
    let Some((fixture, path)) = with_dirty(2) else {
        return;
    };
    let second = path.with_extension("clean");
    fs::hard_link(&path, &second).expect("a second name");
    for path in [&path, &second] {
        let kind = assert_left_alone(&fixture, path);
        assert_eq!(kind, ProblemKind::Linked { names: 2 });
    }
    fs::remove_file(&second).expect("it was left alone");
    fs::hard_link(&path, fixture.mount().join("outside")).expect("a second name");
    assert_eq!(
        assert_left_alone(&fixture, &path),
        ProblemKind::Linked { names: 2 }
    );
}

#[test]
fn one_id_in_two_states() {
    let Some((fixture, path)) = with_dirty(4) else {
        return;
    };
    drop(fixture.pool(2));
    let clean = fixture.only(State::Clean);
    let same = path.with_extension("clean");
    fs::rename(&clean, &same).expect("a free name");
    let other = same.clone();
    assert_eq!(
        assert_left_alone(&fixture, &path),
        ProblemKind::SameId { other }
    );
    let other = path.clone();
    assert_eq!(
        assert_left_alone(&fixture, &same),
        ProblemKind::SameId { other }
    );
}

#[test]
fn a_lease_whose_dirty_name_is_taken_is_refused() {
    let Some(fixture) = Fixture::new(2) else {
        return;
    };
    let pool = fixture.pool(1);
    let mut found = pool
        .lock(&crate::fixture::up_to(u64::MAX))
        .expect("readable");
    let path = fixture.only(State::Clean).with_extension("dirty");
    fs::write(&path, "").expect("an empty file");
    let error = found
        .locked
        .remove(0)
        .lease()
        .expect_err("the name is taken");
    assert!(matches!(error, PoolError::Io { .. }), "{error:?}");
    assert!(fixture.only(State::Clean).exists() && path.exists());
}

#[test]
fn another_users_file_and_unknown_names() {
    let Some((fixture, path)) = with_dirty(2) else {
        return;
    };
    for name in [
        "notes",
        "4194304-0123456789abcdef.clean.bak",
        "1-0123456789abcdef.clean",
    ] {
        let path = path.with_file_name(name);
        fs::write(&path, "").expect("an empty file");
        assert_eq!(
            assert_left_alone(&fixture, &path),
            ProblemKind::UnknownName,
            "{name}"
        );
    }
    let beside = fixture.dir().join("readme");
    fs::write(&beside, "").expect("an empty file");
    assert_eq!(
        assert_left_alone(&fixture, &beside),
        ProblemKind::UnknownName
    );

    let fixture_of_others = with_dirty_of(1000);
    drop(fixture);
    let Some((fixture, path)) = fixture_of_others() else {
        return;
    };
    let kind = assert_left_alone(&fixture, &path);
    assert_eq!(kind, ProblemKind::Owner { uid: 1000, user: 0 });
}

/// As [`with_dirty`], given to another user.
fn with_dirty_of(uid: u32) -> impl Fn() -> Option<(Fixture, std::path::PathBuf)> {
    move || {
        let (fixture, path) = with_dirty(2)?;
        chown(&path, Some(uid), None).expect("root may");
        Some((fixture, path))
    }
}

#[test]
fn a_fifo_and_a_directory() {
    let Some((fixture, path)) = with_dirty(2) else {
        return;
    };
    fs::remove_file(&path).expect("nobody has it");
    let status = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(status.expect("mkfifo").success());
    assert_eq!(assert_left_alone(&fixture, &path), ProblemKind::NotAFile);
    fs::remove_file(&path).expect("a FIFO");
    fs::create_dir(&path).expect("a free name");
    assert_eq!(assert_left_alone(&fixture, &path), ProblemKind::NotAFile);
}

#[test]
fn a_directory_that_others_may_use_is_no_pool() {
    let Some(fixture) = Fixture::new(2) else {
        return;
    };
    drop(fixture.pool(1));
    let dir = fixture.dir();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o750)).expect("its owner may");
    let error = Pool::open(&dir).expect_err("the group may read it");
    assert_eq!(error.class(), Class::Host);
    let shown = dir.display();
    assert_eq!(
        error.to_string(),
        format!("{shown} is open to others (mode 0750)")
    );
    assert_eq!(error.fix(), Some(format!("chmod 700 {shown}")));
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).expect("its owner may");

    // A node's directory is left alone with all that is in it.
    let node = fixture.node_dir();
    fs::set_permissions(&node, fs::Permissions::from_mode(0o777)).expect("its owner may");
    let kind = assert_left_alone(&fixture, &node);
    assert_eq!(kind, ProblemKind::Open { mode: 0o777 });
    assert_eq!(counts(&Pool::open(&dir).expect("a pool")), [0; 5]);

    chown(&dir, Some(1000), None).expect("root may");
    let error = Pool::open(&dir).expect_err("somebody else's");
    assert_eq!(
        error.to_string(),
        format!("{shown} belongs to user 1000, not 0")
    );
    let elsewhere = tempfile::tempdir().expect("a directory");
    let link = elsewhere.path().join("link");
    symlink(&dir, &link).expect("a link");
    let error = Pool::open(&link).expect_err("a link");
    assert_eq!(error.class(), Class::Usage, "{error:?}");
}

#[test]
fn the_directory_of_a_node_that_this_host_does_not_have() {
    let Some((fixture, path)) = with_dirty(2) else {
        return;
    };
    // Larger than CONFIG_NODES_SHIFT allows.
    let node = 4096;
    let elsewhere = fixture.dir().join(format!("node{node}"));
    fs::rename(fixture.node_dir(), &elsewhere).expect("a free name");
    let kind = assert_left_alone(&fixture, &elsewhere);
    assert_eq!(kind, ProblemKind::NoSuchNode { node });
    let shown = elsewhere.display().to_string();
    let problem = Problem {
        path: elsewhere.clone(),
        kind,
    };
    assert_eq!(
        problem.to_string(),
        format!("{shown} is for node 4096, which this host does not have")
    );
    assert!(elsewhere.join(path.file_name().expect("a name")).exists());
    assert_eq!(counts(&Pool::open(&fixture.dir()).expect("a pool")), [0; 5]);
}

#[test]
fn a_file_that_others_may_use() {
    let Some((fixture, path)) = with_dirty(2) else {
        return;
    };
    for mode in [0o644, 0o620, 0o400, 0o700] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its owner may");
        let kind = assert_left_alone(&fixture, &path);
        assert_eq!(kind, ProblemKind::Mode { mode });
    }
    let problem = Problem {
        path: path.clone(),
        kind: ProblemKind::Mode { mode: 0o644 },
    };
    let shown = path.display();
    assert_eq!(
        problem.to_string(),
        format!("{shown} has mode 0644, not 0600")
    );
    assert_eq!(problem.fix(), Some(format!("chmod 600 {shown}")));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its owner may");
    assert_eq!(
        counts(&Pool::open(&fixture.dir()).expect("a pool")),
        [0, 1, 0, 0, 0]
    );
}

#[test]
fn a_nodes_directory_is_no_pool() {
    let Some(fixture) = Fixture::new(2) else {
        return;
    };
    drop(fixture.pool(1));
    let (node, dir) = (fixture.node_dir(), fixture.dir());
    let asked = request(SEGMENT, SEGMENT);
    let (host, control) = (Host::probe(), Control::default());
    for error in [
        Pool::open(&node).expect_err("a node's directory"),
        Pool::create(&node, &asked, &host, None, &control).expect_err("a node's directory"),
        Pool::open(&node.join("")).expect_err("with a slash"),
        Pool::create(&dir.join("node77"), &asked, &host, None, &control)
            .expect_err("a node's name"),
    ] {
        assert_eq!(error.class(), Class::Usage);
        assert!(
            error
                .to_string()
                .ends_with(" is the directory of a node, not a pool"),
            "{error}"
        );
        assert_eq!(error.fix(), Some(dir.display().to_string()));
    }
    assert_eq!(fixture.names().len(), 1, "nothing was made there");
    assert!(!dir.join("node77").exists());
}

#[test]
fn a_name_that_is_no_text() {
    let Some((fixture, path)) = with_dirty(2) else {
        return;
    };
    let odd = path.with_file_name(OsStr::from_bytes(b"odd\xff"));
    fs::write(&odd, "").expect("an empty file");
    let pool = Pool::open(&fixture.dir()).expect("a pool");
    let status = pool.status().expect("readable");
    let kinds: Vec<&ProblemKind> = status.problems.iter().map(|p| &p.kind).collect();
    assert_eq!(kinds, [&ProblemKind::UnknownName]);
    let destroyed = pool.destroy().expect("readable");
    assert_eq!(destroyed.drained.problems, status.problems);
    assert!(odd.exists());
}

#[test]
fn who_asks_for_the_only_segment_and_may_not_use_it_is_told_why() {
    let Some((fixture, path)) = with_dirty(2) else {
        return;
    };
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("ours");
    let pool = Pool::open(&fixture.dir()).expect("a pool");
    let error = pool.take_one(SEGMENT, None).expect_err("open to others");
    assert!(matches!(error, PoolError::Untrusted(_)), "{error}");
    assert_eq!(error.fix(), Some(format!("chmod 600 {}", path.display())));
    // Another length, or another node, is another matter.
    let error = pool.take_one(PAGE, None).expect_err("none");
    assert!(matches!(error, PoolError::NoSegment { .. }), "{error}");
}
