//! Guests on recycled hugepages: clean segments, dirty ones cleared on the way, fresh pages for the rest.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use prezero_memory::pool::TakeRequest;
use prezero_testkit::{Hugepages, punch, require_kvm};
use serde_json::Value;

use crate::command::{prezero, run};
use crate::contract::{list, number};
use crate::killed::{killed, length_of};
use crate::pooled::{MIB, PAGE, Pooled, SEGMENT, is_zero, regions};
use crate::reserve::{may_reserve, until_total};
use crate::sys::fill;

/// Writes to every page of every free segment, as a guest might.
fn stain(pool: &Path, segments: &[PathBuf]) {
    for segment in segments {
        assert!(segment.starts_with(pool));
        fill(segment, SEGMENT, 0xa5);
    }
}

#[test]
fn dirty_segments_of_a_pool_that_is_exchange_only_are_left_alone() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::take(PAGE, 40) else {
        return;
    };
    let Some(pooled) = Pooled::on(pages, 2, true) else {
        return;
    };
    let dir = pooled.dir();
    let memory = |mib: u64| {
        format!(
            "--memory size={mib}M,hugepages=on --prealloc --verify --pool {} --json",
            dir.display()
        )
    };
    let report = is_zero(run(&memory(16)), SEGMENT);
    assert_eq!(regions(&report), [("pool", "clean", "none", 16)]);
    let mut dirty = pooled.segments();
    dirty.retain(|path| path.extension() == Some("dirty".as_ref()));
    stain(&dir, &dirty);
    let report = is_zero(run(&memory(32)), 2 * SEGMENT);
    let found = regions(&report);
    let backing: Vec<&str> = found.iter().map(|region| region.0).collect();
    assert_eq!(backing, ["pool", "memfd"], "{found:?}");
    assert!(found.iter().all(|region| region.2 != "user"), "{found:?}");
    let warnings = report["warnings"].to_string();
    let scrub = format!(
        "wait to be exchanged: 1 (prezero pool scrub {})",
        dir.display()
    );
    assert!(warnings.contains(&scrub), "{warnings}");
    assert_eq!(pooled.free(), (0, 2));
}

#[test]
fn a_guest_gets_clean_segments_first_then_dirty_ones_cleared_then_fresh_pages() {
    if !require_kvm() {
        return;
    }
    let Some(pooled) = Pooled::new(2, 48) else {
        return;
    };
    let dir = pooled.dir();
    let memory = format!(
        "--memory size=48M,hugepages=on --verify --json --pool {}",
        dir.display()
    );
    let report = is_zero(run(&format!("{memory} --prealloc")), 48 * MIB);
    let clean = ("pool", "clean", "none", 16);
    let fresh = ("memfd", "fresh", "kernel", 16);
    assert_eq!(regions(&report), [clean, clean, fresh]);
    assert_eq!(report["pool"]["clean_segments"], 2);
    assert!(report.get("clear").is_none(), "{report:#}");
    assert_eq!(pooled.free(), (0, 2));

    stain(&dir, &pooled.segments());
    let report = is_zero(run(&format!("{memory} --prealloc")), 48 * MIB);
    let dirty = ("pool", "dirty", "user", 16);
    assert_eq!(regions(&report), [dirty, dirty, fresh]);
    let workers = list(&report, "workers").iter();
    let cleared: u64 = workers.map(|worker| number(worker, "cleared_bytes")).sum();
    assert_eq!(cleared, 32 * MIB);
    assert_eq!(pooled.free(), (0, 2));

    // Without --prealloc fresh pages are left to the guest, and dirty ones are cleared all the same.
    stain(&dir, &pooled.segments());
    let report = is_zero(run(&memory), 48 * MIB);
    let untouched = ("memfd", "fresh", "none", 16);
    assert_eq!(regions(&report), [dirty, dirty, untouched]);
    assert_eq!(number(&report["placement"], "checked_pages"), 16);
}

