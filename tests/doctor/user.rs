//! An ordinary user who may open /dev/kvm: what only root may do is no problem of his.

use prezero_testkit::{Hugepages, require_kvm};

use crate::command::{PublicCopy, finish};
use crate::contract::{examined, named, one};
use crate::private_dev::{self, USER, as_user, kvm_of_group};

#[track_caller]
fn as_ordinary_user(setup: &str, args: &str) -> Option<serde_json::Value> {
    let copy = PublicCopy::new();
    let setup = kvm_of_group(USER, "660") + setup;
    let args = format!("doctor --json {args}");
    let command = private_dev::prezero(&setup, &as_user(USER), &copy.binary(), &args)?;
    Some(examined(finish(command), 0))
}

#[test]
fn nothing_that_is_merely_root_s_is_a_problem() {
    if !require_kvm() {
        return;
    }
    let args = "--memory size=64M,hugepages=off --prealloc";
    let Some(report) = as_ordinary_user("ulimit -l 0 &&", args) else {
        return;
    };
    for name in ["kvm", "populate", "leases", "memory"] {
        assert_eq!(one(&report, name).0, "ok", "{report:#}");
    }
    let (level, message, fix) = one(&report, "minor");
    if level == "warning" {
        assert!(message.contains("forbidden"), "{message}");
        assert_eq!(fix, "sudo sysctl vm.unprivileged_userfaultfd=1");
    }
}

#[test]
fn who_holds_pages_is_left_to_root() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::take(2 << 20, 4) else {
        return;
    };
    let mapping = crate::sys::Mapping::of_hugepages(4 << 20);
    let report = as_ordinary_user("", "");
    drop(mapping);
    pages.assert_clean();
    let Some(report) = report else { return };
    let held = named(&report, "held");
    assert_eq!(held[0].0, "ok");
    assert!(held[0].1.contains("only root"), "{held:?}");
}
