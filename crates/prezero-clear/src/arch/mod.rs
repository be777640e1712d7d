//! The clearing loops, each a small type that exists only where its instructions do.
//!
//! `new` looks at the CPU, so having one is the proof that [`crate::Method`] carries around. The loops take raw
//! pointers and leave the fence to the caller; [`crate::Span`] is the safe way to them.
//!
//! Another architecture is a directory beside `x86_64` and a line in this file: its kernels in the order of
//! [`crate::Method::NAMES`], its `Cached`, and what they need. On every one there is [`portable`].

pub mod portable;
#[cfg(target_arch = "x86_64")]
pub mod x86_64;

use crate::Stores;

#[cfg(not(target_arch = "x86_64"))]
pub(crate) use portable::Cached;
use portable::Portable;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::Cached;
#[cfg(target_arch = "x86_64")]
use x86_64::{Avx2Nt, Avx512Nt, Clzero, Movdir64b, Movnti, RepStosb};

/// Every method there is, and what a CPU has to have for it.
const ALL: [(&str, &str); 8] = [
    ("rep-stosb", "an x86-64 CPU"),
    ("movnti", "an x86-64 CPU"),
    (
        "avx2-nt",
        "the CPUID flag AVX2 and an operating system that saves AVX registers",
    ),
    (
        "avx512-nt",
        "the CPUID flag AVX512F and an operating system that saves AVX-512 registers",
    ),
    ("movdir64b", "the CPUID flag MOVDIR64B (leaf 7, ECX bit 28)"),
    (
        "clzero",
        "the CPUID flag CLZERO (leaf 8000_0008h, EBX bit 0) and cache lines of 64 bytes",
    ),
    ("cached", "nothing"),
    ("portable", "nothing"),
];

/// The names of all methods.
pub(crate) const NAMES: [&str; ALL.len()] = {
    let mut names = [""; ALL.len()];
    let mut at = 0;
    while at < ALL.len() {
        names[at] = ALL[at].0;
        at += 1;
    }
    names
};

/// What a CPU has to have for the method of that name.
pub(crate) fn needs(name: &str) -> &'static str {
    ALL.iter()
        .find(|(known, _)| *known == name)
        .map_or("another CPU", |(_, needs)| needs)
}

macro_rules! kernels {
    ($($kernel:ident),+) => {
        /// A loop that this CPU can run.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum Kernel {
            $($kernel($kernel)),+
        }

        impl Kernel {
            /// All that this CPU can run.
            pub(crate) fn available() -> impl Iterator<Item = Self> {
                [$($kernel::new().map(Self::$kernel)),+].into_iter().flatten()
            }

            pub(crate) fn name(self) -> &'static str {
                match self { $(Self::$kernel(_) => $kernel::NAME),+ }
            }

            pub(crate) fn stores(self) -> Stores {
                match self { $(Self::$kernel(_) => $kernel::STORES),+ }
            }

            /// Clears `len` bytes at `ptr`.
            ///
            /// # Safety
            ///
            /// The memory is populated, writable and used by nobody else; both are multiples of [`crate::GRANULE`].
            pub(crate) unsafe fn clear(self, ptr: *mut u8, len: usize) {
                match self {
                    $(
                        // SAFETY: the caller's promise is the one that the loop wants.
                        Self::$kernel(kernel) => unsafe { kernel.clear(ptr, len) },
                    )+
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
kernels!(
    RepStosb, Movnti, Avx2Nt, Avx512Nt, Movdir64b, Clzero, Cached, Portable
);
#[cfg(not(target_arch = "x86_64"))]
kernels!(Cached, Portable);

/// Orders all stores of this thread, uncached ones too, before everything that it does afterwards.
///
/// On x86-64 that is SFENCE; elsewhere all stores here are ordinary ones, and a sequentially consistent fence orders them.
pub fn fence() {
    #[cfg(test)]
    crate::tests::fences::count();
    #[cfg(target_arch = "x86_64")]
    x86_64::sfence();
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}
