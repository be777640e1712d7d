//! How guests end, and what is known of them then.

use std::cell::Cell;
use std::io::{Write, pipe};
use std::os::fd::AsFd;
use std::thread;

use super::*;

/// The end of a guest of one vCPU with this code, and what it wrote.
fn end_of(kvm: &Kvm, code: &[u8], until: Option<&str>) -> (Vec<u8>, LinuxReport) {
    let run = LinuxRun {
        until: until.map(|text| Until::new(text).expect("it can be found")),
        ..Default::default()
    };
    let (written, report) = Guest::new(kvm, 1, code).run(&run, &patient());
    (written, report.expect("it ended"))
}

#[track_caller]
fn is_ended(report: &LinuxReport) -> LinuxEnd {
    *report.end.as_ref().expect("it ended by itself")
}

/// Whatever ended it, what it did by then is known.
#[track_caller]
fn is_stopped(ended: Result<LinuxReport, GuestError>) -> GuestError {
    let report = ended.expect("it ran");
    assert!(report.started.is_some_and(|at| at < report.ended));
    assert!(report.vcpus.iter().all(|(_, cpus)| !cpus.is_empty()));
    report.end.expect_err("it was stopped")
}

#[test]
fn ends_are_told_apart() {
    let Some(kvm) = kvm() else { return };
    // mov word [0x472], 0x1234
    let warm = [0x66, 0xc7, 0x05, 0x72, 0x04, 0, 0, 0x34, 0x12];
    let marked = [&warm[..], &out(0x64, 0xfe)].concat();
    for (code, end) in [
        (out(0x600, 0x34), LinuxEnd::PowerOff),
        (out(0x64, 0xfe), LinuxEnd::Reset),
        (out(0x602, 1), LinuxEnd::Reset),
        (marked, LinuxEnd::WarmReset),
        (out(0x505, 1), LinuxEnd::Panic),
        (out(0xf4, 3), LinuxEnd::DebugExit(3)),
        (FAULT.to_vec(), LinuxEnd::TripleFault { cpu: 0 }),
    ] {
        let code = [print("hello"), code, FOREVER.to_vec()].concat();
        let (written, report) = end_of(&kvm, &code, None);
        assert_eq!((&written[..], is_ended(&report)), (&b"hello"[..], end));
        assert!(report.started < report.first_byte);
        assert!(report.first_byte <= Some(report.ended));
        assert_eq!((report.user_space, report.until), (None, None));
    }
}

#[test]
fn what_the_kernel_said_before_tells_a_panic() {
    let Some(kvm) = kvm() else { return };
    let said = "[    1.5] Kernel panic - not syncing: VFS\n";
    for (said, code, end) in [
        (said, out(0x64, 0xfe), LinuxEnd::Panic),
        (said, out(0x602, 1), LinuxEnd::Panic),
        // `reboot=t`
        (said, FAULT.to_vec(), LinuxEnd::Panic),
        // No kernel that panics powers off: a program wrote that.
        (said, out(0x600, 0x34), LinuxEnd::PowerOff),
        (
            "test: Kernel panic - not syncing\n",
            out(0x64, 0xfe),
            LinuxEnd::Reset,
        ),
    ] {
        let code = [print(said), code, FOREVER.to_vec()].concat();
        let (written, report) = end_of(&kvm, &code, None);
        assert_eq!(
            (&written[..], is_ended(&report)),
            (said.as_bytes(), end),
            "{said}"
        );
    }
}

#[test]
fn the_text_that_is_looked_for_ends_the_machine() {
    let Some(kvm) = kvm() else { return };
    let code = [
        print("Run /init as init process\nlogin: "),
        FOREVER.to_vec(),
    ]
    .concat();
    let (written, report) = end_of(&kvm, &code, Some("login:"));
    assert_eq!(is_ended(&report), LinuxEnd::Until);
    assert_eq!(written, b"Run /init as init process\nlogin:");
    assert!(report.user_space > report.first_byte && report.until > report.user_space);
}

/// The start info is where RBX says, its pointers lead to the command line and to the tables.
#[test]
fn a_guest_finds_what_it_is_told() {
    let Some(kvm) = kvm() else { return };
    let read = [
        &[0x8b, 0x73, 0x18][..],   // mov esi, [rbx + 24]: command line
        &[0xba, 0xf8, 0x03, 0, 0], // mov edx, 0x3f8
        &[0xb9, 13, 0, 0, 0],      // mov ecx, 13
        &[0xf3, 0x6e],             // rep outsb
        &[0x8b, 0x73, 0x20],       // mov esi, [rbx + 32]: RSDP
        &[0xb9, 8, 0, 0, 0],       // mov ecx, 8
        &[0xf3, 0x6e],             // rep outsb
    ]
    .concat();
    let code = [read, out(0x600, 0x34)].concat();
    let (written, report) = end_of(&kvm, &code, None);
    assert_eq!(is_ended(&report), LinuxEnd::PowerOff);
    assert_eq!(String::from_utf8_lossy(&written), "console=ttyS0RSD PTR ");
}

