//! x86-64: the loops, and what a CPU says about their instructions.
//!
//! The uncached ones fall into two kinds. MOVNTI, VMOVNTDQ and MOVDIR64B write *combined* lines: the stores gather in a
//! write-combining buffer, which goes to memory without reading the line first, provided that all of it was written; so every
//! loop writes whole lines, in order. CLZERO claims the line and fills it with zeroes without any data on the way.
//! All are ordered like write-combining memory: weakly, until an SFENCE (Intel SDM vol. 1, 10.4.6.2; AMD APM vol. 2, 7.1).

mod avx2_nt;
pub(crate) mod avx512_nt;
mod cached;
pub(crate) mod clzero;
mod detect;
pub(crate) mod movdir64b;
mod movnti;
mod rep_stosb;

use std::arch::asm;

pub use avx2_nt::Avx2Nt;
pub use avx512_nt::Avx512Nt;
pub use cached::Cached;
pub use clzero::Clzero;
pub use movdir64b::Movdir64b;
pub use movnti::Movnti;
pub use rep_stosb::RepStosb;

/// SFENCE: stores before it, weakly ordered ones too, become visible before any store after it.
pub(crate) fn sfence() {
    // SAFETY: SFENCE touches no register, flag or memory. The compiler is not told that, so it moves no access across.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) };
}
