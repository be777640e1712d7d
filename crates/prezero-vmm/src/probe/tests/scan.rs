//! What the guest finds.

use super::*;

#[test]
fn finds_nothing_in_zero_memory() {
    let Some(kvm) = kvm() else { return };
    alone(|| {
        for cpus in [1, 2, 3] {
            let ram = [LOW, BELOW_HOLE, ABOVE_HOLE];
            let report = Machine::verifying(&kvm, cpus, &ram)
                .run(&patient())
                .unwrap();
            assert_eq!(report.scanned_bytes, ram.iter().map(|r| r.1).sum::<u64>());
            assert_eq!((report.nonzero_bytes, report.first_nonzero_gpa), (0, None));
            assert!(report.scan_time > Duration::ZERO);
        }
    });
}

#[test]
fn finds_one_byte_wherever_it_is() {
    let Some(kvm) = kvm() else { return };
    alone(|| {
        let ram = [LOW, BELOW_HOLE, ABOVE_HOLE];
        // First and last byte of each range, all byte positions of a word, and the edges of a stretch.
        let stretch = u64::from(code::STRETCH_BYTES);
        let ends = ram.iter().flat_map(|&(gpa, len)| [gpa, gpa + len - 1]);
        let inside = (0..8).map(|i| 5 * MIB + 1000 + 9 * i);
        for (n, gpa) in ends
            .chain(inside)
            .chain([stretch - 1, stretch, 4 * GIB + stretch])
            .enumerate()
        {
            let machine = Machine::verifying(&kvm, n as u32 % 3 + 1, &ram);
            machine.plant(gpa, if n % 2 == 0 { 1 } else { 0x80 });
            let report = machine.run(&patient()).unwrap();
            assert_eq!(
                (report.nonzero_bytes, report.first_nonzero_gpa),
                (1, Some(gpa)),
                "planted at {gpa:#x}"
            );
        }
    });
}

#[test]
fn counts_every_byte_and_reports_the_lowest() {
    let Some(kvm) = kvm() else { return };
    alone(|| {
        for cpus in [1, 3] {
            let machine = Machine::verifying(&kvm, cpus, &[LOW, ABOVE_HOLE]);
            // Every byte value, so that the count is exact for each; zero is among them.
            let all: Vec<u8> = (0..=255).collect();
            machine
                .mem
                .write_slice(&all, GuestAddress(4 * GIB + 77))
                .unwrap();
            machine
                .mem
                .write_slice(&[0xff; 8192], GuestAddress(4 * GIB + 16 * MIB))
                .unwrap();
            // Two in one word, so that the first byte is told from the first word.
            machine.plant(23 * MIB + 5, 0x10);
            machine.plant(23 * MIB + 6, 0x10);
            let report = machine.run(&patient()).unwrap();
            assert_eq!(report.nonzero_bytes, 255 + 8192 + 2);
            assert_eq!(report.first_nonzero_gpa, Some(23 * MIB + 5));
        }
    });
}

#[test]
fn finds_a_byte_with_page_tables_of_2_mib_entries() {
    let Some(kvm) = kvm() else { return };
    alone(|| {
        let facts = KvmFacts {
            gib_pages: false,
            ..kvm.facts()
        };
        let request = ProbeRequest {
            cpus: 2,
            verify: true,
            ram: vec![LOW, BELOW_HOLE, ABOVE_HOLE],
        };
        let small = Machine::new(&kvm, facts, request.clone());
        small.plant(BELOW_HOLE.0 + 4096, 9);
        let report = small.run(&patient()).unwrap();
        assert_eq!(
            (report.nonzero_bytes, report.first_nonzero_gpa),
            (1, Some(BELOW_HOLE.0 + 4096))
        );
        if kvm.facts().gib_pages {
            assert!(
                Probe::slot_len(&request, &facts).unwrap()
                    > Probe::slot_len(&request, &kvm.facts()).unwrap()
            );
        } else {
            println!("skipped: 1 GiB page table entries");
        }
    });
}

