//! Several zones: their order, their names, and what they have together.

use prezero_testkit::{Hugepages, require_kvm};

use crate::command::{error_of, finish, prezero, run};
use crate::contract::{check_success, list, number, text};

const GIB: u64 = 1 << 30;

#[test]
fn zones_with_one_name_or_of_nothing_are_refused() {
    let zone = "--memory-zone size=4M,hugepages=off";
    for (zones, part) in [
        (format!("{zone},id=a {zone},id=b {zone},id=a"), "the id 'a'"),
        (format!("{zone} --memory-zone size=0"), "is zero"),
        (format!("{zone} --memory-zone="), "refused"),
        (format!("--memory 4M {zone}"), "cannot be used with"),
        ("".to_owned(), "No guest memory"),
    ] {
        for command in ["run", "plan"] {
            let ran = finish(prezero(&format!("{command} {zones} --json"))).exits_with(2);
            let report = ran.json();
            assert_eq!(text(&report, "schema"), format!("prezero/{command}/1"));
            let (class, message, fix) = error_of(&report);
            assert_eq!(class, "usage");
            assert!(message.contains(part), "{zones}: {message}");
            assert!(fix.is_some(), "{report:#}");
        }
    }
}

#[test]
fn zones_follow_one_another_from_the_lowest_address_on() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::take(2 << 20, 48) else {
        return;
    };
    let zones = "--memory-zone size=32M,id=one,hugepages=on,hugepage_size=2M \
                 --memory-zone size=16M,id=two,hugepages=off \
                 --memory-zone size=64M,id=three,hugepages=on,hugepage_size=2M";
    for mode in ["--prealloc --verify", "--verify"] {
        let eager = mode.contains("prealloc");
        let ran = run(&format!("{zones} {mode} --json"));
        let report = check_success(ran, 112 << 20, eager, true);
        let slots = list(&report, "slots").iter();
        let slots: Vec<_> = slots
            .map(|slot| {
                (
                    number(slot, "slot"),
                    number(slot, "gpa"),
                    number(slot, "len") >> 20,
                )
            })
            .collect();
        assert_eq!(slots, [(0, 0, 32), (1, 32 << 20, 16), (2, 48 << 20, 64)]);
        let regions = list(&report, "regions");
        let at = |gpa: u64| {
            let region = regions.iter().find(|region| number(region, "gpa") == gpa);
            text(region.expect("a region starts there"), "backing")
        };
        assert_eq!((at(0), at(48 << 20)), ("memfd", "memfd"));
        assert_ne!(at(32 << 20), "memfd");
        pages.assert_clean();
    }
}

#[test]
fn zones_are_short_together() {
    let Some(pages) = Hugepages::exactly(2 << 20, 40) else {
        return;
    };
    let zone = "--memory-zone size=64M,hugepages=on,hugepage_size=2M";
    let report = run(&format!("{zone} {zone} --json")).exits_with(3).json();
    let (_, message, _) = error_of(&report);
    assert!(
        message.contains("needs 32 pages of 2 MiB, has 8 free, short by 24"),
        "{message}"
    );
    pages.assert_clean();
}

#[test]
fn zones_of_two_page_sizes_are_one_guest() {
    if !require_kvm() {
        return;
    }
    // One guard at a time: the small pages are those that are there or become surplus.
    let Some(pages) = Hugepages::take(GIB, 1) else {
        return;
    };
    let zones = "--memory-zone size=1G,hugepages=on,hugepage_size=1G \
                 --memory-zone size=16M,hugepages=on,hugepage_size=2M";
    let ran = run(&format!("{zones} --prealloc --verify --json"));
    if ran.status.code() == Some(3) {
        eprintln!("skipped: no pages of 2 MiB next to one of 1 GiB");
        return;
    }
    let report = check_success(ran, GIB + (16 << 20), true, true);
    let regions = list(&report, "regions").iter();
    let regions: Vec<_> = regions
        .map(|region| (number(region, "gpa"), number(region, "page_size")))
        .collect();
    assert_eq!(regions, [(0, GIB), (GIB, 2 << 20)]);
    pages.assert_clean();
}