#[test]
fn the_guest_sees_a_segment_that_was_stained_behind_the_pools_back() {
    if !require_kvm() {
        return;
    }
    let Some(pooled) = Pooled::new(1, 16) else {
        return;
    };
    stain(&pooled.dir(), &pooled.segments());
    assert_eq!(pooled.free(), (1, 0));
    let memory = format!(
        "--memory size=16M,hugepages=on --pool {}",
        pooled.dir().display()
    );
    let ran = run(&format!("{memory} --prealloc --verify --json")).exits_with(5);
    let report = ran.json();
    assert_eq!(number(&report["guest"], "nonzero_bytes"), 16 * MIB);
}

/// Killed before, while and after segments are dirty by name, cleared and given to a guest.
fn kill_runs(points: u32) {
    if !require_kvm() {
        return;
    }
    let Some(pooled) = Pooled::new(3, 32) else {
        return;
    };
    let memory = format!(
        "run --memory size=64M,hugepages=on --prealloc --verify --json --pool {}",
        pooled.dir().display()
    );
    let longest = length_of(|| prezero(&memory));
    for _ in 0..points {
        let dirty = pooled.segments();
        let dirty: Vec<PathBuf> = dirty
            .into_iter()
            .filter(|path| path.extension().is_some_and(|state| state == "dirty"))
            .collect();
        stain(&pooled.dir(), &dirty);
        killed(prezero(&memory), longest);
        is_zero(run(memory.trim_start_matches("run ")), 64 * MIB);
        assert_eq!(pooled.free(), (0, 3));
    }
}

#[test]
fn a_killed_run_never_leaves_dirt_under_a_clean_name() {
    kill_runs(10);
}

mod slow {
    #[test]
    #[ignore = "slow"]
    fn thirty_killed_runs_never_leave_dirt_under_a_clean_name() {
        super::kill_runs(30);
    }
}

#[test]
fn the_pool_at_the_default_place_is_used_unless_none_is_asked_for() {
    if !require_kvm() {
        return;
    }
    let Some(pooled) = Pooled::new(1, 24) else {
        return;
    };
    let memory = "--memory size=16M,hugepages=on --prealloc --verify";
    let report = is_zero(run(&format!("{memory} --json --pool none")), 16 * MIB);
    assert_eq!(regions(&report), [("memfd", "fresh", "kernel", 16)]);
    assert!(report.get("pool").is_none());
    if !pooled.is_at_default_place() {
        return;
    }
    let ran = run(memory).exits_with(0);
    for part in [
        "1 clean segment (16 MiB) of ",
        "2 MiB hugepages (pool, clean)",
    ] {
        assert!(ran.stdout.contains(part), "{ran:#?}");
    }
    assert_eq!(pooled.free(), (0, 1));
}

#[test]
fn segments_in_use_are_left_alone_and_fresh_pages_take_their_place() {
    if !require_kvm() {
        return;
    }
    let Some(pooled) = Pooled::new(1, 24) else {
        return;
    };
    let request = TakeRequest {
        max_bytes: SEGMENT,
        ..TakeRequest::default()
    };
    let lease = pooled.pool.take(&request).expect("it is free");
    let memory = format!(
        "--memory size=16M,hugepages=on --pool {}",
        pooled.dir().display()
    );
    let ran = run(&format!("{memory} --prealloc --verify --json"));
    let report = is_zero(ran, 16 * MIB);
    assert_eq!(regions(&report), [("memfd", "fresh", "kernel", 16)]);
    let warnings = report["warnings"].to_string();
    assert!(
        warnings.contains("1 segments of the pool that would fit are in use"),
        "{warnings}"
    );
    drop(lease);
    assert_eq!(pooled.free(), (0, 1));
}

