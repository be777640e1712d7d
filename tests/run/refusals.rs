//! Requests that no host could meet (exit code 2), and hosts that refuse (4).

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use prezero_testkit::skip;

use crate::command::{PublicCopy, Ran, error_of, finish, prezero_run, run};
use crate::private_dev::{self, USER, as_user, kvm_of_group};

/// Runs it in text and in JSON mode; both have to say the same.
#[track_caller]
fn refused(args: &str, code: i32) -> (String, String) {
    let text = run(args).exits_with(code);
    assert_eq!(text.stdout, "", "{text:#?}");
    let (error, fix) = text.error_and_fix();
    let json = run(&format!("{args} --json")).exits_with(code);
    let report = json.json();
    let (_, message, json_fix) = error_of(&report);
    assert_eq!((message, json_fix), (error, Some(fix)));
    (error.to_owned(), fix.to_owned())
}

#[test]
fn sizes_that_are_none_are_refused() {
    for (size, part) in [
        ("0", "is zero"),
        ("0G", "is zero"),
        ("1.5G", "is a fraction"),
        ("+1G", "has a sign"),
        ("16777216T", "does not fit in 64 bits"),
        ("18446744073709551616", "does not fit in 64 bits"),
        ("1X", "is not a number"),
        ("0x1000", "is not a number"),
    ] {
        let (error, _) = refused(&format!("--memory {size}"), 2);
        assert!(error.contains(part), "{size}: {error}");
    }
    let (error, _) = refused("--memory=-1", 2);
    assert!(error.contains("has a sign"), "{error}");
    let (_, fix) = refused("--memory 1.5G", 2);
    assert_eq!(fix, "size=1536M");
}

#[test]
fn a_size_that_is_not_whole_pages_is_refused_with_the_nearest() {
    let (error, fix) = refused("--memory size=19M,hugepages=on,hugepage_size=2M", 2);
    assert!(
        error.contains("19 MiB") && error.contains("2 MiB"),
        "{error}"
    );
    assert_eq!(fix, "size=18M or size=20M");
    let (_, fix) = refused("--memory size=4097,hugepages=off", 2);
    assert_eq!(fix, "size=4K or size=8K");
}

#[test]
fn memory_beyond_the_address_bits_is_refused_with_the_maximum() {
    // 52 is the most that x86-64 has, so 2^52 bytes and a hole are too many everywhere.
    for size in ["4096T", "18446744073709551615", "16777215T"] {
        let (error, fix) = refused(&format!("--memory {size}"), 2);
        assert!(error.contains("physical address bits: at most"), "{error}");
        assert!(
            fix.starts_with("size=") && fix.ends_with(" or less"),
            "{fix}"
        );
    }
}

#[test]
fn the_maximum_that_is_offered_is_no_longer_beyond_the_address_bits() {
    let (_, fix) = refused("--memory 4096T,hugepages=off", 2);
    let size = fix.strip_suffix(" or less").expect("a size");
    let spec = format!("--memory {size},hugepages=off --prealloc");
    let ran = run(&spec);
    // No machine has that much; it is a shortage now, and not a wrong request.
    ran.exits_with(3);
}

#[test]
fn keys_that_are_unknown_or_senseless_are_refused() {
    for (spec, part) in [
        ("64M,huge=on", "unknown key 'huge'"),
        ("64M,path=/proc", "is not on a hugetlbfs mount"),
        ("64M,path=proc", "not an absolute path"),
        ("64M,hugepages=off,path=/proc", "for none"),
        ("64M,hugepages=yes", "hugepages='yes'"),
        ("64M,size=64M", "'size' twice"),
        ("hugepages=off", "no size"),
        ("64M,hugepages=off,hugepage_size=2M", "and for none"),
        ("64M,", "unknown key ''"),
    ] {
        let (error, _) = refused(&format!("--memory {spec}"), 2);
        assert!(error.contains(part), "{spec}: {error}");
    }
}

