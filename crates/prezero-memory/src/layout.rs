//! Where RAM sits in the guest's physical address space, on x86-64.
//!
//! ```text
//! 0          3 GiB      4 GiB            1012 GiB     1 TiB           2^bits
//! ├── RAM ────┤ devices ├── RAM ──────────┤ AMD only ├── RAM ──── … ──┤
//! ```
//!
//! The range from 3 GiB to 4 GiB belongs to devices on every x86 machine (local APIC at
//! `0xfee0_0000`, I/O APIC, PCI). On AMD hosts `0xfd_0000_0000..0x100_0000_0000` is reserved for
//! HyperTransport (AMD I/O Virtualization Technology Specification, "Special address ranges"):
//! an IOMMU refuses to map it, so RAM there breaks device assignment. KVM takes at most 2^31 − 1
//! pages of 4 KiB a slot (`KVM_MEM_MAX_NR_PAGES`, include/linux/kvm_host.h), just under 8 TiB.

use prezero_host::{Cpu, PageSize};

use crate::size::ByteSize;

const GIB: u64 = 1 << 30;
const DEVICE_HOLE: (u64, u64) = (3 * GIB, 4 * GIB);
const HYPERTRANSPORT_HOLE: (u64, u64) = (0xfd_0000_0000, 0x100_0000_0000);
/// The architecture's largest physical address width, for hosts that do not say theirs.
const MAX_ADDRESS_BITS: u8 = 52;
/// The largest slot KVM takes, in bytes (`KVM_MEM_MAX_NR_PAGES`, include/linux/kvm_host.h).
pub const MAX_SLOT_BYTES: u64 = ((1 << 31) - 1) * 4096;

/// The guest-physical addresses that RAM may have: all below an address width, except holes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    bits: u8,
    holes: Vec<(u64, u64)>,
}

/// A guest-physical range: address and length in bytes.
pub(crate) type Range = (u64, u64);

/// Why RAM has no place in the guest's address space.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// RAM would end above the host's physical address width.
    #[error(
        "Guest memory of {} does not fit below the host's {bits} physical address bits: at most {} with the {}",
        ByteSize(*.bytes), ByteSize(*.max), name_holes(.holes)
    )]
    BeyondAddressBits {
        /// Bytes asked for, all zones.
        bytes: u64,
        /// The host's physical address width.
        bits: u8,
        /// Bytes that would fit with this page size.
        max: u64,
        /// Where the holes begin that take part of the space.
        holes: Vec<u64>,
    },
    /// No whole page fits below the first hole, where a guest needs its first memory.
    #[error("A page of {page} does not fit below the first hole, at {}", ByteSize(*.hole))]
    PageAboveHole {
        /// The page size asked for.
        page: PageSize,
        /// Where the hole begins.
        hole: u64,
    },
}

fn name_holes(starts: &[u64]) -> String {
    let names: Vec<String> = starts
        .iter()
        .map(|start| ByteSize(*start).to_string())
        .collect();
    match names.len() {
        1 => format!("hole at {}", names[0]),
        _ => format!("holes at {}", names.join(" and ")),
    }
}

impl Layout {
    /// Addresses below 2^`bits` (at most 52) outside `holes`, each from its first to after its last
    /// address. RAM begins at address 0 or, where a hole is there, above it.
    #[must_use]
    pub fn new(bits: u8, mut holes: Vec<(u64, u64)>) -> Self {
        holes.retain(|(from, to)| from < to);
        holes.sort_unstable();
        Self {
            bits: bits.min(MAX_ADDRESS_BITS),
            holes,
        }
    }

    /// The layout of an x86-64 guest on this CPU; as any x86 machine has it:
    ///
    /// ```text
    /// 0          3 GiB      4 GiB            1012 GiB     1 TiB           2^bits
    /// ├── RAM ────┤ devices ├── RAM ──────────┤ AMD only ├── RAM ──── … ──┤
    /// ```
    #[must_use]
    pub fn x86_64(cpu: &Cpu) -> Self {
        let mut holes = vec![DEVICE_HOLE];
        if matches!(cpu.vendor.as_str(), "AuthenticAMD" | "HygonGenuine") {
            holes.push(HYPERTRANSPORT_HOLE);
        }
        Self::new(cpu.phys_addr_bits.unwrap_or(MAX_ADDRESS_BITS), holes)
    }

    /// Gives every zone (bytes, page size) its ranges, lowest addresses first, each range on page
    /// boundaries, outside the holes, and small enough for one KVM slot.
    pub(crate) fn place(&self, zones: &[(u64, PageSize)]) -> Result<Vec<Vec<Range>>, LayoutError> {
        let mut next = 0;
        let mut placed = Vec::with_capacity(zones.len());
        for (n, &(bytes, page)) in zones.iter().enumerate() {
            let from = next;
            let ranges = self.place_one(&mut next, bytes, page);
            let ranges = ranges.ok_or_else(|| self.beyond(zones, n, from))?;
            // A guest's first page is at the lowest address there is.
            let lowest = self.above_holes(0, PageSize::BASE);
            let hole = self.holes.iter().find(|hole| Some(hole.0) > lowest);
            let first = ranges.first().map(|range| range.0);
            if let Some(hole) = hole.filter(|hole| n == 0 && first > Some(hole.0)) {
                return Err(LayoutError::PageAboveHole { page, hole: hole.0 });
            }
            placed.push(ranges);
        }
        Ok(placed)
    }

