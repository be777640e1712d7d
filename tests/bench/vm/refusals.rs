//! What is refused, before anything is measured: exit codes 2, 3 and 4.

use std::process::Command;

use prezero_testkit::{Hugepages, PrivateMount, require_kvm};
use serde_json::Value;

use super::contract::{bench_vm, document};
use super::{MIB, PAGE, pages};
use crate::command::{PublicCopy, error_of, finish};
use crate::contract::list;
use crate::private_dev::{self, USER, as_user, kvm_of_group};

/// Runs it in text and in JSON mode, which have to say the same; the class, message and fix.
#[track_caller]
fn refused(args: &str, code: i32) -> (String, String, String) {
    let text = finish(bench_vm(args)).exits_with(code);
    assert_eq!(text.stdout, "", "{text:#?}");
    let (error, fix) = text.error_and_fix();
    let report = document(finish(bench_vm(&format!("{args} --json"))), code);
    let (class, message, json_fix) = error_of(&report);
    assert_eq!((message, json_fix), (error, Some(fix)));
    (class.to_owned(), error.to_owned(), fix.to_owned())
}

#[test]
fn what_cannot_be_is_refused_with_what_can() {
    for (args, part, wanted) in [
        (
            "--memory 1G --estimate 1550G",
            "two sizes",
            "--memory 1G,4G",
        ),
        ("--memory 63M --page 2M", "63 MiB", "--memory 62M or 64M"),
        ("--page 3M", "3 MiB", "--page"),
    ] {
        let (class, error, fix) = refused(args, 2);
        assert_eq!(class, "usage", "{args}");
        assert!(error.contains(part), "{args}: {error}");
        assert!(fix.contains(wanted), "{args}: {fix}");
    }
}

#[test]
fn what_clap_refuses_is_a_document_too() {
    for args in [
        "--runs 0",
        "--peer firecracker",
        "--memory 4X",
        "--frobnicate",
    ] {
        let report = document(finish(bench_vm(&format!("{args} --json"))), 2);
        let (class, _, fix) = error_of(&report);
        let wanted = ("usage", Some("prezero bench vm --help"));
        assert_eq!((class, fix), wanted, "{args}");
    }
}

#[test]
fn too_few_hugepages_for_the_largest_machine_are_a_shortage_in_numbers() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::exactly(PAGE, 31) else {
        return;
    };
    let (class, error, fix) = refused("--memory 32M,64M --page 2M", 3);
    pages.assert_clean();
    assert_eq!(class, "shortage");
    assert!(
        error.contains("32 pages") && error.contains("31"),
        "{error}"
    );
    assert!(fix.contains("nr_hugepages"), "{fix}");
}

#[test]
fn a_place_where_no_such_pool_can_be_is_refused_by_its_own_name() {
    let Some(pages) = pages() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let place = dir.path().display();
    let (class, error, fix) = refused(&format!("--memory 64M --pool {place}"), 2);
    assert_eq!(class, "usage");
    assert_eq!(
        error,
        format!("{place} is not on a hugetlbfs mount, which a pool has to be")
    );
    assert!(fix.contains("--pool "), "{fix}");
    super::contract::is_empty(dir.path());
    if let Some(mount) = PrivateMount::hugetlbfs(1 << 30) {
        let place = mount.path().display();
        let args = format!("--memory 64M --page 2M --pool {place}");
        let (_, error, fix) = refused(&args, 2);
        assert_eq!(
            error,
            format!("{place} has pages of 1 GiB, the machines have pages of 2 MiB")
        );
        assert!(fix.starts_with("--page 1G"), "{fix}");
        super::contract::is_empty(mount.path());
    }
    pages.assert_clean();
}

#[test]
fn too_few_files_are_said_before_the_host_seems_to_have_nothing() {
    let bench = bench_vm("--memory 64M --json");
    for files in [8, 63] {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\"")]);
        command.arg(bench.get_program()).args(bench.get_args());
        let report = document(finish(command), 3);
        let (class, error, fix) = error_of(&report);
        assert_eq!(class, "shortage");
        assert!(error.contains(&format!("{files} files open")), "{error}");
        assert_eq!(fix, Some("ulimit -n 1024"));
    }
}

#[test]
fn without_kvm_nothing_is_measured() {
    let copy = PublicCopy::new();
    let args = "bench vm --memory 64M --json";
    let Some(command) = private_dev::prezero("", "", &copy.binary(), args) else {
        return;
    };
    let report = document(finish(command), 4);
    let (class, message, _) = error_of(&report);
    assert_eq!(class, "host");
    assert!(message.contains("/dev/kvm"), "{message}");
}

#[test]
fn an_ordinary_user_has_fresh_rows_and_is_told_what_the_others_take() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::exactly(PAGE, 64 * MIB / PAGE) else {
        return;
    };
    let copy = PublicCopy::new();
    let point = tempfile::tempdir().expect("a directory");
    let dir = point.path().display();
    let mount = format!("mount -t hugetlbfs -o pagesize=2M,uid={USER},mode=0700 none {dir} &&");
    let ordinary = |setup: &str, args: &str| {
        let null = "mknod -m 666 /dev/null c 1 3 &&";
        let kvm = kvm_of_group(USER, "0660");
        let setup = format!("chmod 755 {dir} && {null} {kvm} {setup}");
        let args = format!("bench vm --memory 64M --runs 1 --json {args}");
        let user = as_user(USER);
        let command = private_dev::prezero(&setup, &user, &copy.binary(), &args);
        command.map(|mut command| {
            command.env("TMPDIR", "/tmp");
            command
        })
    };
    let Some(command) = ordinary("", "") else {
        return;
    };
    let ways = |report: &Value| {
        let rows = list(report, "rows").iter();
        let mut ways: Vec<String> = rows.map(|row| row["way"].to_string()).collect();
        ways.dedup();
        ways
    };
    let report = document(finish(command), 0);
    assert_eq!(ways(&report), ["\"fresh\""]);
    let notes = report["notes"].to_string();
    assert!(
        notes.contains("Recycled rows are left out") && notes.contains("--pool DIR"),
        "{notes}"
    );
    let pins = list(&report["pins"], "rows").iter();
    let recycled = |pin: &Value| pin["memory"] == "recycled";
    assert!(!pins.clone().any(recycled), "{report:#}");
    // Who names a place means it.
    let Some(command) = ordinary("", &format!("--pool {dir}")) else {
        return;
    };
    let report = document(finish(command), 4);
    let (class, message, fix) = error_of(&report);
    assert_eq!(class, "host");
    assert!(message.contains("Permission denied"), "{message}");
    assert!(fix.is_some_and(|fix| fix.contains("--pool DIR")), "{fix:?}");
    if let Some(command) = ordinary(&mount, &format!("--pool {dir}")) {
        let report = document(finish(command), 0);
        assert_eq!(
            ways(&report).last().map(String::as_str),
            Some("\"recycled-clean\"")
        );
    }
    pages.assert_clean();
}
