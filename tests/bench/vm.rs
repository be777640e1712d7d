//! `prezero bench vm` on small machines: its document, and what it leaves behind.

mod contract;
mod ends;
mod refusals;

use std::fs;
use std::path::Path;
use std::process::Command;

use prezero_testkit::{Hugepages, PrivateMount, Refusal, Refused, require_kvm, skip};
use serde_json::Value;

use self::contract::{bench_vm, document, is_empty, row};
use crate::command::{Ran, finish};
use crate::contract::{list, number};

const PAGE: u64 = 2 << 20;
const MIB: u64 = 1 << 20;

/// Pages for one machine of 64 MiB, and none to spare. None where no machine can be made or mounts are
/// refused.
fn pages() -> Option<Hugepages> {
    if !require_kvm() {
        return None;
    }
    Hugepages::exactly(PAGE, 32)
}

/// Runs it as root with a directory for its own things, which has to be empty afterwards.
#[track_caller]
fn measured(args: &str, code: i32) -> Option<Value> {
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = bench_vm(&format!("{args} --json"));
    command.env("TMPDIR", dir.path());
    let ran = finish(command);
    is_empty(dir.path());
    match mounts_are_refused(&ran) {
        true => None,
        false => Some(document(ran, code)),
    }
}

/// Whether it takes more rights than the test has.
fn mounts_are_refused(ran: &Ran) -> bool {
    let refused = ran
        .stderr
        .contains("mounting one for this process alone was refused");
    if refused {
        skip("hugetlbfs", "only root can mount hugetlbfs");
    }
    refused
}

/// Way, and workers as `one` or `all`, of every row of prezero.
fn ways(report: &Value) -> Vec<(String, bool)> {
    let own = list(report, "rows")
        .iter()
        .filter(|row| row["peer"].is_null());
    own.map(|row| {
        let way = row["way"].as_str().expect("a name").to_owned();
        (way, row["workers"] == 1)
    })
    .collect()
}

#[test]
fn the_pages_of_one_machine_are_enough_for_every_way_of_every_size() {
    let Some(pages) = pages() else { return };
    let Some(report) = measured("--memory 64M,32M --runs 2 --threads 1 --page 2M", 0) else {
        return;
    };
    pages.assert_clean();
    let mut wanted = vec!["fresh", "recycled-cached"];
    let uncached =
        |method: prezero_clear::Method| method.stores() == prezero_clear::Stores::Uncached;
    if prezero_clear::Method::available().any(uncached) {
        wanted.push("recycled-uncached");
    }
    wanted.push("recycled-clean");
    let sizes = [32 * MIB, 64 * MIB];
    let wanted: Vec<(u64, &str)> = sizes
        .into_iter()
        .flat_map(|bytes| wanted.iter().map(move |way| (bytes, *way)))
        .collect();
    let rows = list(&report, "rows").iter();
    let found = rows.map(|row| {
        let bytes = row["bytes"].as_u64().expect("a size");
        (bytes, row["way"].as_str().expect("a name"))
    });
    assert_eq!(found.collect::<Vec<_>>(), wanted);
    assert!(
        report["warnings"].to_string().contains("2 runs"),
        "{report:#}"
    );
}

#[test]
fn all_workers_are_rows_of_their_own() {
    let Some(pages) = pages() else { return };
    let Some(report) = measured("--memory 64M --runs 1 --threads 2", 0) else {
        return;
    };
    pages.assert_clean();
    let ways = ways(&report);
    for way in ["fresh", "recycled-uncached"] {
        let workers: Vec<bool> = ways.iter().filter(|w| w.0 == way).map(|w| w.1).collect();
        assert!(workers.is_empty() || workers == [true, false], "{report:#}");
    }
    assert_eq!(
        ways.iter().filter(|way| way.0 == "recycled-clean").count(),
        1
    );
}

