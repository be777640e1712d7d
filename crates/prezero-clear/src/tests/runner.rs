//! Every method through every alignment, length, chunk and place of use.

use std::collections::BTreeSet;

use super::memory::Memory;
use crate::clearing::PAGE;
use crate::{Clearing, GRANULE, Method};

const LINES: usize = PAGE / GRANULE;

/// Lengths around the sizes that loops are unrolled to and the sizes of one and two pages, in bytes.
fn lengths() -> impl Iterator<Item = usize> + Clone {
    let lines = [1, 2, 3, 4, 5, 7, 8, 9, 15, 17];
    let pages = [LINES, 2 * LINES]
        .into_iter()
        .flat_map(|page| page - 1..=page + 1);
    lines.into_iter().chain(pages).map(|lines| lines * GRANULE)
}

/// All starts within two pages, in bytes.
fn starts() -> impl Iterator<Item = usize> + Clone {
    (0..2 * LINES).map(|line| line * GRANULE)
}

/// Runs `clear`, which takes a pointer and a length, on all starts and lengths; returns how many lines that were.
#[cfg(target_arch = "x86_64")]
pub(crate) fn check_loop(
    name: &str,
    starts: impl Iterator<Item = usize>,
    mut clear: impl FnMut(*mut u8, usize),
) -> usize {
    let mut memory = Memory::new(4 * PAGE + GRANULE);
    let mut lines = 0;
    for start in starts {
        for len in lengths() {
            memory.dirty();
            clear(memory.at(start), len);
            crate::arch::fence();
            memory.assert_cleared(&[(start, len)], || format!("{name}: {len} at {start}"));
            lines += len / GRANULE;
        }
    }
    lines
}

/// Fails unless clearing `len` bytes at `start` in all chunks, with `used` named as used next, clears just them.
fn check_span(
    memory: &mut Memory,
    method: Method,
    (start, len): (usize, usize),
    used: Option<usize>,
) {
    let whole = Clearing::new(method);
    let chunks = [PAGE, 2 * PAGE].map(|chunk| whole.in_chunks(chunk).expect("whole pages"));
    for how in chunks.into_iter().chain([whole]) {
        memory.dirty();
        let base = memory.addr();
        let mut span = memory.span(start, len);
        if let Some(used) = used {
            span = span.used_next(base.wrapping_add(used));
        }
        let receipt = span.clear(&how).fence();
        assert_eq!((receipt.addr(), receipt.len()), (base + start, len));
        memory.assert_cleared(&[(start, len)], || {
            format!(
                "{method}: {len} at {start}, {used:?} used next, chunks {:?}",
                how.chunk()
            )
        });
    }
}

#[test]
fn every_method_clears_every_alignment_and_length_and_nothing_else() {
    let mut memory = Memory::new(4 * PAGE + GRANULE);
    let mut ran = Vec::new();
    for method in Method::available() {
        for start in starts() {
            for len in lengths() {
                check_span(&mut memory, method, (start, len), None);
            }
        }
        ran.push(method.name());
    }
    println!("ran: {}; this CPU lacks: {}", ran.join(", "), lacking(&ran));
}

#[test]
fn every_method_clears_around_what_is_used_next() {
    let mut memory = Memory::new(18 * PAGE);
    let starts = [0, GRANULE, PAGE - GRANULE, PAGE];
    let lengths = [
        GRANULE,
        5 * PAGE,
        12 * PAGE - GRANULE,
        12 * PAGE,
        12 * PAGE + GRANULE,
    ];
    for method in Method::available() {
        for start in starts {
            for len in lengths {
                let end = start + len;
                let pages = (start..end).step_by(PAGE).map(|at| at + PAGE / 2 + 7);
                let edges = [
                    start.wrapping_sub(1),
                    start,
                    start + 1,
                    end - 1,
                    end,
                    usize::MAX / 2,
                ];
                for used in edges.into_iter().chain(pages) {
                    check_span(&mut memory, method, (start, len), Some(used));
                }
            }
        }
    }
}

#[test]
fn every_method_clears_megabytes() {
    const MIB: usize = 1 << 20;
    let mut memory = Memory::new(3 * MIB + 2 * PAGE);
    for method in Method::available() {
        for (start, len) in [
            (0, 2 * MIB),
            (GRANULE, MIB - GRANULE),
            (PAGE, 3 * MIB + GRANULE),
        ] {
            check_span(&mut memory, method, (start, len), None);
            check_span(&mut memory, method, (start, len), Some(start + MIB / 2));
        }
    }
}

#[test]
fn fills_with_the_byte_asked_for() {
    let mut memory = Memory::new(PAGE);
    let _ = memory.span(GRANULE, PAGE - 2 * GRANULE).stain(0);
    memory.assert_cleared(&[(GRANULE, PAGE - 2 * GRANULE)], || "stain".to_owned());
    let span = memory.span(0, PAGE).stain(0xa5);
    let receipt = span.clear(&Clearing::new(Method::cached())).fence();
    assert_eq!(receipt.len(), PAGE);
    memory.assert_cleared(&[(0, PAGE)], || "stain and clear".to_owned());
    let _ = memory.span(0, PAGE).stain(0xa5);
    // SAFETY: the page is the memory's own, and nothing else uses it.
    assert_eq!(unsafe { memory.at(PAGE - 1).read() }, 0xa5);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn cached_stores_of_a_cpu_without_avx2_clear_the_same() {
    check_loop("sse2", starts(), |ptr, len| {
        // SAFETY: the runner gives memory of its own.
        unsafe { crate::arch::Cached::narrow().clear(ptr, len) }
    });
}

/// The names of the methods that did not run.
fn lacking(ran: &[&str]) -> String {
    let ran: BTreeSet<&str> = ran.iter().copied().collect();
    let missing: Vec<&str> = Method::NAMES
        .iter()
        .copied()
        .filter(|name| !ran.contains(name))
        .collect();
    if missing.is_empty() {
        "nothing".to_owned()
    } else {
        missing.join(", ")
    }
}