#[test]
fn a_node_that_is_not_there_is_refused_with_those_that_are() {
    let online = fs::read_to_string("/sys/devices/system/node/has_memory").unwrap_or("0".into());
    let (error, fix) = refused("--memory 64M,hugepages=off,host_numa_node=99", 2);
    assert!(error.contains("no NUMA node 99"), "{error}");
    let listed = error.rsplit(' ').next().expect("words");
    assert_eq!(listed, online.trim());
    let first: u32 = fix
        .strip_prefix("host_numa_node=")
        .and_then(|node| node.parse().ok())
        .unwrap_or_else(|| panic!("{fix}"));
    assert!(online.starts_with(&first.to_string()), "{fix}, {online}");
}

#[test]
fn counts_of_nothing_are_refused() {
    let (error, fix) = refused("--memory 64M,hugepages=off --prealloc --threads 0", 2);
    assert!(error.contains("at least one thread"), "{error}");
    assert_eq!(fix, "--threads 1");
}

#[test]
fn a_page_size_that_the_host_lacks_is_refused_with_those_it_has() {
    let dir = |kib: u64| format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB");
    let missing = [64_u64, 32 << 10, 512 << 10]
        .into_iter()
        .find(|kib| !Path::new(&dir(*kib)).exists());
    let missing = missing.expect("no machine has all of them");
    let (error, _) = refused(
        &format!("--memory 1G,hugepage_size={missing}K,hugepages=on"),
        4,
    );
    assert!(error.contains("no hugepages of"), "{error}");
    if Path::new(&dir(2048)).exists() {
        assert!(error.contains("2 MiB"), "{error}");
    }
}

/// What a refusal by /dev/kvm has to be like, whatever the memory is. `run` starts the command with these arguments.
#[track_caller]
fn is_refused_at_once(what: &str, mut run: impl FnMut(&str) -> Option<Ran>) {
    for size in ["64M", "64G"] {
        // The contract is 50 ms; a busy machine is given ten times that and three attempts.
        let mut fastest = Duration::MAX;
        for _ in 0..3 {
            let Some(ran) = run(&format!("--memory size={size},hugepages=off --json")) else {
                return;
            };
            let ran = ran.exits_with(4);
            let report = ran.json();
            let (class, message, fix) = error_of(&report);
            assert_eq!(class, "host");
            assert!(
                message.contains("/dev/kvm") && message.contains(what),
                "{message}"
            );
            assert!(fix.is_some(), "{report:#}");
            assert_eq!(ran.error_and_fix(), (message, fix.unwrap_or_default()));
            fastest = fastest.min(ran.took);
        }
        assert!(fastest < Duration::from_millis(500), "{size}: {fastest:?}");
    }
}

fn open_kvm() -> io::Result<fs::File> {
    fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/kvm")
}

#[test]
fn a_host_without_kvm_is_told_apart_at_once() {
    is_refused_at_once("is absent", |args| {
        if open_kvm().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Some(run(args));
        }
        let binary = Path::new(env!("CARGO_BIN_EXE_prezero"));
        private_dev::prezero_run("", "", binary, args).map(finish)
    });
}

#[test]
fn a_forbidden_kvm_is_told_apart_at_once() {
    let copy = PublicCopy::new();
    is_refused_at_once("may not be opened", |args| {
        if open_kvm().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
            return Some(run(args));
        }
        let setup = kvm_of_group(0, "600");
        private_dev::prezero_run(&setup, &as_user(USER), &copy.binary(), args).map(finish)
    });
}

#[test]
fn a_file_that_is_not_kvm_is_told_apart_at_once() {
    is_refused_at_once("is not a KVM device", |args| {
        let binary = Path::new(env!("CARGO_BIN_EXE_prezero"));
        private_dev::prezero_run("mknod /dev/kvm c 1 3 &&", "", binary, args).map(finish)
    });
}

#[test]
fn too_many_vcpus_are_refused_before_memory_is_touched() {
    if open_kvm().is_err() {
        return skip("kvm", "/dev/kvm does not open");
    }
    for cpus in ["0", "4000000000"] {
        let args = format!("--memory 64M,hugepages=off --prealloc --cpus {cpus}");
        let (error, _) = refused(&args, 2);
        assert!(error.contains("vCPUs were asked for"), "{error}");
        let report = finish(prezero_run(&format!("{args} --json"))).json();
        let phases = report["phases"].as_array().expect("phases");
        assert!(
            phases.iter().all(|phase| phase["name"] == "plan"),
            "{report:#}"
        );
    }
}
