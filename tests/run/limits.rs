//! Limits of the process: an error with its number, or a fallback, and never a signal or a panic.

use prezero_testkit::{Hugepages, require_kvm};

use crate::command::{finish, prezero_run_after};

const PAGE: u64 = 2 << 20;

#[test]
fn a_file_size_limit_below_the_memory_is_an_error_and_not_sigxfsz() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::take(PAGE, 32) else {
        return;
    };
    let limit = "ulimit -f 1000;";
    for mode in ["", "--prealloc"] {
        let args = format!("--memory size=64M,hugepages=on,hugepage_size=2M {mode}");
        let ran = finish(prezero_run_after(limit, &args)).exits_with(3);
        let (error, fix) = ran.error_and_fix();
        assert!(
            error.contains("64 MiB") && error.contains("1000 KiB"),
            "{error}"
        );
        assert_eq!(fix, "ulimit -f unlimited");
        pages.assert_clean();
        let args = format!("--memory size=64M,hugepage_size=2M --verify {mode} --json");
        let ran = finish(prezero_run_after(limit, &args)).exits_with(0);
        assert!(ran.stderr.contains("RLIMIT_FSIZE"), "{ran:#?}");
        let report = ran.json();
        assert_ne!(report["regions"][0]["backing"], "memfd", "{report:#}");
        assert_eq!(report["guest"]["scanned_bytes"], 64 << 20);
        pages.assert_clean();
    }
}

#[test]
fn an_address_space_limit_below_the_memory_is_an_error() {
    if !require_kvm() {
        return;
    }
    for mode in ["", "--prealloc"] {
        let args = format!("--memory size=1G,hugepages=off {mode}");
        let ran = finish(prezero_run_after("ulimit -v 900000;", &args)).exits_with(3);
        let (error, fix) = ran.error_and_fix();
        assert!(error.contains("1 GiB"), "{error}");
        assert!(fix.contains("ulimit -v unlimited"), "{fix}");
        assert_eq!(ran.stdout, "");
    }
}

#[test]
fn descriptors_are_few_and_running_out_of_them_is_an_error() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::take(PAGE, 32) else {
        return;
    };
    let mut enough = None;
    // With fewer than four the dynamic linker cannot load the command.
    for limit in 4..=12 {
        for hugepages in ["off", "on"] {
            let args = format!("--memory size=64M,hugepages={hugepages} --prealloc --verify");
            let ran = finish(prezero_run_after(&format!("ulimit -n {limit};"), &args));
            match ran.status.code() {
                Some(0) => {
                    enough.get_or_insert(limit);
                }
                _ => {
                    enough = None;
                    let ran = ran.exits_with(3);
                    let (error, fix) = ran.error_and_fix();
                    assert!(error.contains("Too many open files"), "{error}");
                    assert!(fix.contains("ulimit -n"), "{fix}");
                }
            }
            pages.assert_clean();
        }
    }
    assert!(enough.is_some_and(|limit| limit <= 10), "{enough:?}");
}