#[test]
fn qemu_is_a_peer_with_two_rows() {
    let Some(pages) = pages() else { return };
    let program = format!("qemu-system-{}", std::env::consts::ARCH);
    if Command::new(&program).arg("--version").output().is_err() {
        return eprintln!("skipped: {program} is not installed");
    }
    let Some(report) = measured("--memory 64M --runs 2 --peer qemu", 0) else {
        return;
    };
    pages.assert_clean();
    assert_eq!(list(&report, "notes"), [] as [Value; 0], "{report:#}");
    let warnings = report["warnings"].to_string();
    assert!(!warnings.contains("said that it was ready"), "{warnings}");
    for way in ["prealloc", "prealloc-threads"] {
        let row = row(&report, "qemu", way);
        assert!(
            row["work"].is_null() && row["work_gbps"].is_null(),
            "{row:#}"
        );
        assert!(row["first_instruction_ns"].is_null(), "{row:#}");
    }
    let [peer] = list(&report, "peers") else {
        panic!("{report:#}")
    };
    assert!(
        peer["version"]
            .as_str()
            .is_some_and(|text| text.contains("QEMU"))
    );
}

#[test]
fn a_peer_that_is_not_there_or_fails_is_a_note_and_the_rest_is_measured() {
    let Some(pages) = pages() else { return };
    let args = "--memory 64M --runs 1 --peer qemu=/nowhere/qemu --peer cloud-hypervisor=/bin/true";
    let Some(report) = measured(args, 0) else {
        return;
    };
    pages.assert_clean();
    let notes = report["notes"].to_string();
    assert!(notes.contains("/nowhere/qemu is not installed"), "{notes}");
    assert!(notes.contains("cloud-hypervisor"), "{notes}");
    assert!(
        list(&report, "rows")
            .iter()
            .all(|row| row["peer"].is_null())
    );
}

#[test]
fn a_monitor_that_fails_half_way_is_left_out_from_there_on() {
    let Some(pages) = pages() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("qemu");
    // It greets once, and then no more.
    let script = "#!/bin/sh\n[ \"$1\" = --version ] && exec echo QEMU emulator version 9.0.0\n\
        [ -e \"$0.used\" ] && { echo no memory >&2; exit 1; }\ntouch \"$0.used\"\n\
        echo '{\"QMP\": {}}'; read line\n";
    executable(&program, script);
    let args = format!(
        "--memory 64M --runs 1 --threads 1 --peer qemu={}",
        program.display()
    );
    let Some(report) = measured(&args, 0) else {
        return;
    };
    pages.assert_clean();
    let notes = report["notes"].to_string();
    assert!(
        notes.contains("is left out") && notes.contains("no memory"),
        "{notes}"
    );
    assert!(
        list(&report, "rows")
            .iter()
            .all(|row| row["peer"].is_null())
    );
}

#[test]
fn the_files_of_cloud_hypervisor_are_gone_and_its_time_is_that_of_its_event() {
    let Some(pages) = pages() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("monitor");
    let events = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/peers/cloud-hypervisor-events.json"
    );
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && exec echo cloud-hypervisor v53.0.0\n\
         case \"$*\" in *size=67108864,hugepages=on,hugepage_size=2097152,prefault=on*) ;; *) exit 1;; esac\n\
         while [ \"$1\" != --event-monitor ]; do shift; done\n\
         cat {events} >\"${{2#path=}}\"\nexec sleep 1000\n"
    );
    executable(&program, &script);
    let args = format!(
        "--memory 64M --runs 2 --peer cloud-hypervisor={}",
        program.display()
    );
    let Some(report) = measured(&args, 0) else {
        return;
    };
    pages.assert_clean();
    let row = row(&report, "cloud-hypervisor", "prefault");
    assert!(row["workers"].is_null() && row["runs"] == 2, "{row:#}");
    // It has no memory, which is not taken on trust.
    let warnings = report["warnings"].to_string();
    assert!(
        warnings.contains("said that it was ready with only 0 bytes of 64 MiB in hugepages"),
        "{warnings}"
    );
}

fn executable(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    fs::write(path, text).expect("a directory");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
}

#[test]
fn a_directory_that_is_named_is_empty_again_afterwards() {
    let Some(pages) = pages() else { return };
    let Some(mount) = PrivateMount::hugetlbfs(PAGE) else {
        return;
    };
    let args = format!("--memory 64M --runs 1 --pool {}", mount.path().display());
    if measured(&args, 0).is_none() {
        return;
    }
    is_empty(mount.path());
    pages.assert_clean();
}

