//! `prezero pool create --exchange-only`.

use crate::command::finish;
use crate::fixture::{Fixture, size_of};

#[test]
fn scrub_exchanges_and_exec_takes_clean_segments_only() {
    let Some(fixture) = Fixture::new(4) else {
        return;
    };
    let create = |args: &str| {
        let ran = fixture.pool("create", &format!("{args} --json"));
        ran.exits_with(0).json()
    };
    let report = create(&format!("{} --exchange-only", size_of(1)));
    assert_eq!(report["exchange_only"], true);
    // It need not be said twice.
    assert_eq!(create(&size_of(2))["exchange_only"], true);
    assert_eq!(fixture.status()["exchange_only"], true);
    let text = fixture.pool("status", "").exits_with(0).stdout;
    assert!(
        text.contains("on pages of 2 MiB, exchange-only\n"),
        "{text}"
    );

    fixture.stain_all();
    let ran = finish(fixture.exec("--memory 4M", &["true", "{path}"])).exits_with(3);
    let (message, fix) = ran.error_and_fix();
    assert!(message.contains("2 are dirty"), "{message}");
    assert_eq!(
        fix,
        format!("prezero pool scrub {}", fixture.dir().display())
    );
    let exchanged = finish(fixture.exec("--memory 4M --exchange", &["true", "{path}"]));
    exchanged.exits_with(0);

    let ran = fixture
        .pool("scrub", "--method cached --json")
        .exits_with(0);
    assert!(
        ran.stderr.contains("--method cached has nothing to do"),
        "{ran:#?}"
    );
    let report = ran.json();
    assert_eq!(
        (&report["exchange"], &report["cleaned"]["segments"]),
        (&true.into(), &2.into())
    );
    assert_eq!((fixture.counts(), fixture.lies()), ([2, 0, 0, 0, 0], 0));
    finish(fixture.exec("--memory 4M", &["true", "{path}"])).exits_with(0);
    fixture.pool("destroy", "").exits_with(0);
    assert!(!fixture.dir().exists());
}

#[test]
fn a_pool_that_may_have_been_cleared_does_not_become_so() {
    let Some(fixture) = Fixture::with_pool(1) else {
        return;
    };
    let ran = fixture.pool("create", &format!("{} --exchange-only", size_of(1)));
    let ran = ran.exits_with(2);
    let (message, fix) = ran.error_and_fix();
    assert!(message.contains("may have been cleared"), "{message}");
    assert_eq!(
        fix,
        format!("prezero pool drain {}", fixture.dir().display())
    );
    assert_eq!(fixture.status()["exchange_only"], false);
}
