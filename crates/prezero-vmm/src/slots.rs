//! Memory slots: guest-physical ranges that KVM backs with host memory.
//!
//! KVM answers most mistakes here with a bare `EINVAL` or `EEXIST`, so the table checks first and names both ranges.

use std::io;

use prezero_memory::{Class, MAX_SLOT_BYTES, SlotRange};
use thiserror::Error;

use crate::error::is_shortage;

/// KVM maps, and prezero hands out, memory in units of at least this many bytes.
pub(crate) const PAGE: u64 = 4096;

fn overlap(a: &SlotRange, b: &SlotRange) -> bool {
    // Both ends exist: only checked ranges enter the table, and a new one is checked before it is compared.
    a.gpa < b.gpa + b.len && b.gpa < a.gpa + a.len
}

/// Why a slot cannot be registered or removed. KVM's view has not changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SlotError {
    /// A slot of no bytes would delete the slot of that number (`Documentation/virt/kvm/api.rst`, 4.35).
    #[error("A memory slot is empty: {0}")]
    Empty(SlotRange),
    /// Guest address, host address or length is not a multiple of 4 KiB.
    #[error("A memory slot is not aligned to 4096 bytes: {0}")]
    Unaligned(SlotRange),
    /// The slot has more than KVM's 2^31 - 1 pages.
    #[error("A memory slot is longer than KVM's {MAX_SLOT_BYTES} bytes: {0}")]
    TooLong(SlotRange),
    /// The guest or the host range runs past the end of the address space.
    #[error("A memory slot runs past the end of the address space: {0}")]
    Overflow(SlotRange),
    /// The number is not below `KVM_CAP_NR_MEMSLOTS`.
    #[error("KVM here has {max} memory slots, too few for {range}")]
    Number {
        /// What was asked for.
        range: SlotRange,
        /// How many slots KVM offers; numbers are below it.
        max: usize,
    },
    /// The number is in use; KVM would take the call as a change of that slot.
    #[error("Memory slot number in use: {range} was asked for, {present} is registered")]
    InUse {
        /// What was asked for.
        range: SlotRange,
        /// What is registered under the number.
        present: SlotRange,
    },
    /// Guest addresses overlap.
    #[error(
        "Memory slots overlap in guest addresses: {range} was asked for, {present} is registered"
    )]
    Overlap {
        /// What was asked for.
        range: SlotRange,
        /// What is registered there.
        present: SlotRange,
    },
    /// No slot of that number is registered.
    #[error("Memory slot {slot} is not registered")]
    Absent {
        /// The number.
        slot: u32,
    },
    /// `KVM_SET_USER_MEMORY_REGION` failed for a new slot.
    #[error("KVM refused {range}")]
    Register {
        /// What was asked for.
        range: SlotRange,
        /// KVM's answer.
        #[source]
        source: io::Error,
    },
    /// `KVM_SET_USER_MEMORY_REGION` failed for a slot to be removed; it is still registered.
    #[error("KVM did not remove {range}")]
    Remove {
        /// The slot, still registered.
        range: SlotRange,
        /// KVM's answer.
        #[source]
        source: io::Error,
    },
}

impl SlotError {
    /// What kind of error it is.
    pub fn class(&self) -> Class {
        match self {
            SlotError::Number { .. } => Class::Host,
            SlotError::Register { source, .. } if is_shortage(source) => Class::Shortage,
            SlotError::Register { source, .. }
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                Class::Host
            }
            _ => Class::Internal,
        }
    }

    /// Something the user can type, where there is something.
    pub fn fix(&self) -> Option<String> {
        match self {
            SlotError::Number { max, .. } => {
                Some(format!("use fewer memory zones: at most {max} slots"))
            }
            SlotError::TooLong(_) => Some(format!(
                "split the memory into zones of at most {MAX_SLOT_BYTES} bytes"
            )),
            SlotError::Register { source, .. } if source.raw_os_error() == Some(libc::ENOMEM) => {
                Some(
                    "free some memory: `cat /proc/meminfo`, `cat /sys/fs/cgroup/memory.max`".into(),
                )
            }
            _ => None,
        }
    }
}

/// The registered slots of one virtual machine, ordered by guest address.
#[derive(Debug, Default)]
pub(crate) struct SlotTable(Vec<SlotRange>);

