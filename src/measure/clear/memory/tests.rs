use prezero_clear::Method;
use prezero_memory::{Cancel, Hugepages};

use super::*;
use crate::measure::clear::By;

fn ordinary(threads: &[usize], control: Control<'static>) -> Memory<'static> {
    let spec = MemorySpec {
        hugepages: Hugepages::Off,
        ..MemorySpec::new(8 << 20)
    };
    Memory::take(&Host::probe(), spec, threads, control, &|_| ()).expect("8 MiB")
}

/// Whether every byte of it is `byte`.
fn is_all(ram: &mut GuestRam<Populated>, byte: u8) -> bool {
    let wanted = u64::from_ne_bytes([byte; 8]);
    sys::spans(ram).into_iter().all(|span| {
        let words = std::ptr::with_exposed_provenance::<u64>(span.addr());
        // SAFETY: the span is mapped, populated and whole cache lines, and nobody else uses it.
        (0..span.len() / 8).all(|n| unsafe { words.add(n).read_volatile() } == wanted)
    })
}

#[test]
fn a_pass_begins_with_dirty_memory_and_ends_with_zeros() {
    let mut memory = ordinary(&[1], Control::default());
    for method in Method::available() {
        let mut dirty = memory.dirty().expect("not cancelled");
        assert!(is_all(&mut dirty, STAIN));
        let row = Row {
            method: By::Name(method),
            chunk: Some(4096),
            threads: 1,
        };
        let took = memory.clear(dirty, &row).expect("not cancelled");
        assert!(took > Duration::ZERO);
        let cleared = memory.ram.as_mut().expect("it did not fail");
        assert!(is_all(cleared, 0), "{method}");
    }
}

#[test]
fn there_are_threads_for_each_number_that_is_asked_for() {
    let memory = ordinary(&[1, 3, 3], Control::default());
    assert_eq!((memory.threads(1), memory.threads(3)), (1, 3));
    let counts: Vec<usize> = memory.crews.iter().map(Workers::count).collect();
    assert_eq!(counts[0], memory.all_threads());
    assert!(counts.contains(&1) && counts.contains(&3), "{counts:?}");
}

#[test]
fn after_a_cancel_every_measurement_ends() {
    static CANCEL: std::sync::LazyLock<Cancel> = std::sync::LazyLock::new(Cancel::new);
    let control = Control {
        cancel: Some(&CANCEL),
        ..Control::default()
    };
    let mut memory = ordinary(&[1], control);
    CANCEL.cancel();
    let failure = memory.piece().expect_err("cancelled");
    assert_eq!(failure.class, Class::Stopped);
    assert_eq!(memory.dirty().expect_err("cancelled").class, Class::Stopped);
}

#[test]
fn a_measurement_of_one_thread_is_kept_on_a_cpu_of_the_memory() {
    let memory = ordinary(&[1], Control::default());
    let cpus: Vec<Option<u32>> = memory.plan.iter().map(WorkerPlan::cpu).collect();
    let kept = memory.keep_this_thread();
    let known = Host::probe().topology_known;
    assert_eq!(kept.is_pinned(), known, "{cpus:?}");
    if known {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("procfs");
        let list = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let cpu = list.and_then(|list| list.trim().parse().ok());
        assert!(cpu.is_some() && cpus.contains(&cpu), "{list:?}: {cpus:?}");
    }
}

#[test]
fn an_empty_pass_clears_nothing() {
    let mut memory = ordinary(&[1], Control::default());
    let dirty = memory.dirty().expect("not cancelled");
    let dirty = memory.ram.insert(dirty);
    assert!(is_all(dirty, STAIN));
    let row = Row {
        method: By::Name(Method::cached()),
        chunk: None,
        threads: memory.all_threads(),
    };
    let took = memory.empty_pass(&row).expect("not cancelled");
    assert!(took > Duration::ZERO);
    assert!(is_all(memory.ram.as_mut().expect("there"), STAIN));
}

#[test]
fn the_chunk_of_a_row_is_that_of_its_pass() {
    let mut memory = ordinary(&[1], Control::default());
    let row = Row {
        method: By::Name(Method::cached()),
        chunk: Some(4096 + 64),
        threads: 1,
    };
    let failure = memory
        .pass(&row)
        .map(drop)
        .expect_err("no such chunk can be");
    assert!(failure.message.contains("4160"), "{}", failure.message);
}
