//! Reading memory that a receipt says is clear.

use prezero_clear::Coherent;

const LINE: usize = 64;
const LINES: usize = 64;

/// Reads a word of each of the 64 lines from `addr` on, one after the other, and returns their sum.
pub(crate) fn read_lines(receipt: &Coherent<'_>, addr: usize) -> usize {
    assert!(addr >= receipt.addr() && addr + LINES * LINE <= receipt.addr() + receipt.len());
    let mut sum = 0;
    for turn in 0..LINES {
        // Not in order, which a prefetcher would see through; the sum is 0, but the CPU has to wait to know that.
        let line = turn * 29 % LINES * LINE + (sum & (LINE - size_of::<usize>()));
        let word = std::ptr::with_exposed_provenance::<usize>(addr + line);
        // SAFETY: within memory that the receipt has borrowed and mmap, a foreign function, exposed.
        sum |= unsafe { word.read_volatile() };
    }
    sum
}