impl SlotTable {
    /// Checks `range` against KVM's rules and against the slots that are registered.
    pub(crate) fn check(&self, range: &SlotRange, max: usize) -> Result<(), SlotError> {
        let range = *range;
        if range.len == 0 {
            return Err(SlotError::Empty(range));
        }
        if [range.gpa, range.len, range.hva]
            .iter()
            .any(|v| !v.is_multiple_of(PAGE))
        {
            return Err(SlotError::Unaligned(range));
        }
        if range.len > MAX_SLOT_BYTES {
            return Err(SlotError::TooLong(range));
        }
        if range.gpa.checked_add(range.len).is_none() || range.hva.checked_add(range.len).is_none()
        {
            return Err(SlotError::Overflow(range));
        }
        if range.slot as usize >= max {
            return Err(SlotError::Number { range, max });
        }
        if let Some(&present) = self.0.iter().find(|s| s.slot == range.slot) {
            return Err(SlotError::InUse { range, present });
        }
        if let Some(&present) = self.0.iter().find(|s| overlap(s, &range)) {
            return Err(SlotError::Overlap { range, present });
        }
        Ok(())
    }

    /// Enters a range that [`SlotTable::check`] has passed.
    pub(crate) fn insert(&mut self, range: SlotRange) {
        let at = self.0.partition_point(|s| s.gpa < range.gpa);
        self.0.insert(at, range);
    }

    pub(crate) fn find(&self, slot: u32) -> Result<SlotRange, SlotError> {
        self.0
            .iter()
            .find(|s| s.slot == slot)
            .copied()
            .ok_or(SlotError::Absent { slot })
    }

    pub(crate) fn remove(&mut self, slot: u32) {
        self.0.retain(|s| s.slot != slot);
    }

    pub(crate) fn ranges(&self) -> &[SlotRange] {
        &self.0
    }

    /// Whether slots stand behind every byte of `[gpa, gpa + len)`.
    pub(crate) fn covers(&self, gpa: u64, len: u64) -> bool {
        let Some(end) = gpa.checked_add(len) else {
            return false;
        };
        let mut reached = gpa;
        for s in &self.0 {
            if s.gpa <= reached && reached < s.gpa + s.len {
                reached = s.gpa + s.len;
            }
        }
        reached >= end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(slot: u32, gpa: u64, len: u64) -> SlotRange {
        SlotRange {
            slot,
            gpa,
            len,
            hva: 0x7000_0000_0000,
        }
    }

    fn table() -> SlotTable {
        let mut table = SlotTable::default();
        table.insert(range(1, 0x10_0000, 0x10_0000));
        table.insert(range(0, 0, 0x10_0000));
        table
    }

    #[test]
    fn accepts_neighbours_on_both_sides() {
        table().check(&range(2, 0x20_0000, PAGE), 8).unwrap();
        let mut table = table();
        table.remove(0);
        table.check(&range(2, 0xf_f000, PAGE), 8).unwrap();
    }

    #[test]
    fn rejects_every_kind_of_overlap() {
        for (gpa, len) in [
            (0x1f_f000, 0x2000),
            (0x10_0000, 0x10_0000),
            (0x11_0000, PAGE),
            (0, 0x100_0000),
        ] {
            let error = table().check(&range(2, gpa, len), 8).unwrap_err();
            assert!(
                matches!(error, SlotError::Overlap { .. }),
                "{gpa:#x}: {error}"
            );
        }
    }

    #[test]
    fn rejects_ranges_that_kvm_cannot_hold() {
        let check = |r: SlotRange| table().check(&r, 8).unwrap_err();
        assert!(matches!(check(range(2, 0x20_0000, 0)), SlotError::Empty(_)));
        for bad in [
            range(2, 0x20_0001, PAGE),
            range(2, 0x20_0000, 100),
            SlotRange {
                hva: 5,
                ..range(2, 0x20_0000, PAGE)
            },
        ] {
            assert!(matches!(check(bad), SlotError::Unaligned(_)));
        }
        assert!(matches!(
            check(range(2, 0x20_0000, MAX_SLOT_BYTES + PAGE)),
            SlotError::TooLong(_)
        ));
        assert!(matches!(
            check(range(2, 0u64.wrapping_sub(PAGE), PAGE)),
            SlotError::Overflow(_)
        ));
        let high = SlotRange {
            hva: 0u64.wrapping_sub(PAGE),
            ..range(2, 0x20_0000, PAGE)
        };
        assert!(matches!(check(high), SlotError::Overflow(_)));
        assert!(matches!(
            check(range(8, 0x20_0000, PAGE)),
            SlotError::Number { max: 8, .. }
        ));
        assert!(matches!(
            check(range(1, 0x20_0000, PAGE)),
            SlotError::InUse { .. }
        ));
    }

    #[test]
    fn covers_only_what_slots_stand_behind() {
        let mut table = table();
        assert!(table.covers(0, 0x20_0000));
        assert!(table.covers(0xf_f000, 0x2000));
        assert!(!table.covers(0x1f_f000, 0x2000));
        assert!(!table.covers(u64::MAX - 1, 2));
        table.remove(0);
        assert!(!table.covers(0, 0x20_0000));
    }
}
