//! Guests on recycled hugepages: clean segments, dirty ones cleared on the way, fresh pages for the rest.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use prezero_memory::pool::{Pool, PoolRequest, State, TakeRequest, Use};
use prezero_memory::{Control, Host, PageBytes, PageSize};
use prezero_testkit::{Hugepages, PrivateMount, require_kvm};
use serde_json::Value;

use crate::command::{Ran, finish, prezero, run};
use crate::contract::{list, number, text};
use crate::killed::{killed, length_of};
use crate::reserve::{may_reserve, until_total};
use crate::sys::{fill, punch};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 2 * MIB;
const SEGMENT: u64 = 16 * MIB;

/// A mount of this thread, with a pool at the default place.
struct Pooled {
    pool: Pool,
    mount: PrivateMount,
    pages: Hugepages,
}

impl Pooled {
    fn new(segments: u64, pages: u64) -> Option<Self> {
        Self::on(Hugepages::take(PAGE, pages)?, segments, false)
    }

    fn on(pages: Hugepages, segments: u64, exchange_only: bool) -> Option<Self> {
        let mount = PrivateMount::hugetlbfs(PAGE)?;
        let host = Host::probe();
        let request = PoolRequest {
            bytes: segments * SEGMENT,
            segment: PageBytes::new(SEGMENT, PageSize::HUGE_2M).expect("whole pages"),
            nodes: vec![host.nodes[0].id],
            exchange_only,
        };
        let dir = mount.path().join("prezero");
        let made = Pool::create(&dir, &request, &host, None, &Control::default());
        let (pool, _) = made.expect("the pages are there");
        Some(Self { pool, mount, pages })
    }

    fn dir(&self) -> PathBuf {
        self.mount.path().join("prezero")
    }

    /// (clean, dirty) segments that are free.
    fn free(&self) -> (usize, usize) {
        let status = self.pool.status().expect("a pool");
        let count = |state| {
            let all = status.segments.iter();
            all.filter(|segment| segment.name.state == state && segment.usage == Use::Free)
                .count()
        };
        (count(State::Clean), count(State::Dirty))
    }

    fn segments(&self) -> Vec<PathBuf> {
        let node = fs::read_dir(self.dir()).expect("a pool").next();
        let node = node.expect("one node").expect("readable").path();
        let names = fs::read_dir(node).expect("a node");
        names.map(|name| name.expect("readable").path()).collect()
    }
}

/// Regions as (backing, origin, cleared_by, MiB).
fn regions(report: &Value) -> Vec<(&str, &str, &str, u64)> {
    let regions = list(report, "regions").iter();
    regions
        .map(|region| {
            (
                text(region, "backing"),
                text(region, "origin"),
                text(region, "cleared_by"),
                number(region, "len") / MIB,
            )
        })
        .collect()
}

