//! The probe guest's page tables: guest-virtual addresses are guest-physical addresses, for RAM and for the probe
//! itself.
//!
//! All entries have the user bit, as the guest runs in ring 3. RAM is mapped read-only, so a guest that went astray
//! cannot change what it is to verify: it faults. The probe's own area is mapped writable. Accessed and dirty bits
//! are set from the start, which spares the CPU, or a KVM with shadow page tables, the work of setting them.
//!
//! Leaves are 1 GiB where the guest CPU has them, so that 16 TiB need 34 tables and not 16,416; but the GiB that
//! holds the probe always has 2 MiB leaves. A leaf may reach over the end of the RAM: mapping what is not there harms
//! nobody.

use std::collections::BTreeMap;

use super::{PROBE_END, PROBE_GPA};
use crate::slots::PAGE;

const PRESENT: u64 = 1 << 0;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
const LARGE: u64 = 1 << 7;

/// log2 of what one entry of each level spans, from the root down.
const PML4_SHIFT: u32 = 39;
const PDPT_SHIFT: u32 = 30;
const PD_SHIFT: u32 = 21;

/// One page table.
pub(crate) type Table = [u64; 512];

/// Page tables, the root first, to be put one after the other from `base` on.
#[derive(Debug)]
pub(crate) struct Tables {
    base: u64,
    tables: Vec<Table>,
    /// Which table is behind which entry, as table and entry number.
    below: BTreeMap<(usize, usize), usize>,
}

impl Tables {
    /// Maps `ram`, which ends below 2^47, and the probe's area. The number of tables does not depend on `base`.
    pub(crate) fn build(base: u64, ram: &[(u64, u64)], gib_pages: bool) -> Tables {
        let mut tables = Tables {
            base,
            tables: vec![[0; 512]],
            below: BTreeMap::new(),
        };
        tables.map(PROBE_GPA, PROBE_END, WRITABLE, false);
        for &(gpa, len) in ram {
            tables.map(gpa, gpa + len, 0, gib_pages);
        }
        tables
    }

    /// The tables in the order in which they are to be in memory.
    pub(crate) fn as_slice(&self) -> &[Table] {
        &self.tables
    }

    fn map(&mut self, start: u64, end: u64, writable: u64, gib_pages: bool) {
        let flags = writable | PRESENT | USER | ACCESSED | DIRTY | LARGE;
        for gib in start >> PDPT_SHIFT..=(end - 1) >> PDPT_SHIFT {
            let base = gib << PDPT_SHIFT;
            let pdpt = self.below(0, index(base, PML4_SHIFT));
            // Two ranges may meet in one leaf, hence the OR: neither takes away what the other needs.
            if gib_pages && gib != PROBE_GPA >> PDPT_SHIFT {
                self.tables[pdpt][index(base, PDPT_SHIFT)] |= base | flags;
                continue;
            }
            let pd = self.below(pdpt, index(base, PDPT_SHIFT));
            let last = (end - 1).min(base + (1 << PDPT_SHIFT) - 1);
            for leaf in start.max(base) >> PD_SHIFT..=last >> PD_SHIFT {
                let leaf = leaf << PD_SHIFT;
                self.tables[pd][index(leaf, PD_SHIFT)] |= leaf | flags;
            }
        }
    }

    /// The table behind an entry, made if need be.
    fn below(&mut self, table: usize, entry: usize) -> usize {
        let new = self.tables.len();
        let below = *self.below.entry((table, entry)).or_insert(new);
        if below == new {
            self.tables.push([0; 512]);
            self.tables[table][entry] =
                (self.base + PAGE * new as u64) | PRESENT | WRITABLE | USER | ACCESSED;
        }
        below
    }
}

fn index(gpa: u64, shift: u32) -> usize {
    (gpa >> shift & 511) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BASE: u64 = PROBE_GPA + 0x5000;

    /// Walks the tables as a CPU in ring 3 does. Returns the physical address and whether it may be written.
    fn walk(tables: &Tables, virt: u64) -> Option<(u64, bool)> {
        let (mut table, mut writable) = (0, true);
        for shift in [PML4_SHIFT, PDPT_SHIFT, PD_SHIFT] {
            let entry = tables.tables[table][index(virt, shift)];
            if entry & PRESENT == 0 {
                return None;
            }
            assert_ne!(entry & USER, 0);
            writable &= entry & WRITABLE != 0;
            let address = entry & 0x000f_ffff_ffff_f000;
            if entry & LARGE != 0 {
                assert!(
                    shift < PML4_SHIFT && address.is_multiple_of(1 << shift),
                    "reserved bits: {entry:#x}"
                );
                return Some((address + virt % (1 << shift), writable));
            }
            table = usize::try_from((address - BASE) / 4096).unwrap();
        }
        panic!("no leaf for {virt:#x}");
    }

    #[test]
    fn the_probe_is_writable_and_ram_is_not() {
        for gib_pages in [true, false] {
            let tables = Tables::build(BASE, &[(0, 3 << 30), (1 << 32, 1 << 30)], gib_pages);
            for at in [PROBE_GPA, BASE, PROBE_END - 1] {
                assert_eq!(walk(&tables, at), Some((at, true)));
            }
            for at in [0, (3 << 30) - 1, 1 << 32, (5 << 30) - 1] {
                assert_eq!(walk(&tables, at), Some((at, false)));
            }
            assert_eq!(walk(&tables, PROBE_GPA - 1), None);
            assert_eq!(walk(&tables, 5 << 30), None);
        }
    }

    #[test]
    fn sixteen_tib_need_34_tables_of_gib_leaves() {
        let ram = [(0, 3 << 30), (1 << 32, (16 << 40) - (4 << 30))];
        assert_eq!(Tables::build(BASE, &ram, true).tables.len(), 1 + 32 + 1);
        assert_eq!(Tables::build(0, &ram, true).tables.len(), 1 + 32 + 1);
    }

    proptest! {
        #[test]
        fn every_byte_of_ram_is_mapped_to_itself_read_only(
            low in 1u64..0xc_0000, high in 1u64..1 << 28, at in 0.0f64..1.0, gib_pages: bool,
        ) {
            // Bounded, as tables of 2 MiB leaves for a TiB take a while to build without optimisation.
            let high = if gib_pages { high } else { high % (1 << 21) + 1 };
            let ram = [(0, low << 12), (1 << 32, high << 12)];
            let tables = Tables::build(BASE, &ram, gib_pages);
            for (gpa, len) in ram {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
                let inside = gpa + ((len as f64 * at) as u64).min(len - 1);
                for at in [gpa, inside, gpa + len - 1] {
                    prop_assert_eq!(walk(&tables, at), Some((at, false)));
                }
            }
        }
    }
}