#[test]
fn the_guest_does_not_change_ram() {
    let Some(kvm) = kvm() else { return };
    alone(|| {
        let machine = Machine::verifying(&kvm, 2, &[LOW]);
        for i in 0..1000 {
            machine.plant(i * 7919, (i % 251) as u8);
        }
        let copy = || {
            let mut bytes = vec![0; LOW.1 as usize];
            machine.mem.read_slice(&mut bytes, GuestAddress(0)).unwrap();
            bytes
        };
        let before = copy();
        machine.run(&patient()).unwrap();
        assert!(before == copy());
    });
}

#[test]
fn a_guest_that_writes_to_ram_faults() {
    let Some(kvm) = kvm() else { return };
    // mov byte ptr [0x5000], al
    let code = [0x88, 0x04, 0x25, 0x00, 0x50, 0x00, 0x00];
    let machine = Machine::verifying(&kvm, 1, &[LOW]);
    let error = alone(|| machine.run_code(&code, &patient()).unwrap_err());
    assert!(matches!(error, GuestError::Shutdown { cpu: 0 }), "{error}");
    assert_eq!(machine.mem.read_obj::<u8>(GuestAddress(0x5000)).unwrap(), 0);
}

#[test]
fn without_verify_it_is_alive_and_reads_nothing() {
    let Some(kvm) = kvm() else { return };
    alone(|| {
        let before = Instant::now();
        let request = ProbeRequest {
            cpus: 2,
            verify: false,
            ram: vec![LOW],
        };
        let machine = Machine::new(&kvm, kvm.facts(), request);
        machine.plant(0, 1);
        let report = machine.run(&patient()).unwrap();
        assert!(report.alive_at > before && report.alive_at < Instant::now());
        assert_eq!((report.scanned_bytes, report.nonzero_bytes), (0, 0));
        assert_eq!(report.scan_time, Duration::ZERO);
    });
}

#[test]
fn progress_grows_and_ends_at_the_total() {
    let Some(kvm) = kvm() else { return };
    alone(|| {
        let last = AtomicU64::new(0);
        let on_progress = |scanned| assert!(last.swap(scanned, Ordering::Relaxed) < scanned);
        let machine = Machine::verifying(&kvm, 2, &[LOW, ABOVE_HOLE]);
        machine
            .run(&ProbeControl {
                on_progress: Some(&on_progress),
                ..patient()
            })
            .unwrap();
        assert_eq!(last.into_inner(), LOW.1 + ABOVE_HOLE.1);
    });
}

/// `cargo test --release -p prezero-vmm -- --ignored --nocapture scan_speed`
#[test]
#[ignore = "measures; needs a quiet host and 1 GiB"]
fn scan_speed() {
    let Some(kvm) = kvm() else { return };
    for (dirty, gib_pages) in [(false, true), (false, false), (true, false)] {
        if gib_pages && !kvm.facts().gib_pages {
            println!("skipped: 1 GiB page table entries");
            continue;
        }
        for cpus in [1, 2] {
            let facts = KvmFacts {
                gib_pages,
                ..kvm.facts()
            };
            let ram = vec![(4 * GIB, GIB)];
            let machine = Machine::new(
                &kvm,
                facts,
                ProbeRequest {
                    cpus,
                    verify: true,
                    ram,
                },
            );
            let hva = machine.mem.get_host_address(GuestAddress(4 * GIB)).unwrap();
            // SAFETY: the range is one mapping of the machine's; the calls change how it is backed, not what is in it.
            unsafe {
                assert_eq!(
                    libc::madvise(hva.cast(), GIB as usize, libc::MADV_HUGEPAGE),
                    0
                );
                assert_eq!(
                    libc::madvise(hva.cast(), GIB as usize, libc::MADV_POPULATE_WRITE),
                    0
                );
            }
            if dirty {
                let mib = vec![0xa5; MIB as usize];
                (0..1024).for_each(|i| {
                    machine
                        .mem
                        .write_slice(&mib, GuestAddress(4 * GIB + i * MIB))
                        .unwrap()
                });
            }
            let report = machine.run(&patient()).unwrap();
            assert_eq!(report.nonzero_bytes, if dirty { GIB } else { 0 });
            let speed = GIB as f64 / report.scan_time.as_secs_f64() / 1e9;
            println!(
                "{cpus} vCPUs, dirty {dirty}, 1 GiB entries {gib_pages}: {speed:.1} GB/s, {:?}",
                report.scan_time
            );
        }
    }
}