#[track_caller]
fn is_zero(ran: Ran, bytes: u64) -> Value {
    let report = ran.exits_with(0).json();
    assert_eq!(number(&report["guest"], "scanned_bytes"), bytes);
    assert_eq!(number(&report["guest"], "nonzero_bytes"), 0);
    report
}

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
    let ran = run(memory).exits_with(0);
    if !ran.stdout.contains("1 clean segment (16 MiB) of ") {
        // Another mount of that page size comes first on this host.
        assert!(
            Host::probe().mounts[0].path != pooled.mount.path(),
            "{ran:#?}"
        );
        return;
    }
    assert!(
        ran.stdout.contains("2 MiB hugepages (pool, clean)"),
        "{ran:#?}"
    );
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
    punch(punched, PAGE);
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
fn plan_and_doctor_foresee_what_a_run_takes_and_change_nothing() {
    if !require_kvm() {
        return;
    }
    let Some(pooled) = Pooled::new(3, 40) else {
        return;
    };
    // One dirty, one leased, one clean.
    let one = TakeRequest {
        max_bytes: SEGMENT,
        ..TakeRequest::default()
    };
    drop(pooled.pool.take(&one).expect("it is free"));
    let lease = pooled.pool.take(&one).expect("it is free");
    assert_eq!(pooled.free(), (1, 1));
    let before = pooled.segments();
    let args = format!(
        "--memory size=48M,hugepages=on,host_numa_node=0 --prealloc --json --pool {}",
        pooled.dir().display()
    );
    let seen = ["plan", "doctor"].map(|command| {
        let seen = finish(prezero(&format!("{command} {args}"))).exits_with(0);
        assert_eq!(pooled.segments(), before, "{command} changed the pool");
        seen.json()
    });
    let report = run(&args).exits_with(0).json();
    let of_pool = |origin, by| ("pool", origin, by, 16);
    let fresh = ("memfd", "fresh", "kernel", 16);
    let taken = [of_pool("clean", "none"), of_pool("dirty", "user"), fresh];
    assert_eq!(regions(&report), taken);
    let [plan, doctor] = &seen;
    assert_eq!(plan["regions"], report["regions"]);
    assert_eq!(doctor["regions"], report["regions"]);
    assert_eq!(plan["pool"], report["pool"]);
    for key in ["clean_bytes", "dirty_bytes", "fresh_bytes"] {
        assert_eq!(report["pool"][key], SEGMENT, "{report:#}");
    }
    assert_eq!(plan["warnings"], report["warnings"]);
    let total = &doctor["recycled"][0]["totals"][0];
    for state in ["clean", "dirty", "leased"] {
        assert_eq!(total[state]["segments"], 1, "{doctor:#}");
    }
    drop(lease);
    // What takes none foresees none.
    let args = "--memory size=48M,hugepages=on --prealloc --json --pool none";
    for command in ["plan", "doctor"] {
        let seen = finish(prezero(&format!("{command} {args}"))).exits_with(0);
        assert_eq!(regions(&seen.json()), [("memfd", "fresh", "kernel", 48)]);
    }
}

#[test]
fn doctor_says_what_the_pool_at_the_default_place_has() {
    let Some(pooled) = Pooled::new(2, 16) else {
        return;
    };
    let dir = pooled.dir();
    if Host::probe()
        .mount_for(PageSize::HUGE_2M)
        .is_none_or(|mount| mount.path != pooled.mount.path())
    {
        // Another mount of that page size comes first on this host.
        return;
    }
    let pool = || -> Vec<(String, String)> {
        let report = finish(prezero("doctor --json")).json();
        let findings = list(&report, "findings").iter();
        let of_pool = findings.filter(|finding| finding["name"] == "pool");
        of_pool
            .map(|found| (text(found, "level").into(), text(found, "message").into()))
            .collect()
    };
    let has = format!(
        "{}, on pages of 2 MiB: node 0: 32 MiB clean, 0 bytes dirty, 0 bytes leased",
        dir.display()
    );
    assert_eq!(pool(), [("ok".into(), has.clone())]);
    fs::write(dir.join("notes"), "").expect("a new file");
    let notes = format!("{}/notes is not a name of a pool's", dir.display());
    assert_eq!(pool(), [("ok".into(), has), ("warning".into(), notes)]);
    // A run leaves alone what others may change, and says so.
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let unused = format!(
        "The pool is not used: {} is open to others (mode 0755)",
        dir.display()
    );
    assert_eq!(pool(), [("warning".into(), unused)]);
}

#[test]
fn plan_and_doctor_refuse_the_pool_that_a_run_refuses() {
    let args = "--memory size=2M,hugepages=on --pool /proc --json";
    let report = run(args).exits_with(2).json();
    for command in ["plan", "doctor"] {
        let seen = finish(prezero(&format!("{command} {args}"))).exits_with(2);
        assert_eq!(seen.json()["error"], report["error"], "{command}");
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/hosts/one-node");
        let recorded = format!("{command} {args} --root {root}");
        let refused = finish(prezero(&recorded)).exits_with(2).json();
        let message = text(&refused["error"], "message");
        assert!(message.contains("recorded"), "{message}");
    }
    // Ordinary memory is not in segments, so that nobody looks.
    let args = "--memory size=2M,hugepages=off --pool /proc --json";
    for command in ["plan", "doctor", "run"] {
        let ran = finish(prezero(&format!("{command} {args}")));
        assert_ne!(ran.status.code(), Some(2), "{ran:#?}");
    }
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