#[test]
fn input_is_read_by_the_guest_and_ctrl_a_x_ends_it() {
    let Some(kvm) = kvm() else { return };
    // Waits for a byte, writes it back, and so on.
    let echo = [
        &[0xba, 0xfd, 0x03, 0, 0][..], // mov edx, 0x3fd
        &[0xec],                       // in al, dx
        &[0xa8, 1],                    // test al, 1
        &[0x74, 0xfb],                 // jz to in
        &[0xba, 0xf8, 0x03, 0, 0],     // mov edx, 0x3f8
        &[0xec, 0xee],                 // in al, dx; out dx, al
        &[0xeb, 0xed],                 // jmp to the beginning
    ]
    .concat();
    let (read, mut write) = pipe().expect("a pipe");
    let control = LinuxControl {
        input: Some(Input {
            fd: read.as_fd(),
            escape: true,
        }),
        ..patient()
    };
    // Ctrl-A twice is one for the guest, and the machine is to end once everything has come back.
    let typed = [&[b'-'; 1000][..], b"ab\x01\x01"].concat();
    write.write_all(&typed).expect("written");
    let echoed = Cell::new(0);
    let on_output = |bytes: &[u8]| {
        echoed.set(echoed.get() + bytes.len());
        if echoed.get() == 1003 {
            write
                .try_clone()
                .and_then(|mut write| write.write_all(b"\x01x"))
                .expect("typed");
        }
    };
    let control = LinuxControl {
        on_output: &on_output,
        ..control
    };
    let (written, ended) = Guest::new(&kvm, 1, &echo).run(&LinuxRun::default(), &control);
    assert!(matches!(is_stopped(ended), GuestError::Cancelled));
    assert_eq!(written, [&[b'-'; 1000][..], b"ab\x01"].concat());
}

/// A guest that takes nothing can be left, although its keys have nowhere to go.
#[test]
fn ctrl_a_x_ends_a_guest_that_does_not_listen() {
    let Some(kvm) = kvm() else { return };
    let (read, mut write) = pipe().expect("a pipe");
    let control = LinuxControl {
        input: Some(Input {
            fd: read.as_fd(),
            escape: true,
        }),
        ..patient()
    };
    write.write_all(&[b'-'; 9000]).expect("written");
    let on_output = |_: &[u8]| {
        let typed = write
            .try_clone()
            .and_then(|mut write| write.write_all(b"\x01x"));
        typed.expect("typed");
    };
    let control = LinuxControl {
        on_output: &on_output,
        ..control
    };
    let code = [print("!"), FOREVER.to_vec()].concat();
    let (_, ended) = Guest::new(&kvm, 1, &code).run(&LinuxRun::default(), &control);
    assert!(matches!(is_stopped(ended), GuestError::Cancelled));
}

#[test]
fn a_guest_that_goes_on_for_ever_is_stopped() {
    let Some(kvm) = kvm() else { return };
    // `hlt` blocks in KVM until an interrupt comes, which is never.
    for (cpus, code) in [(1, FOREVER), (3, FOREVER), (2, [0xf4, 0xf4])] {
        let cancel = AtomicBool::new(false);
        let control = LinuxControl {
            cancel: &cancel,
            ..patient()
        };
        let guest = Guest::new(&kvm, cpus, &code);
        let ended = thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(100));
                cancel.store(true, std::sync::atomic::Ordering::Relaxed);
            });
            guest.run(&LinuxRun::default(), &control).1
        });
        assert!(matches!(is_stopped(ended), GuestError::Cancelled));
    }
    let control = LinuxControl {
        deadline: Some(Instant::now() + Duration::from_millis(50)),
        ..patient()
    };
    let (_, ended) = Guest::new(&kvm, 1, &FOREVER).run(&LinuxRun::default(), &control);
    assert!(matches!(is_stopped(ended), GuestError::LinuxDeadline));
}

#[test]
fn vcpus_are_kept_to_the_cpus_they_are_given() {
    let Some(kvm) = kvm() else { return };
    let all = crate::sys::affinity().expect("affinity");
    let one: IdSet = all.first().into_iter().collect();
    let run = LinuxRun {
        affinity: vec![one.clone()],
        until: None,
    };
    let (_, report) = Guest::new(&kvm, 2, &out(0x600, 0x34)).run(&run, &patient());
    let report = report.expect("it ended");
    assert_eq!(report.vcpus, [(0, one), (1, all)]);
}

#[test]
fn what_is_not_registered_or_loaded_does_not_run() {
    let Some(kvm) = kvm() else { return };
    let guest = Guest::new(&kvm, 1, &FOREVER);
    guest.vm.remove_slot(1).expect("removed");
    let (_, ended) = guest.run(&LinuxRun::default(), &patient());
    assert!(
        matches!(ended, Err(GuestError::NotRegistered { gpa, .. }) if gpa == 8 * MIB),
        "{ended:?}"
    );
}
