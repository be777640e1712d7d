//! Guests of `--kernel`: how they end, what is reported, and what is refused. Linux itself is the lab's.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use prezero_testkit::kernel::{FAULT, FOREVER, print, pvh_kernel, write_port};
use prezero_testkit::require_kvm;
use serde_json::Value;
use tempfile::TempDir;

use crate::command::{Running, prezero_run, run};
use crate::sys;

const MEMORY: &str = "--memory 64M,hugepages=off";

/// Files in a directory that goes with it.
pub(crate) struct Files(TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A kernel of this code, as an option.
    pub(crate) fn kernel(&self, code: &[u8]) -> String {
        let path = self.path("kernel");
        fs::write(&path, pvh_kernel(code)).expect("written");
        format!("{MEMORY} --kernel {}", path.display())
    }
}

#[test]
fn ends_have_their_exit_codes_and_words() {
    if !require_kvm() {
        return;
    }
    let files = Files::new();
    // mov word [0x472], 0x1234: the reset is to be a warm one.
    let warm = [0x66, 0xc7, 0x05, 0x72, 0x04, 0, 0, 0x34, 0x12];
    let warm = [&warm[..], &write_port(0x64, 0xfe)].concat();
    for (code, options, exit, word) in [
        (write_port(0x600, 0x34), "", 0, "power-off"),
        (write_port(0x64, 0xfe), "", 0, "reset"),
        (warm.clone(), "", 5, "panic"),
        (warm, "--cmdline console=ttyS0", 0, "reset"),
        (write_port(0x505, 1), "", 5, "panic"),
        (FAULT.to_vec(), "", 5, "triple-fault"),
        (write_port(0xf4, 0), "", 0, "debug-exit"),
        (write_port(0xf4, 9), "", 5, "debug-exit"),
        (print("login: "), "--until login:", 0, "until"),
        (write_port(0x600, 0x34), "--until login:", 5, "power-off"),
    ] {
        let code = [print("hello "), code, FOREVER.to_vec()].concat();
        let ran = run(&format!(
            "{} {options} --prealloc --json",
            files.kernel(&code)
        ));
        assert_eq!(ran.status.code(), Some(exit), "{word}: {}", ran.stderr);
        let report = ran.json();
        assert_eq!(report["guest"]["exit"], word);
        assert_eq!(report["error"].is_null(), exit == 0, "{word}");
        assert!(ran.stderr.starts_with("hello "), "{}", ran.stderr);
        if exit == 5 {
            assert!(ran.stderr.contains("\n  fix: "), "{}", ran.stderr);
        }
        let at = |value: &Value| value.as_u64();
        let boot = &report["boot"];
        let times = [
            at(&report["creation_ns"]),
            at(&report["first_instruction_ns"]),
            at(&boot["first_serial_ns"]),
            at(&boot["until_ns"]).or(at(&boot["ended_ns"])),
            at(&boot["ended_ns"]),
        ];
        assert!(times.is_sorted() && times[0].is_some(), "{word}: {times:?}");
    }
}

#[test]
fn the_console_is_where_it_was_asked_for() {
    if !require_kvm() {
        return;
    }
    let files = Files::new();
    let code = [print("hello"), write_port(0x600, 0x34)].concat();
    let kernel = files.kernel(&code);
    let ran = run(&kernel);
    assert!(ran.stdout.starts_with("hello\nmemory "), "{}", ran.stdout);
    assert!(
        ran.stdout
            .contains("power-off; Linux (vmlinux, pvh), 1 vCPUs"),
        "{}",
        ran.stdout
    );
    let serial = files.path("serial");
    let ran = run(&format!("{kernel} --serial {}", serial.display()));
    assert!(ran.stdout.starts_with("memory "), "{}", ran.stdout);
    assert_eq!(fs::read_to_string(&serial).expect("a file"), "hello");
    // What cannot be written is lost, and the guest goes on.
    let ran = run(&format!("{kernel} --serial /dev/full"));
    assert_eq!(ran.status.code(), Some(0), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("console to /dev/full"),
        "{}",
        ran.stderr
    );
}

