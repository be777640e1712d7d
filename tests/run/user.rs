//! An ordinary user who may open /dev/kvm can do everything that root can, within the limits an ordinary user has.

use prezero_testkit::{Hugepages, require_kvm};

use crate::command::{PublicCopy, error_of, finish};
use crate::private_dev::{self, USER, as_user, kvm_of_group};

#[test]
fn an_ordinary_user_gets_hugepages_and_workers() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::take(2 << 20, 32) else {
        return;
    };
    let copy = PublicCopy::new();
    // Hugepages are locked by nature, and this limit is not asked about them.
    let setup = kvm_of_group(USER, "660") + "ulimit -l 0 &&";
    let args = "--memory size=64M,hugepages=on,hugepage_size=2M --prealloc --verify --json";
    let Some(command) = private_dev::prezero_run(&setup, &as_user(USER), &copy.binary(), args)
    else {
        return;
    };
    let ran = finish(command).exits_with(0);
    assert_eq!(ran.stderr, "");
    let report = ran.json();
    assert_eq!(report["regions"][0]["backing"], "memfd", "{report:#}");
    assert_eq!(report["guest"]["scanned_bytes"], 64 << 20);
    let workers = report["workers"].as_array().expect("workers");
    assert!(
        workers.iter().all(|worker| worker["pinned"] == true),
        "{report:#}"
    );
    pages.assert_clean();
}

#[test]
fn a_limit_on_processes_is_an_error_with_a_fix() {
    if !require_kvm() {
        return;
    }
    // Other tests run something as the first one, and the limit counts that, too.
    let user = USER + 1;
    let copy = PublicCopy::new();
    for (mode, limit) in [("--prealloc", 1), ("", 1), ("--prealloc", 2)] {
        let setup = kvm_of_group(user, "660") + &format!("ulimit -u {limit} &&");
        let args = format!("--memory size=64M,hugepages=off --threads 2 --json {mode}");
        let Some(command) = private_dev::prezero_run(&setup, &as_user(user), &copy.binary(), &args)
        else {
            return;
        };
        let ran = finish(command).exits_with(3);
        let report = ran.json();
        let (class, _, fix) = error_of(&report);
        assert_eq!(class, "shortage");
        assert!(
            fix.is_some_and(|fix| fix.contains("ulimit -u")),
            "{report:#}"
        );
    }
}
