//! The guest's memory map, as e820 and PVH have it.

use super::error::BootError;
use super::layout::{HIGH_RAM, LOW_RAM_END};

/// Entries that fit into the zero page (`E820_MAX_ENTRIES_ZEROPAGE`).
const ENTRIES_MAX: usize = 128;

/// Usable memory.
pub(super) const RAM: u32 = 1;
/// Not to be touched.
pub(super) const RESERVED: u32 = 2;

/// A range of guest-physical addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MapEntry {
    pub(super) gpa: u64,
    pub(super) len: u64,
    pub(super) kind: u32,
}

/// The map for RAM at these ranges, of which the first begins at 0 and reaches beyond 1 MiB. Neighbours become one
/// entry.
pub(super) fn memory_map(ram: &[(u64, u64)]) -> Result<Vec<MapEntry>, BootError> {
    let mut map = vec![
        MapEntry {
            gpa: 0,
            len: LOW_RAM_END,
            kind: RAM,
        },
        MapEntry {
            gpa: LOW_RAM_END,
            len: HIGH_RAM - LOW_RAM_END,
            kind: RESERVED,
        },
    ];
    let ranges = joined(ram);
    map.extend(ranges.iter().map(|&(gpa, len)| {
        let from = gpa.max(HIGH_RAM);
        MapEntry {
            gpa: from,
            len: gpa + len - from,
            kind: RAM,
        }
    }));
    match map.len() <= ENTRIES_MAX {
        true => Ok(map),
        false => Err(BootError::TooManyRanges {
            ranges: ranges.len(),
            max: ENTRIES_MAX - 2,
        }),
    }
}

/// Ranges without the borders between neighbours, lowest first.
pub(super) fn joined(ram: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut ranges = ram.to_vec();
    ranges.sort_unstable();
    ranges.dedup_by(|next, last| {
        let joins = last.0 + last.1 == next.0;
        if joins {
            last.1 += next.1;
        }
        joins
    });
    ranges
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn entry(gpa: u64, len: u64, kind: u32) -> MapEntry {
        MapEntry { gpa, len, kind }
    }

    #[test]
    fn neighbours_are_one_entry_and_the_hole_is_none() {
        let ram = [(0, GIB), (GIB, 2 * GIB), (4 * GIB, GIB), (1 << 40, GIB)];
        let map = memory_map(&ram).expect("few");
        assert_eq!(
            map,
            [
                entry(0, 0x9_fc00, RAM),
                entry(0x9_fc00, 0x6_0400, RESERVED),
                entry(MIB, 3 * GIB - MIB, RAM),
                entry(4 * GIB, GIB, RAM),
                entry(1 << 40, GIB, RAM),
            ]
        );
    }

    proptest! {
        #[test]
        fn nothing_but_the_reserved_part_is_lost(
            parts in proptest::collection::vec((1u64..5000, 0u64..3), 1..40),
        ) {
            let mut next = 0;
            let ram: Vec<_> = parts.iter().map(|&(mib, gap)| {
                let range = (next, (mib + 2) * MIB);
                next += range.1 + gap * GIB;
                range
            }).collect();
            let map = memory_map(&ram).expect("few");
            let usable: u64 = map.iter().filter(|entry| entry.kind == RAM).map(|entry| entry.len).sum();
            let all: u64 = ram.iter().map(|range| range.1).sum();
            prop_assert_eq!(usable, all - (HIGH_RAM - LOW_RAM_END));
            prop_assert!(map.windows(2).all(|pair| pair[0].gpa + pair[0].len <= pair[1].gpa));
        }
    }
}
