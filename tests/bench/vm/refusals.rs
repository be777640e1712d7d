//! What is refused, before anything is measured: exit codes 2, 3 and 4.

use prezero_testkit::{Hugepages, require_kvm};
use serde_json::Value;

use super::contract::{bench_vm, document};
use super::{MIB, PAGE};
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
