//! Which pages a run gets, and what it says where there are too few.

use prezero_testkit::{Hugepages, require_kvm};
use serde_json::Value;

use crate::command::{error_of, run};

const PAGE: u64 = 2 << 20;

fn backings(report: &Value) -> Vec<&str> {
    let regions = report["regions"].as_array().expect("regions").iter();
    regions
        .filter_map(|region| region["backing"].as_str())
        .collect()
}

#[test]
fn auto_uses_hugepages_where_there_are_enough_and_is_silent() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::take(PAGE, 32) else {
        return;
    };
    for mode in ["--prealloc --verify", "--verify", ""] {
        // Where 1 GiB is the host's default size, 2 MiB is the largest that divides this.
        let ran = run(&format!("--memory 64M {mode} --json")).exits_with(0);
        assert_eq!(ran.stderr, "", "{mode}");
        let report = ran.json();
        assert!(
            backings(&report).iter().all(|backing| *backing == "memfd"),
            "{report:#}"
        );
        pages.assert_clean();
    }
}

#[test]
fn auto_without_hugepages_warns_and_runs() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::exactly(PAGE, 0) else {
        return;
    };
    let ran = run("--memory 64M --prealloc --verify --json").exits_with(0);
    let report = ran.json();
    let [warning] = &report["warnings"].as_array().expect("warnings")[..] else {
        panic!("{report:#}");
    };
    let warning = warning.as_str().expect("text");
    assert!(
        warning.contains("ordinary memory") && warning.contains("has 0 free"),
        "{warning}"
    );
    assert_eq!(ran.stderr, format!("warning: {warning}\n"));
    assert!(
        backings(&report)
            .iter()
            .all(|backing| ["thp", "base"].contains(backing))
    );
    assert_eq!(report["guest"]["scanned_bytes"], 64 << 20);
    let text = run("--memory 64M").exits_with(0);
    assert!(text.stdout.contains("ordinary memory"), "{text:#?}");
    pages.assert_clean();
}

#[test]
fn on_without_enough_is_refused_with_numbers_and_a_command_that_fixes_it() {
    let Some(pages) = Hugepages::exactly(PAGE, 10) else {
        return;
    };
    for mode in ["", "--prealloc"] {
        let args = format!("--memory size=64M,hugepages=on,hugepage_size=2M {mode}");
        let ran = run(&args).exits_with(3);
        assert_eq!(ran.stdout, "");
        let (error, fix) = ran.error_and_fix();
        for part in ["needs 32 pages of 2 MiB", "10 free", "short by 22"] {
            assert!(error.contains(part), "{error}");
        }
        let wanted = pages.counters().total + 22;
        assert!(
            fix.starts_with(&format!("echo {wanted} | sudo tee /sys/")),
            "{fix}"
        );
        let report = run(&format!("{args} --json")).exits_with(3).json();
        assert_eq!(error_of(&report), ("shortage", error, Some(fix)));
        pages.assert_clean();
    }
}

#[test]
fn a_guest_uses_as_many_pages_as_it_has_and_no_more() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::exactly(PAGE, 32) else {
        return;
    };
    let memory = "hugepages=on,hugepage_size=2M --prealloc --verify";
    run(&format!("--memory size=64M,{memory}")).exits_with(0);
    run(&format!("--memory size=66M,{memory}")).exits_with(3);
    pages.assert_clean();
}

#[test]
fn a_node_that_was_asked_for_has_all_of_it() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::take(PAGE, 32) else {
        return;
    };
    for hugepages in ["off", "auto"] {
        let spec = format!("64M,hugepages={hugepages},host_numa_node=0");
        let ran = run(&format!("--memory {spec} --prealloc --verify --json")).exits_with(0);
        let report = ran.json();
        let regions = report["regions"].as_array().expect("regions");
        assert!(
            regions.iter().all(|region| region["node"] == 0),
            "{report:#}"
        );
        assert_eq!(report["placement"]["misplaced_pages"], 0);
    }
    pages.assert_clean();
}

#[test]
fn a_page_of_1_gib_is_used_where_it_is_asked_for() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::take(1 << 30, 1) else {
        return;
    };
    let memory = "--memory size=1G,hugepages=on,hugepage_size=1G";
    let ran = run(&format!("{memory} --prealloc --verify --json")).exits_with(0);
    let report = ran.json();
    let region = &report["regions"][0];
    assert_eq!(
        (&region["backing"], &region["page_size"]),
        (&"memfd".into(), &(1 << 30).into())
    );
    assert_eq!(report["placement"]["checked_pages"], 1);
    pages.assert_clean();
}