    fn place_one(&self, next: &mut u64, bytes: u64, page: PageSize) -> Option<Vec<Range>> {
        let mut ranges = Vec::new();
        let mut left = bytes;
        while left > 0 {
            let start = self.above_holes(page.round_up(*next)?, page)?;
            let end = self.room_end(start);
            let room = page.round_down(end.checked_sub(start)?);
            let len = room.min(page.round_down(MAX_SLOT_BYTES)).min(left);
            if len == 0 {
                // Less than a page is left here; a hole may end, and room begin, above.
                if end >= self.limit() {
                    return None;
                }
                *next = end;
                continue;
            }
            ranges.push((start, len));
            left -= len;
            *next = start + len;
        }
        Some(ranges)
    }

    /// The first page boundary at or above `start` that is in no hole.
    fn above_holes(&self, start: u64, page: PageSize) -> Option<u64> {
        let mut start = start;
        for &(from, to) in &self.holes {
            if (from..to).contains(&start) {
                start = page.round_up(to)?;
            }
        }
        Some(start)
    }

    fn room_end(&self, start: u64) -> u64 {
        let hole = self.holes.iter().find(|hole| hole.0 >= start);
        hole.map_or(self.limit(), |hole| hole.0).min(self.limit())
    }

    fn limit(&self) -> u64 {
        1 << self.bits
    }

    /// Zone `n` does not fit at `from` and above. Aligning larger pages after smaller ones costs room.
    fn beyond(&self, zones: &[(u64, PageSize)], n: usize, from: u64) -> LayoutError {
        let page = zones[n].1;
        let mut max: u64 = zones[..n].iter().map(|zone| zone.0).sum();
        let mut from = page.round_up(from).unwrap_or(u64::MAX);
        for &(start, end) in self.holes.iter().chain([&(self.limit(), self.limit())]) {
            max += page.round_down(start.min(self.limit()).saturating_sub(from));
            from = from.max(page.round_up(end).unwrap_or(u64::MAX));
        }
        LayoutError::BeyondAddressBits {
            bytes: zones
                .iter()
                .fold(0, |sum: u64, zone| sum.saturating_add(zone.0)),
            bits: self.bits,
            max,
            holes: self
                .holes
                .iter()
                .map(|hole| hole.0)
                .filter(|start| *start < self.limit())
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIB: u64 = 1 << 40;

    fn space(vendor: &str, bits: u8) -> Layout {
        Layout::x86_64(&Cpu {
            vendor: vendor.to_owned(),
            phys_addr_bits: Some(bits),
            ..Cpu::default()
        })
    }

    fn place(space: &Layout, bytes: u64, page: PageSize) -> Vec<Range> {
        space.place(&[(bytes, page)]).unwrap().remove(0)
    }

    #[test]
    fn ram_below_three_gib_is_one_range() {
        let intel = space("GenuineIntel", 46);
        assert_eq!(place(&intel, 3 * GIB, PageSize::HUGE_2M), [(0, 3 * GIB)]);
        assert_eq!(
            place(&intel, 16 * GIB, PageSize::HUGE_2M),
            [(0, 3 * GIB), (4 * GIB, 13 * GIB)]
        );
    }

    #[test]
    fn gigantic_pages_are_not_split_by_the_hole() {
        let intel = space("GenuineIntel", 46);
        let ranges = place(&intel, 4 * GIB, PageSize::HUGE_1G);
        assert_eq!(ranges, [(0, 3 * GIB), (4 * GIB, GIB)]);
        // A page of 2 GiB (no x86 has it) leaves the last GiB below the hole unused.
        let two = PageSize::new(2 * GIB).unwrap();
        assert_eq!(
            place(&intel, 4 * GIB, two),
            [(0, 2 * GIB), (4 * GIB, 2 * GIB)]
        );
        let sixteen = PageSize::new(16 * GIB).unwrap();
        assert_eq!(
            intel.place(&[(16 * GIB, sixteen)]),
            Err(LayoutError::PageAboveHole {
                page: sixteen,
                hole: 3 * GIB
            })
        );
    }

    #[test]
    fn amd_hosts_keep_the_hypertransport_range_free() {
        let high = |vendor| place(&space(vendor, 48), 2 * TIB, PageSize::HUGE_1G);
        assert_eq!(
            high("AuthenticAMD"),
            [
                (0, 3 * GIB),
                (4 * GIB, 1008 * GIB),
                (TIB, 2 * TIB - 1011 * GIB)
            ]
        );
        assert_eq!(high("GenuineIntel").len(), 2);
    }

    #[test]
    fn slots_stay_below_kvms_page_limit() {
        let ranges = place(&space("GenuineIntel", 52), 20 * TIB, PageSize::HUGE_2M);
        assert!(ranges.iter().all(|range| range.1 < 8 * TIB));
        assert_eq!(ranges.iter().map(|range| range.1).sum::<u64>(), 20 * TIB);
        assert_eq!(ranges.len(), 4);
    }

    #[test]
    fn memory_above_the_address_bits_is_refused_with_the_maximum() {
        let small = space("GenuineIntel", 36);
        assert!(small.place(&[(63 * GIB, PageSize::HUGE_2M)]).is_ok());
        let refused = small.place(&[(64 * GIB, PageSize::HUGE_2M)]);
        let Err(LayoutError::BeyondAddressBits { bits, max, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!((bits, max), (36, 63 * GIB));
        assert!(
            space("AuthenticAMD", 40)
                .place(&[(1012 * GIB, PageSize::HUGE_1G)])
                .is_err()
        );
    }

    #[test]
    fn zones_follow_each_other_on_boundaries_of_their_own_pages() {
        let intel = space("GenuineIntel", 46);
        let zones = [(512 << 20, PageSize::HUGE_2M), (GIB, PageSize::HUGE_1G)];
        let placed = intel.place(&zones).unwrap();
        assert_eq!(placed, [vec![(0, 512 << 20)], vec![(GIB, GIB)]]);
    }
}