#[test]
fn zones_are_the_guests_nodes_and_vcpus_have_their_cpus() {
    if !require_kvm() {
        return;
    }
    let files = Files::new();
    let kernel = files.kernel(&write_port(0x600, 0x34)).replace(
        MEMORY,
        "--memory-zone 32M,hugepages=off --memory-zone 16M,hugepages=off",
    );
    let cpu = sys::first_cpu();
    let report = run(&format!(
        "{kernel} --cpus 2 --cpu-affinity {cpu},{cpu} --json"
    ))
    .json();
    let nodes = report["boot"]["nodes"].as_array().expect("nodes");
    let sizes: Vec<_> = nodes.iter().map(|node| node["bytes"].as_u64()).collect();
    assert_eq!(sizes, [Some(32 << 20), Some(16 << 20)]);
    for n in 0..2 {
        let vcpu = &report["boot"]["vcpus"][n];
        assert_eq!((&vcpu["vcpu"], &vcpu["node"]), (&n.into(), &n.into()));
        assert_eq!(vcpu["host_cpus"], serde_json::json!([cpu]));
        assert_eq!(vcpu["pinned"], true);
    }
}

#[test]
fn what_cannot_be_is_refused_before_memory_is_taken() {
    let files = Files::new();
    let kernel = files.kernel(&FOREVER);
    let text = files.path("text");
    fs::write(&text, "#!/bin/sh\n").expect("written");
    let large = files.path("large");
    let file = fs::File::create(&large).expect("a file");
    file.set_len(1 << 30).expect("as long");
    let (text, large) = (text.display(), large.display());
    for (args, code, why) in [
        (
            format!("{MEMORY} --kernel /nonexistent"),
            2,
            "The kernel /nonexistent cannot be read",
        ),
        (
            format!("{MEMORY} --kernel {text}"),
            2,
            "is not a kernel for x86-64",
        ),
        (
            format!("{MEMORY} --kernel /tmp"),
            2,
            "is not a regular file",
        ),
        (
            format!("{kernel} --initramfs /nonexistent"),
            2,
            "The initramfs /nonexistent",
        ),
        (format!("{kernel} --verify"), 2, "cannot be used with"),
        (format!("{MEMORY} --initramfs {text}"), 2, "--kernel"),
        (format!("{MEMORY} --until x"), 2, "--kernel"),
        (format!("{kernel} --cpu-affinity 0,1"), 2, "names 2 CPUs"),
        (
            format!("{kernel} --serial /nonexistent/file"),
            2,
            "cannot take the guest's console",
        ),
        (
            format!("{kernel} --cmdline {}", "a".repeat(3000)),
            2,
            "has 3000 bytes",
        ),
        (format!("{kernel} --cpus 300"), 2, "300 vCPUs"),
        (
            format!("{kernel} --initramfs {large}"),
            3,
            "The initramfs of 1 GiB does not fit",
        ),
        (
            format!("{kernel} --cpu-affinity 8000"),
            4,
            "CPU 8000 of --cpu-affinity",
        ),
    ] {
        if code != 2 || args.contains("--cpus") || args.contains("--cmdline") {
            // These are found where KVM is there, too.
            if !require_kvm() {
                continue;
            }
        }
        let ran = run(&format!("{args} --prealloc"));
        assert_eq!(ran.status.code(), Some(code), "{args}: {}", ran.stderr);
        assert!(ran.stderr.contains(why), "{args}: {}", ran.stderr);
        assert!(ran.stderr.contains("  fix: "), "{args}: {}", ran.stderr);
        assert!(!ran.stderr.contains("populat"), "{args}: {}", ran.stderr);
    }
}

#[test]
fn a_signal_ends_a_guest_that_goes_on_for_ever() {
    if !require_kvm() {
        return;
    }
    let files = Files::new();
    let code = [print("begun"), FOREVER.to_vec()].concat();
    let serial = files.path("serial");
    let args = format!(
        "{} --cpus 2 --serial {}",
        files.kernel(&code),
        serial.display()
    );
    let running = Running::start(prezero_run(&args));
    while fs::read_to_string(&serial).unwrap_or_default() != "begun" {
        std::thread::sleep(Duration::from_millis(5));
    }
    sys::kill(running.pid(), libc::SIGTERM);
    let ran = running.finish_within(Duration::from_secs(30));
    assert_eq!(ran.status.code(), Some(6), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("The guest was cancelled"),
        "{}",
        ran.stderr
    );
}
