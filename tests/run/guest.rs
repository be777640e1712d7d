//! What the guest does, seen from outside.

use prezero_testkit::require_kvm;

use crate::command::run;

#[test]
fn vcpus_share_the_scan() {
    if !require_kvm() {
        return;
    }
    for cpus in 1..=3 {
        for mode in ["", "--prealloc"] {
            let args = format!("--memory 66M,hugepages=off --cpus {cpus} --verify --json {mode}");
            let ran = run(&args).exits_with(0);
            let guest = &ran.json()["guest"];
            assert_eq!(guest["scanned_bytes"], 66 << 20, "{args}");
            assert_eq!(guest["nonzero_bytes"], 0, "{args}");
        }
    }
}

#[test]
fn memory_of_one_page_is_enough() {
    if !require_kvm() {
        return;
    }
    let ran = run("--memory 4K,hugepages=off --prealloc --cpus 2 --verify --json").exits_with(0);
    assert_eq!(ran.json()["guest"]["scanned_bytes"], 4096);
}