#[test]
fn each_kind_of_memory_is_pinned_at_each_size_and_let_go() {
    let Some(pages) = pages() else { return };
    let Some(report) = measured("--memory 32M,64M --runs 2 --threads 1", 0) else {
        return;
    };
    // A page that were still pinned would not be back.
    pages.assert_clean();
    let pins = &report["pins"];
    if let Some(why) = pins["not_available"].as_str() {
        return eprintln!("skipped: {why}");
    }
    let rows = list(pins, "rows").iter();
    let found = rows.map(|row| {
        assert_eq!(list(&row["pin_ns"], "samples").len(), 2, "{row:#}");
        (row["bytes"].as_u64(), row["memory"].as_str())
    });
    let kinds = ["fresh", "populated", "recycled"];
    let of_size = |bytes: u64| kinds.map(|kind| (Some(bytes), Some(kind)));
    let wanted = [of_size(32 * MIB), of_size(64 * MIB)].concat();
    assert_eq!(found.collect::<Vec<_>>(), wanted);
}

#[test]
fn without_io_uring_there_are_no_pins_and_all_else() {
    let Some(pages) = pages() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = bench_vm("--memory 64M --runs 1 --threads 1 --json");
    command.env("TMPDIR", dir.path());
    Refused::new(&[libc::SYS_io_uring_setup], Refusal::Errno(1)).put_on(&mut command);
    let ran = finish(command);
    if mounts_are_refused(&ran) {
        return;
    }
    let report = document(ran, 0);
    pages.assert_clean();
    let why = report["pins"]["not_available"].as_str();
    assert!(
        why.is_some_and(|why| why.contains("io_uring")),
        "{report:#}"
    );
    assert!(list(&report["pins"], "rows").is_empty(), "{report:#}");
}

#[test]
fn workers_that_cannot_be_pinned_are_one_warning() {
    let Some(pages) = pages() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = bench_vm("--memory 64M --runs 2 --threads 2 --json");
    command.env("TMPDIR", dir.path());
    let affinity = &[libc::SYS_sched_setaffinity];
    Refused::new(affinity, Refusal::Errno(1)).put_on(&mut command);
    let ran = finish(command);
    if mounts_are_refused(&ran) {
        return;
    }
    let report = document(ran, 0);
    pages.assert_clean();
    let warnings = list(&report, "warnings").iter();
    let loose = |warning: &&Value| warning.to_string().contains("pinned");
    assert_eq!(warnings.filter(loose).count(), 1, "{report:#}");
}

#[test]
fn a_prediction_is_apart_from_what_was_measured() {
    let Some(pages) = pages() else { return };
    let args = "--memory 4M,64M --runs 2 --estimate 1550G";
    let Some(report) = measured(args, 0) else {
        return;
    };
    pages.assert_clean();
    let estimate = &report["estimate"];
    assert_eq!(estimate["bytes"], 1550_u64 << 30);
    assert_eq!(list(estimate, "from_bytes"), [4 * MIB, 64 * MIB]);
    assert!(
        list(&report, "rows")
            .iter()
            .all(|row| number(row, "bytes") < 1e9)
    );
    for row in list(estimate, "rows") {
        let gib = 1550.0;
        let line = number(row, "fixed_ns") + gib * number(row, "ns_per_gib");
        let found = number(row, "creation_ns");
        assert!((found - line).abs() < 1e-6 * found, "{row:#}");
    }
}

#[test]
fn the_text_has_a_table_for_each_size_and_the_files_have_each_row() {
    let Some(pages) = pages() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let (csv, svg) = (dir.path().join("vm.csv"), dir.path().join("vm.svg"));
    let args = format!(
        "--memory 32M,64M --runs 2 --threads 1 --csv {} --chart {}",
        csv.display(),
        svg.display()
    );
    let ran = finish(bench_vm(&args));
    if mounts_are_refused(&ran) {
        return;
    }
    let ran = ran.exits_with(0);
    pages.assert_clean();
    for part in [
        "32 MiB ",
        "64 MiB ",
        "fresh, 1w",
        "Milan 8.05 → 29.94",
        "\nload      ",
    ] {
        assert!(ran.stdout.contains(part), "{part}: {ran:#?}");
    }
    let rows = ran
        .stdout
        .lines()
        .filter(|line| line.contains(", 1w "))
        .count();
    let text = fs::read_to_string(csv).expect("it was written");
    assert_eq!(text.lines().count(), rows + 1, "{text}");
    let chart = fs::read_to_string(svg).expect("it was drawn");
    for part in ["32 MiB", "64 MiB", "recycled, clean, 1w"] {
        assert!(chart.contains(&format!("\n{part}\n")), "{part}: {chart}");
    }
}
