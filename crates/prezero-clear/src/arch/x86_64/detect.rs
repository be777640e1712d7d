//! What the CPU says about itself where the standard library does not ask.
//!
//! MOVDIR64B and CLZERO use no registers that an operating system would have to save, so CPUID alone decides. A hypervisor
//! that hides the flag is obeyed: the guest may be moved to a CPU without the instruction.

use std::arch::x86_64::{__cpuid_count, CpuidResult};

/// CLZERO clears as many bytes as a line has, and the loop steps by this many.
const LINE: u32 = 64;

/// Leaf 7, sub-leaf 0, ECX bit 28 (Intel SDM vol. 2A, CPUID).
pub(crate) fn has_movdir64b() -> bool {
    leaf(0x7).is_some_and(|features| features.ecx >> 28 & 1 == 1)
}

/// Leaf 8000_0008h, EBX bit 0 (AMD APM vol. 3, appendix E), and the line size that the loop is written for.
pub(crate) fn has_clzero() -> bool {
    match (leaf(0x8000_0008), leaf(0x1)) {
        (Some(extended), Some(basic)) => is_usable_clzero(extended.ebx, basic.ebx),
        _ => false,
    }
}

/// CLZERO, with a line (leaf 1, EBX bits 15 to 8, in units of 8 bytes) of 64 bytes.
///
/// With shorter lines the loop would leave gaps, with longer ones it would clear beyond its end.
fn is_usable_clzero(extended_ebx: u32, basic_ebx: u32) -> bool {
    extended_ebx & 1 == 1 && (basic_ebx >> 8 & 0xff) * 8 == LINE
}

/// A leaf, if the CPU has it: it answers a leaf beyond its last with something else.
fn leaf(number: u32) -> Option<CpuidResult> {
    let last = cpuid(number & 0x8000_0000).eax;
    (number <= last).then(|| cpuid(number))
}

#[allow(unused_unsafe, reason = "safe to call since Rust 1.93")]
fn cpuid(leaf: u32) -> CpuidResult {
    // SAFETY: every x86-64 CPU has CPUID, and it has no effect but its result.
    unsafe { __cpuid_count(leaf, 0) }
}

#[cfg(test)]
mod tests {
    use super::is_usable_clzero;

    #[test]
    fn clzero_is_for_lines_of_64_bytes_only() {
        // Leaf 1 counts in units of 8 bytes, between other facts.
        let line = |bytes: u32| 0x0302_00ff | (bytes / 8) << 8;
        assert!(is_usable_clzero(0x1, line(64)));
        assert!(is_usable_clzero(0xffff_ffff, line(64)));
        assert!(!is_usable_clzero(0x1, line(32)));
        assert!(!is_usable_clzero(0x1, line(128)));
        assert!(!is_usable_clzero(0x1, line(0)));
        assert!(!is_usable_clzero(0xffff_fffe, line(64)));
    }
}
