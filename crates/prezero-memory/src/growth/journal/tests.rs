use super::*;
use proptest::prelude::*;

/// A change of a pool of 512 pages.
fn change(page: PageSize, node: Option<u32>, pages: i64) -> Pending {
    Pending {
        page,
        node,
        pages,
        from: 512,
    }
}

const PAGE: PageSize = PageSize::HUGE_2M;

fn text(journal: &Journal) -> String {
    fs::read_to_string(&journal.path).expect("readable")
}

/// A journal with something of everything.
fn written(dir: &Path) -> Journal {
    let mut journal = Journal::create(dir).expect("writable");
    journal.intend(change(PAGE, None, 30)).expect("written");
    journal.done(PAGE, &[(0, 16), (1, 14)]).expect("written");
    journal
        .intend(change(PageSize::HUGE_1G, Some(1), 2))
        .expect("written");
    journal.done(PageSize::HUGE_1G, &[]).expect("written");
    journal.intend(change(PAGE, Some(0), -16)).expect("written");
    journal.done(PAGE, &[(0, -16)]).expect("written");
    journal
}

#[test]
fn what_is_read_is_what_was_written() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let journal = written(dir.path());
    assert_eq!(journal.balance.shares(), [(PAGE, Some(1), 14)]);
    assert_eq!(
        Balance::parse(&text(&journal)).expect("a journal").shares(),
        [(PAGE, Some(1), 14)]
    );
    assert_eq!(journal.balance.pending, []);
}

#[test]
fn cut_off_anywhere_it_says_at_least_what_was_added() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let all = text(&written(dir.path()));
    for end in 0..all.len() {
        let balance = Balance::parse(&all[..end]).expect("complete lines only");
        let done = |line: &str| all[..end].contains(&format!("{line}\n"));
        let announced = |line: &str, came: &str| done(line) && !done(came);
        let mut shares = Vec::new();
        if done("done 2097152 0=+16 1=+14") {
            let left = if done("done 2097152 0=-16") {
                vec![]
            } else {
                vec![(PAGE, Some(0), 16)]
            };
            shares = [left, vec![(PAGE, Some(1), 14)]].concat();
        }
        assert_eq!(balance.shares(), shares, "{end}");
        let pending = announced(
            "intend 2097152 any +30 from 512",
            "done 2097152 0=+16 1=+14",
        ) || announced("intend 1073741824 1 +2 from 512", "done 1073741824")
            || announced("intend 2097152 0 -16 from 512", "done 2097152 0=-16");
        assert_eq!(!balance.pending.is_empty(), pending, "{end}");
    }
}

#[test]
fn another_version_or_an_unknown_line_is_not_understood() {
    for text in [
        "prezero growth 2\n",
        "something else\n",
        "prezero growth 1\nundo 2097152 0=1\n",
        "prezero growth 1\ndone 2097151 0=1\n",
        "prezero growth 1\ndone 2097152 0=1 1\n",
        "prezero growth 1\nintend 2097152 any 3 4\n",
        "prezero growth 1\nintend 2097152 any\n",
    ] {
        assert_eq!(Balance::parse(text), None, "{text}");
    }
    assert_eq!(Balance::parse(""), Some(Balance::default()));
}

#[test]
fn anybody_can_read_what_is_left() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let journal = written(dir.path());
    let mode = journal.path.metadata().expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o644, "{mode:o}");
}

#[test]
fn a_name_that_is_taken_is_left_alone() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let first = written(dir.path());
    let before = text(&first);
    let second = Journal::create(dir.path()).expect("another name");
    assert_ne!(first.path, second.path);
    second.remove().expect("its own");
    assert_eq!(text(&first), before);
    first.remove().expect("its own");
    assert_eq!(fs::read_dir(dir.path()).expect("readable").count(), 0);
}

#[test]
fn a_journal_s_name_has_a_process_and_a_number() {
    assert_eq!(pid_in("growth-12-0"), Some(12));
    for name in [
        "growth.lock",
        "growth-12",
        "growth-12-",
        "growth--0",
        "growth-x-0",
        "12-0",
        "",
    ] {
        assert_eq!(pid_in(name), None, "{name}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read(text in "\\PC*|(prezero growth 1\n)?((intend|done) [0-9]{1,20} (any|[0-9]{1,11})(=| )[+-]?[0-9]{1,20}\n?)*") {
        let _ = Balance::parse(&text);
    }
}
