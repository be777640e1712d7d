//! Clearing with our own stores: never fresh memory, unless it is asked for.

use prezero_memory::Method;
use prezero_testkit::{Hugepages, require_kvm};
use serde_json::Value;

use crate::command::{error_of, run};
use crate::contract::{check_failure, check_success, list, number, text};

const MEMORY: &str = "--memory size=128M,hugepages=on,hugepage_size=2M --prealloc --verify --json";

fn phase<'a>(report: &'a Value, name: &str) -> Option<&'a Value> {
    let mut phases = list(report, "phases").iter();
    phases.find(|phase| phase["name"] == name)
}

#[test]
fn fresh_memory_is_not_cleared_again_by_default() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::take(2 << 20, 64) else {
        return;
    };
    for options in ["", "--clear auto", "--method cached"] {
        let report = check_success(run(&format!("{MEMORY} {options}")), 128 << 20, true, true);
        assert!(phase(&report, "clear").is_none(), "{report:#}");
        assert!(phase(&report, "calibrate").is_none(), "{report:#}");
    }
    pages.assert_clean();
}

#[test]
fn everything_is_cleared_with_the_method_asked_for() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::take(2 << 20, 64) else {
        return;
    };
    for method in Method::available() {
        let args = format!("{MEMORY} --clear always --method {method}");
        let report = check_success(run(&args), 128 << 20, true, true);
        assert_eq!(report["request"]["method"], method.name());
        let [choice] = list(&report, "clear") else {
            panic!("one node: {report:#}");
        };
        assert_eq!(text(choice, "method"), method.name());
        assert_eq!(text(choice, "reason"), "requested");
        let clear = phase(&report, "clear").expect("it was asked for");
        assert_eq!(number(clear, "bytes"), 128 << 20);
        assert!(phase(&report, "calibrate").is_none(), "{report:#}");
    }
    pages.assert_clean();
}

#[test]
fn the_first_of_the_memory_tells_the_method_for_the_rest() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::take(2 << 20, 64) else {
        return;
    };
    let report = check_success(
        run(&format!("{MEMORY} --clear always")),
        128 << 20,
        true,
        true,
    );
    assert!(report["request"]["method"].is_null());
    let choice = &list(&report, "clear")[0];
    let bytes_of = |name| phase(&report, name).map_or(0, |phase| number(phase, "bytes"));
    assert_eq!(bytes_of("calibrate") + bytes_of("clear"), 128 << 20);
    // With very many CPUs each worker's share of 128 MiB is too small to measure on.
    if text(choice, "reason") == "measured" {
        let rate = |trial: &Value| trial["gbps"].as_f64().expect("a number");
        let trials = list(choice, "trials");
        let mut chosen = trials.iter();
        let chosen = chosen.find(|trial| trial["method"] == choice["method"]);
        let chosen = rate(chosen.expect("it was tried"));
        assert!(
            trials.iter().all(|trial| rate(trial) <= chosen),
            "{choice:#}"
        );
        let tried = bytes_of("calibrate");
        assert!(tried > 0 && tried <= (128 << 20) / 20, "{report:#}");
    }
    pages.assert_clean();
}

#[test]
fn methods_that_are_none_or_that_the_cpu_lacks_are_told_apart() {
    let memory = "--memory 2M --prealloc --json";
    let report = check_failure(run(&format!("{memory} --method memset")), 2, "usage");
    let (_, message, fix) = error_of(&report);
    assert!(message.contains("no clearing method memset"), "{message}");
    assert!(fix.is_some_and(|fix| fix.contains("cached")), "{fix:?}");
    let lacking = Method::NAMES
        .iter()
        .find(|name| Method::named(name).is_err());
    let Some(lacking) = lacking else {
        println!("skipped: a method that this CPU lacks");
        return;
    };
    let report = check_failure(run(&format!("{memory} --method {lacking}")), 4, "host");
    let (_, message, _) = error_of(&report);
    assert!(message.contains("This CPU cannot clear with"), "{message}");
}

#[test]
fn what_is_not_populated_cannot_be_cleared() {
    for command in ["", "--prealloc=off"] {
        let ran = run(&format!("--memory 2M --clear always {command} --json"));
        let report = check_failure(ran, 2, "usage");
        let (_, message, fix) = error_of(&report);
        assert!(message.contains("not populated"), "{message}");
        assert_eq!(fix, Some("--prealloc --clear always"));
    }
}
