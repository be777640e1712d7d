//! What is refused, before anything is measured: exit codes 2, 3 and 4.

use prezero_clear::Method;
use prezero_testkit::Hugepages;

use crate::command::{error_of, finish, prezero};
use crate::contract::{bench_clear, list, measured};

/// Runs it in text and in JSON mode, which have to say the same; the class, message and fix.
#[track_caller]
fn refused(args: &str, code: i32) -> (String, String, String) {
    let text = finish(bench_clear(args)).exits_with(code);
    assert_eq!(text.stdout, "", "{text:#?}");
    let (error, fix) = text.error_and_fix();
    let report = measured(args, code);
    let (class, message, json_fix) = error_of(&report);
    assert_eq!((message, json_fix), (error, Some(fix)));
    assert!(list(&report, "rows").is_empty(), "{report:#}");
    (class.to_owned(), error.to_owned(), fix.to_owned())
}

#[test]
fn an_unknown_method_is_refused_with_the_list() {
    let (class, error, fix) = refused("--method cached,memset", 2);
    assert_eq!(class, "usage");
    assert!(error.contains("memset"), "{error}");
    for name in Method::NAMES {
        assert!(error.contains(name), "{error}");
    }
    assert!(fix.contains("--method") && fix.contains("cached"), "{fix}");
}

#[test]
fn sizes_that_cannot_be_are_refused_with_ones_that_can() {
    for (args, part, wanted) in [
        ("--chunk 4K,6000", "6000", "--chunk 4K"),
        ("--memory 19M --page 2M", "19 MiB", "size=18M or size=20M"),
        ("--page 3M", "no size of a page", "--page 2M"),
        (
            "--memory size=64M,hugepages=off --page 2M",
            "says otherwise",
            "leave one of them out",
        ),
        ("--memory 64M,hugepage=2M", "unknown key", ""),
    ] {
        let (class, error, fix) = refused(args, 2);
        assert_eq!(class, "usage", "{args}");
        assert!(error.contains(part), "{args}: {error}");
        assert!(fix.contains(wanted), "{args}: {fix}");
    }
}

#[test]
fn a_baseline_that_is_not_measured_is_refused() {
    let (_, error, _) = refused("--method cached --chunk 4K --baseline cached:2M", 2);
    assert!(error.contains("cached:2M is not among the rows"), "{error}");
    let (_, error, fix) = refused("--baseline memset:4K", 2);
    assert!(error.contains("memset:4K"), "{error}");
    assert_eq!(fix, "--baseline rep-stosb:4K");
}

#[test]
fn what_clap_refuses_is_a_document_too() {
    for args in ["--runs 0", "--threads 1,0", "--chunk 4X", "--frobnicate"] {
        let report = measured(args, 2);
        let (class, _, fix) = error_of(&report);
        assert_eq!(
            (class, fix),
            ("usage", Some("prezero bench clear --help")),
            "{args}"
        );
    }
    let ran = finish(prezero("bench")).exits_with(2);
    assert!(ran.stderr.contains("clear"), "{ran:#?}");
}

#[test]
fn a_csv_file_that_cannot_be_written_is_refused_at_once() {
    let (_, error, _) = refused("--memory 64M --csv /nowhere/clear.csv", 2);
    assert!(
        error.contains("/nowhere/clear.csv cannot be written"),
        "{error}"
    );
}

#[test]
fn a_chart_that_cannot_be_written_is_refused_at_once() {
    let (_, error, fix) = refused("--memory 64M --chart /nowhere/clear.svg", 2);
    assert!(
        error.contains("/nowhere/clear.svg cannot be written"),
        "{error}"
    );
    assert!(fix.starts_with("--chart "), "{fix}");
}

#[test]
fn two_results_in_one_file_are_refused_and_the_file_is_gone() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("both");
    let both = path.to_str().expect("UTF-8");
    let (_, error, fix) = refused(&format!("--memory 64M --csv {both} --chart {both}"), 2);
    assert!(error.contains("--csv and --chart both name"), "{error}");
    assert!(fix.starts_with("--chart "), "{fix}");
    assert!(!path.exists());
}

#[test]
fn too_few_hugepages_are_a_shortage_in_numbers() {
    let Some(pages) = Hugepages::exactly(2 << 20, 3) else {
        return;
    };
    let (class, error, fix) = refused("--memory 64M --page 2M", 3);
    pages.assert_clean();
    assert_eq!(class, "shortage");
    assert!(error.contains("32 pages") && error.contains('3'), "{error}");
    assert!(fix.contains("nr_hugepages"), "{fix}");
}

#[test]
fn methods_this_cpu_lacks_are_left_out_and_none_left_is_the_host_s_refusal() {
    let lacking = Method::NAMES
        .iter()
        .find(|name| Method::named(name).is_err());
    let Some(lacking) = lacking else {
        return eprintln!("skipped: this CPU has every method");
    };
    let (class, error, fix) = refused(&format!("--method {lacking}"), 4);
    assert_eq!(class, "host");
    assert!(error.contains(lacking), "{error}");
    assert!(
        fix.starts_with("--method ") && !fix.contains(lacking),
        "{fix}"
    );

    let args = "--memory size=64M,hugepages=off --runs 1 --chunk 2M --threads 1";
    let report = measured(&format!("{args} --method {lacking},cached"), 0);
    assert_eq!(list(&report, "rows").len(), 1);
    let warnings = report["warnings"].to_string();
    assert!(
        warnings.contains("Left out: ") && warnings.contains(lacking),
        "{warnings}"
    );
}
