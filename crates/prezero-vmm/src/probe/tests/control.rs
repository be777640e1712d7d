//! How a guest is stopped, and what happens when it misbehaves.

use super::*;

#[test]
fn a_mute_guest_is_silent() {
    let Some(kvm) = kvm() else { return };
    alone(|| {
        let started = Instant::now();
        let machine = Machine::verifying(&kvm, 3, &[LOW]);
        let silence = Duration::from_millis(300);
        let error = machine
            .run_code(
                MUTE,
                &ProbeControl {
                    silence,
                    deadline: Some(started + Duration::from_secs(5)),
                    ..patient()
                },
            )
            .unwrap_err();
        assert!(
            matches!(error, GuestError::Silent { seconds, .. } if seconds >= 0.3),
            "{error}"
        );
        assert!(started.elapsed() >= silence && started.elapsed() < Duration::from_secs(3));
        assert_nothing_left();
    });
}

#[test]
fn cancel_stops_a_running_guest_soon() {
    let Some(kvm) = kvm() else { return };
    alone(|| {
        let machine = Machine::verifying(&kvm, 2, &[LOW]);
        let cancel = AtomicBool::new(false);
        thread::scope(|scope| {
            let cancelled = scope.spawn(|| {
                wait_for_vcpus(2);
                thread::sleep(Duration::from_millis(50));
                cancel.store(true, Ordering::Relaxed);
                Instant::now()
            });
            let error = machine
                .run_code(
                    MUTE,
                    &ProbeControl {
                        cancel: &cancel,
                        ..patient()
                    },
                )
                .unwrap_err();
            let took = cancelled.join().unwrap().elapsed();
            assert!(matches!(error, GuestError::Cancelled), "{error}");
            // The aim is 50 ms; the rest is for a busy host.
            assert!(took < Duration::from_millis(500), "{took:?}");
        });
        assert_nothing_left();
    });
}

#[test]
fn a_deadline_stops_a_running_guest() {
    let Some(kvm) = kvm() else { return };
    alone(|| {
        let machine = Machine::verifying(&kvm, 1, &[LOW]);
        let deadline = Some(Instant::now() + Duration::from_millis(100));
        let error = machine
            .run_code(
                MUTE,
                &ProbeControl {
                    deadline,
                    ..patient()
                },
            )
            .unwrap_err();
        assert!(
            matches!(error, GuestError::Deadline { scanned: 0, total } if total == LOW.1),
            "{error}"
        );
        assert_nothing_left();
    });
}

extern "C" fn ignore(_: libc::c_int) {}

#[test]
fn signals_from_elsewhere_do_not_end_the_run() {
    let Some(kvm) = kvm() else { return };
    alone(|| {
        let handler = ignore as extern "C" fn(libc::c_int);
        // SAFETY: the handler does nothing, and no other test uses this signal.
        unsafe { libc::signal(libc::SIGUSR2, handler as libc::sighandler_t) };
        let machine = Machine::verifying(&kvm, 2, &[LOW]);
        let cancel = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let vcpus = wait_for_vcpus(2);
                for signal in [libc::SIGUSR2, sys::kick_signal(), libc::SIGUSR2] {
                    for &tid in &vcpus {
                        sys::tgkill(tid, signal).unwrap();
                    }
                    // A kick that stayed pending would make each thread spin without entering the guest.
                    let taken = || vcpus.iter().all(|&tid| signals(tid, "SigPnd") == 0);
                    let patience = Instant::now() + Duration::from_secs(20);
                    while !taken() && Instant::now() < patience {
                        thread::sleep(Duration::from_millis(5));
                    }
                    assert!(taken(), "signal {signal}");
                    thread::sleep(Duration::from_millis(50));
                    assert_eq!(vcpu_threads().len(), 2, "signal {signal}");
                }
                cancel.store(true, Ordering::Relaxed);
            });
            let error = machine
                .run_code(
                    MUTE,
                    &ProbeControl {
                        cancel: &cancel,
                        ..patient()
                    },
                )
                .unwrap_err();
            assert!(matches!(error, GuestError::Cancelled), "{error}");
        });
    });
}

#[test]
fn a_guest_that_lies_about_its_work_is_found_out() {
    let Some(kvm) = kvm() else { return };
    // Says alive and done at once: mov edx, port; out dx, eax.
    let out = |port: u16| [&[0xba][..], &u32::from(port).to_le_bytes(), &[0xef]].concat();
    let code = [out(code::PORT_ALIVE), out(code::PORT_DONE)].concat();
    alone(|| {
        let error = Machine::verifying(&kvm, 1, &[LOW])
            .run_code(&code, &patient())
            .unwrap_err();
        assert!(
            matches!(error, GuestError::Incomplete { scanned: 0, .. }),
            "{error}"
        );
        let error = Machine::verifying(&kvm, 1, &[LOW])
            .run_code(&out(code::PORT_DONE), &patient())
            .unwrap_err();
        assert!(
            matches!(error, GuestError::UnexpectedExit { .. }),
            "{error}"
        );
        let error = Machine::verifying(&kvm, 1, &[LOW])
            .run_code(&[0x0f, 0x0b], &patient())
            .unwrap_err();
        assert!(matches!(error, GuestError::Shutdown { .. }), "{error}");
        assert_nothing_left();
    });
}

#[test]
fn a_machine_runs_one_probe() {
    let Some(kvm) = kvm() else { return };
    alone(|| {
        let machine = Machine::verifying(&kvm, 2, &[LOW]);
        machine.run(&patient()).unwrap();
        assert!(matches!(
            machine.run(&patient()).unwrap_err(),
            GuestError::CreateVcpu { .. }
        ));
        assert_nothing_left();
    });
}

#[test]
fn ram_without_a_slot_is_refused_before_the_guest_runs() {
    let Some(kvm) = kvm() else { return };
    let machine = Machine::verifying(&kvm, 1, &[LOW, ABOVE_HOLE]);
    let slot = machine.vm.slots().last().unwrap().slot;
    machine.vm.remove_slot(slot).unwrap();
    let error = machine.run(&patient()).unwrap_err();
    assert!(
        matches!(error, GuestError::NotRegistered { gpa, .. } if gpa == ABOVE_HOLE.0),
        "{error}"
    );
}
