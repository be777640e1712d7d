//! The foreground: reads that each need the one before, all over a working set.
//!
//! The lines of the set are one cycle in random order (Sattolo's algorithm: a random permutation that is
//! a single cycle), so that nothing can be fetched ahead and every line has its turn.

use std::fs;
use std::hint::black_box;
use std::io;

use super::sys::{Line, Lines};

/// Bytes of a line.
pub(crate) const LINE: u64 = size_of::<Line>() as u64;
/// Any number but zero: the same order in every run.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// A working set and a place in it.
#[derive(Debug)]
pub(crate) struct Chase {
    lines: Lines,
    at: usize,
    huge_bytes: u64,
}

impl Chase {
    /// A working set of so many bytes, at least two lines.
    pub(crate) fn new(bytes: u64) -> io::Result<Self> {
        let count = usize::try_from(bytes / LINE).map_err(io::Error::other)?;
        let mut lines = Lines::map(count.max(2))?;
        link(lines.all_mut());
        let range = lines.all().as_ptr_range();
        let huge = huge_bytes(
            &fs::read_to_string("/proc/self/smaps").unwrap_or_default(),
            range.start.addr() as u64,
            range.end.addr() as u64,
        );
        Ok(Self {
            huge_bytes: huge.min(bytes),
            lines,
            at: 0,
        })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.lines.all().len() as u64 * LINE
    }

    /// How much of it the kernel has put on transparent hugepages.
    pub(crate) fn huge_bytes(&self) -> u64 {
        self.huge_bytes
    }

    /// Reads every line once, in the order of addresses: what fits in a cache is in it then.
    pub(super) fn warm(&self) {
        let sum = self.lines.all().iter();
        black_box(sum.fold(0, |sum: usize, line| sum ^ line.next));
    }

    /// Follows the cycle so many lines on.
    pub(super) fn follow(&mut self, lines: u64) {
        let all = self.lines.all();
        let mut at = self.at;
        for _ in 0..lines {
            at = all[at].next;
        }
        self.at = black_box(at);
    }
}

#[cfg(test)]
impl Chase {
    pub(super) fn at(&self) -> usize {
        self.at
    }
}

/// Makes one cycle of all lines, in random order.
fn link(lines: &mut [Line]) {
    for (n, line) in lines.iter_mut().enumerate() {
        line.next = n;
    }
    let mut state = SEED;
    for last in (1..lines.len()).rev() {
        // The other one is never the line itself: that makes it a single cycle.
        let other = below(last, &mut state);
        let next = lines[last].next;
        lines[last].next = lines[other].next;
        lines[other].next = next;
    }
}

/// A random number below `bound`, by xorshift64*; its bias is below 2^-29 for a set of a terabyte.
fn below(bound: usize, state: &mut u64) -> usize {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    let random = state.wrapping_mul(0x2545_f491_4f6c_dd1d);
    let scaled = (u128::from(random) * bound as u128) >> 64;
    usize::try_from(scaled).unwrap_or(0)
}

/// `AnonHugePages` (proc_pid_smaps(5)) of the mappings that have a part of these addresses, in bytes.
fn huge_bytes(smaps: &str, start: u64, end: u64) -> u64 {
    let mut within = false;
    let mut sum = 0;
    for line in smaps.lines() {
        let first = line.split(' ').next().unwrap_or_default();
        let hex = |text| u64::from_str_radix(text, 16).ok();
        if let Some((from, to)) = first.split_once('-').and_then(|(a, b)| hex(a).zip(hex(b))) {
            within = from < end && start < to;
        } else if within && let Some(size) = line.strip_prefix("AnonHugePages:") {
            let kib = size.trim().trim_end_matches(" kB").parse::<u64>();
            sum += kib.unwrap_or(0) << 10;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_its_turn_once_in_a_lap() {
        for lines in [2, 3, 64, 1000] {
            let chase = Chase::new(lines * LINE).expect("a little memory");
            let all = chase.lines.all();
            let mut seen = vec![false; all.len()];
            let mut at = 0;
            for _ in 0..all.len() {
                assert!(!seen[at], "{lines} lines: {at} again");
                seen[at] = true;
                at = all[at].next;
            }
            assert_eq!(at, 0, "{lines} lines");
        }
    }

    #[test]
    fn following_goes_on_where_it_was() {
        let mut chase = Chase::new(64 * LINE).expect("a little memory");
        chase.follow(20);
        assert_ne!(chase.at, 0);
        chase.follow(44);
        assert_eq!(chase.at, 0, "a lap");
        assert_eq!(chase.bytes(), 4096);
    }

    #[test]
    fn most_lines_are_far_from_the_one_before() {
        let chase = Chase::new(1000 * LINE).expect("a little memory");
        let near = |(n, line): &(usize, &Line)| line.next.abs_diff(*n) < 4;
        let near = chase.lines.all().iter().enumerate().filter(near).count();
        assert!(near < 30, "{near} of 1000");
    }

    #[test]
    fn hugepages_of_the_mappings_of_a_range_are_added_up() {
        let smaps = "\
7f0000000000-7f0000200000 rw-p 00000000 00:00 0 \n\
Size:               2048 kB\n\
AnonHugePages:      2048 kB\n\
7f0000200000-7f0000400000 rw-p 00000000 00:00 0 \n\
AnonHugePages:      1024 kB\n\
7f0000400000-7f0000600000 rw-p 00000000 00:00 0                          [heap]\n\
AnonHugePages:      4 kB\n";
        let huge = |start: u64, end: u64| {
            huge_bytes(smaps, 0x7f00_0000_0000 + start, 0x7f00_0000_0000 + end)
        };
        assert_eq!(huge(0, 1), 2 << 20);
        assert_eq!(huge(0x1000, 0x20_0001), 3 << 20);
        assert_eq!(huge(0x60_0000, 0x60_1000), 0);
    }
}
