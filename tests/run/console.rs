//! Consoles of guests that nobody reads, that go to a file, or that are waited for; and what is refused of them.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use prezero_testkit::kernel::{FOREVER, print, write_port};
use prezero_testkit::require_kvm;

use crate::command::{Running, error_of, prezero_run, run};
use crate::linux::Files;
use crate::sys;

const PATIENCE: Duration = Duration::from_secs(30);

#[track_caller]
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "not yet: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Writes for ever: `mov edx, 0x3f8; mov al, '-'; out dx, al; jmp` to the last.
fn talker() -> Vec<u8> {
    [&write_port(0x3f8, b'-')[..], &[0xeb, 0xfd]].concat()
}

/// Whether a thread of a process waits in write(2) (proc_pid_syscall(5)).
fn writes(pid: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten();
    let mut calls = tasks.flatten().map(|task| {
        let call = fs::read_to_string(task.path().join("syscall"));
        call.unwrap_or_default()
    });
    let write = format!("{} ", libc::SYS_write);
    calls.any(|call| call.starts_with(&write))
}

#[test]
fn a_signal_ends_a_run_whose_console_nobody_reads() {
    if !require_kvm() {
        return;
    }
    let files = Files::new();
    let kernel = files.kernel(&talker());
    // With --json the console is stderr, where errors and warnings go, too.
    for json in [false, true] {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        let filling = vec![b'x'; sys::pipe_capacity(&writer)];
        writer.write_all(&filling).expect("it fits");
        let json_or_not = if json { "--json" } else { "" };
        let mut command = prezero_run(&format!("{kernel} {json_or_not}"));
        command.stdin(Stdio::null());
        match json {
            true => command.stderr(writer).stdout(Stdio::piped()),
            false => command.stdout(writer).stderr(Stdio::piped()),
        };
        let mut child = command.spawn().expect("it starts");
        drop(command);
        until("the console is written to", || writes(child.id()));
        sys::kill(child.id(), libc::SIGTERM);
        let start = Instant::now();
        let soon = Duration::from_secs(10);
        while child.try_wait().expect("a child").is_none() && start.elapsed() < soon {
            thread::sleep(Duration::from_millis(5));
        }
        // It has no effect on one that has ended, as it should.
        let _ = child.kill();
        let output = child.wait_with_output().expect("its output");
        assert_eq!(output.status.code(), Some(6));
        let lost = "bytes of the guest's console are lost";
        if !json {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(said.contains(lost), "{said}");
        }
        drop(reader);
    }
}

#[test]
fn what_is_known_of_a_cancelled_guest_is_reported() {
    if !require_kvm() {
        return;
    }
    let files = Files::new();
    let serial = files.path("serial");
    let kernel = files.kernel(&[print("begun"), FOREVER.to_vec()].concat());
    let args = format!("{kernel} --cpus 2 --json --serial {}", serial.display());
    let running = Running::start(prezero_run(&args));
    until("it runs", || {
        fs::read_to_string(&serial).unwrap_or_default() == "begun"
    });
    sys::kill(running.pid(), libc::SIGTERM);
    let ran = running.finish_within(PATIENCE).exits_with(6);
    let report = ran.json();
    assert_eq!(error_of(&report).0, "stopped");
    let boot = &report["boot"];
    assert!(report["first_instruction_ns"].is_u64(), "{report:#}");
    assert!(boot["first_serial_ns"].is_u64() && boot["ended_ns"].is_u64());
    let vcpus = boot["vcpus"].as_array().expect("vCPUs");
    assert_eq!(vcpus.len(), 2);
    for vcpu in vcpus {
        // Nobody asked for it, also where the host has one CPU.
        assert_eq!(vcpu["pinned"], false);
        assert!(!vcpu["host_cpus"].as_array().expect("CPUs").is_empty());
    }
}

#[test]
fn a_refused_run_does_not_touch_the_console_file() {
    let files = Files::new();
    let kernel = files.kernel(&FOREVER);
    let serial = files.path("serial");
    fs::write(&serial, "precious").expect("written");
    let absent = files.path("absent");
    let long = "x".repeat(2049);
    for (options, code) in [
        ("--cpus 300".to_owned(), 2),
        ("--cpus 256 --reserve".to_owned(), 2),
        ("--cpus 0".to_owned(), 2),
        (format!("--until {long}"), 2),
        ("--initramfs /nonexistent".to_owned(), 2),
        ("--cpu-affinity 8000".to_owned(), 4),
    ] {
        if options.contains("cpu") && !require_kvm() {
            continue;
        }
        for file in [&serial, &absent] {
            let args = format!("{kernel} --json {options} --serial {}", file.display());
            let ran = run(&args).exits_with(code);
            let report = ran.json();
            assert!(error_of(&report).2.is_some(), "{report:#}");
            assert!(report["grown"].is_null(), "{report:#}");
            let phases = report["phases"].as_array().expect("phases");
            assert!(phases.iter().all(|phase| phase["name"] != "reserve"));
        }
        assert_eq!(fs::read_to_string(&serial).expect("there"), "precious");
        assert!(!absent.exists(), "{options}");
    }
}

#[test]
fn the_console_is_not_one_of_the_guests_files_and_not_another_runs() {
    let files = Files::new();
    let kernel = files.kernel(&[print("begun"), FOREVER.to_vec()].concat());
    let image = files.path("kernel");
    let initramfs = files.path("initramfs");
    fs::write(&initramfs, "cpio").expect("written");
    let link = files.path("link");
    symlink(&initramfs, &link).expect("a link");
    let before = fs::read(&image).expect("the kernel");
    for file in [&image, &initramfs, &link] {
        let ran = run(&format!(
            "{kernel} --initramfs {} --serial {}",
            initramfs.display(),
            file.display()
        ))
        .exits_with(2);
        let (error, _) = ran.error_and_fix();
        assert!(error.contains("which the guest is started from"), "{error}");
    }
    assert_eq!(fs::read(&image).expect("the kernel"), before);
    assert_eq!(fs::read(&initramfs).expect("still there"), b"cpio");
    if !require_kvm() {
        return;
    }
    let serial = files.path("serial");
    let args = format!("{kernel} --serial {}", serial.display());
    let running = Running::start(prezero_run(&args));
    let begun = || fs::read_to_string(&serial).unwrap_or_default() == "begun";
    until("it runs", begun);
    let ran = run(&args).exits_with(3);
    assert!(ran.stderr.contains("console of another run"), "{ran:#?}");
    assert!(begun(), "the first one's console is whole");
    sys::kill(running.pid(), libc::SIGTERM);
    running.finish_within(PATIENCE).exits_with(6);
    // The next run begins it anew.
    let mut kept = fs::File::options()
        .append(true)
        .open(&serial)
        .expect("a file");
    kept.write_all(b" and more").expect("written");
    drop(kept);
    let off = files.kernel(&[print("hi"), write_port(0x600, 0x34)].concat());
    run(&format!("{off} --serial {}", serial.display())).exits_with(0);
    assert_eq!(fs::read_to_string(&serial).expect("a file"), "hi");
}

#[test]
fn more_vcpus_than_cpus_are_a_warning() {
    if !require_kvm() {
        return;
    }
    let files = Files::new();
    let kernel = files.kernel(&write_port(0x600, 0x34));
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    // The host of tests is small enough for so many.
    let many = (cpus + 1).min(255);
    let ran = run(&format!("{kernel} --cpus {many}")).exits_with(0);
    assert_eq!(
        ran.stderr.contains("vCPUs share the"),
        many > cpus,
        "{ran:#?}"
    );
}
