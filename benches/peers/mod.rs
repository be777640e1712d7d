//! What the benchmarks of whole programs have in common: their options, the machine, its QEMU, and an end by signals.

pub(crate) mod machine;
pub(crate) mod options;
pub(crate) mod qemu;
pub(crate) mod stop;
pub(crate) mod sys;

use std::error::Error;

/// Bytes of the pages that programs are compared on.
pub(crate) const PAGE: u64 = 2 << 20;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;