/// Shortened, punched, or open to others: a warning, and never a SIGBUS.
#[test]
fn broken_segments_are_mentioned_and_the_guest_gets_others() {
    if !require_kvm() {
        return;
    }
    let Some(pooled) = Pooled::new(4, 64) else {
        return;
    };
    let [cut, punched, open, _] = &*pooled.segments() else {
        panic!("four were made");
    };
    let file = |path: &Path| fs::File::options().write(true).open(path);
    file(cut)
        .and_then(|file| file.set_len(PAGE))
        .expect("it can be cut");
    file(punched)
        .and_then(|file| punch(file.as_fd(), 0, PAGE))
        .expect("it can be punched");
    fs::set_permissions(open, fs::Permissions::from_mode(0o644)).expect("it is ours");
    let memory = format!(
        "--memory size=32M,hugepages=on --prealloc --verify --pool {} --json",
        pooled.dir().display()
    );
    let report = is_zero(run(&memory), 2 * SEGMENT);
    let found = regions(&report);
    let backing: Vec<&str> = found.iter().map(|region| region.0).collect();
    assert_eq!(backing, ["pool", "memfd"], "{found:?}");
    let warnings = report["warnings"].to_string();
    for part in [
        format!("{} is 2 MiB long: it is left alone", cut.display()),
        format!("{} has 14 MiB of its 16 MiB", punched.display()),
        format!("chmod 600 {}", open.display()),
    ] {
        assert!(warnings.contains(&part), "{part}: {warnings}");
    }
    assert!(cut.exists() && punched.exists() && open.exists());
}

#[test]
fn pages_are_reserved_only_for_what_segments_do_not_supply() {
    if !require_kvm() || !may_reserve() {
        return;
    }
    // The pool has all of them.
    let Some(pages) = Hugepages::exactly(PAGE, 2 * SEGMENT / PAGE) else {
        return;
    };
    let Some(pooled) = Pooled::on(pages, 2, false) else {
        return;
    };
    let dir = pooled.dir().display().to_string();
    let guest = |mib: u64, pool: &str| {
        let memory = format!("--memory size={mib}M,hugepages=on,hugepage_size=2M");
        let ran = run(&format!(
            "{memory} --reserve --prealloc --verify --json --pool {pool}"
        ));
        is_zero(ran, mib * MIB)
    };
    let before = pooled.pages.counters();
    let given_back = || until_total(&pooled.pages, before.total);
    let grown = |report: &Value| -> Vec<(u64, u64)> {
        let grown = report["grown"].as_array().into_iter().flatten();
        grown
            .map(|pool| (number(pool, "asked_pages"), number(pool, "got_pages")))
            .collect()
    };
    // Clean and dirty ones alike.
    for _ in 0..2 {
        let report = guest(32, &dir);
        assert_eq!(grown(&report), [], "{report:#}");
        let report = guest(48, &dir);
        assert_eq!(grown(&report), [(8, 8)], "{report:#}");
        assert_eq!(pooled.free(), (0, 2));
        assert_eq!(given_back(), before.total);
    }
    let report = guest(32, "none");
    assert_eq!(grown(&report), [(16, 16)], "{report:#}");
    assert_eq!(given_back(), before.total);
}

#[test]
fn a_plan_that_is_refused_leaves_segments_clean() {
    if !require_kvm() {
        return;
    }
    let Some(pooled) = Pooled::new(1, 16) else {
        return;
    };
    let args = format!(
        "--memory size=16M,hugepages=on --cpus 999999 --pool {}",
        pooled.dir().display()
    );
    run(&args).exits_with(2);
    assert_eq!(pooled.free(), (1, 0));
}

#[test]
fn a_pool_that_is_none_is_refused_where_it_was_named() {
    let ran = run("--memory size=2M,hugepages=on --pool /proc --json");
    let report = ran.json();
    assert!(report["error"]["message"].is_string(), "{report:#}");
    assert!(report["error"]["fix"].is_string(), "{report:#}");
}
