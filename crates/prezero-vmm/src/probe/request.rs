//! What the probe guest is to do, and whether it can.

use super::mailbox::split;
use super::{PROBE_END, PROBE_GPA};
use crate::error::GuestError;
use crate::kvm::KvmFacts;
use crate::slots::PAGE;

/// Highest address width that four-level page tables can map to itself.
const MAX_BITS: u8 = 47;

/// What the probe guest is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeRequest {
    /// How many vCPUs; they share the scan.
    pub cpus: u32,
    /// Whether to read all of `ram`, or only to say that the guest is alive.
    pub verify: bool,
    /// The guest's RAM: guest-physical address and length in bytes of each range, multiples of 4 KiB.
    pub ram: Vec<(u64, u64)>,
}

impl ProbeRequest {
    /// The guest-physical addresses that the vCPUs read first, if they read at all. Who clears the RAM
    /// may leave them in the cache.
    #[must_use]
    pub fn reads_first(&self) -> Vec<u64> {
        if !self.verify || self.cpus == 0 {
            return Vec::new();
        }
        let shares = split(&self.ram, self.cpus);
        let first = shares.iter().filter_map(|share| share.first());
        first.map(|piece| piece.gpa).collect()
    }

    /// Refuses what no guest could do on this host.
    pub(super) fn check(&self, facts: &KvmFacts) -> Result<(), GuestError> {
        if self.cpus == 0 || self.cpus > facts.max_vcpus {
            return Err(GuestError::VcpuCount {
                cpus: self.cpus,
                max: facts.max_vcpus,
            });
        }
        let bits = facts.phys_bits.min(MAX_BITS);
        let mut taken = vec![(PROBE_GPA, PROBE_END - PROBE_GPA)];
        for &(gpa, len) in &self.ram {
            if len == 0 || !gpa.is_multiple_of(PAGE) || !len.is_multiple_of(PAGE) {
                return Err(GuestError::RamUnaligned { gpa, len });
            }
            let end = gpa.checked_add(len).filter(|&end| end <= 1 << bits);
            let end = end.ok_or(GuestError::RamTooHigh { gpa, len, bits })?;
            if let Some(&(other, _)) = taken
                .iter()
                .find(|&&(other, other_len)| gpa < other + other_len && other < end)
            {
                return Err(GuestError::RamOverlap { gpa, len, other });
            }
            taken.push((gpa, len));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Probe;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    const LOW: (u64, u64) = (0, 24 * MIB);

    #[test]
    fn requests_that_cannot_be_met_are_refused() {
        let facts = KvmFacts {
            max_vcpus: 4,
            max_slots: 8,
            gib_pages: true,
            phys_bits: 40,
        };
        let refuse = |cpus, ram: &[(u64, u64)]| {
            Probe::slot_len(
                &ProbeRequest {
                    cpus,
                    verify: true,
                    ram: ram.to_vec(),
                },
                &facts,
            )
            .unwrap_err()
        };
        assert!(matches!(refuse(0, &[LOW]), GuestError::VcpuCount { .. }));
        assert!(matches!(
            refuse(5, &[LOW]),
            GuestError::VcpuCount { cpus: 5, max: 4 }
        ));
        assert!(matches!(
            refuse(1, &[(0, 0)]),
            GuestError::RamUnaligned { .. }
        ));
        assert!(matches!(
            refuse(1, &[(0, 100)]),
            GuestError::RamUnaligned { .. }
        ));
        assert!(matches!(
            refuse(1, &[(1 << 40, 4096)]),
            GuestError::RamTooHigh { bits: 40, .. }
        ));
        assert!(matches!(
            refuse(1, &[(u64::MAX - 4095, 4096)]),
            GuestError::RamTooHigh { .. }
        ));
        assert!(matches!(
            refuse(1, &[(0, 8192), (4096, 4096)]),
            GuestError::RamOverlap { other: 0, .. }
        ));
        assert!(matches!(
            refuse(1, &[(3 * GIB, GIB)]),
            GuestError::RamOverlap {
                other: PROBE_GPA,
                ..
            }
        ));
    }

    #[test]
    fn each_vcpu_reads_its_share_from_the_start() {
        let mut request = ProbeRequest {
            cpus: 2,
            verify: true,
            ram: vec![(0, 16 * MIB), (4 * GIB, 16 * MIB)],
        };
        assert_eq!(request.reads_first(), [0, 4 * GIB]);
        request.verify = false;
        assert_eq!(request.reads_first(), [0; 0]);
    }

    #[test]
    fn probes_of_16_tib_fit_their_slot() {
        let ram = vec![(0, 3 * GIB), (4 * GIB, (16 << 40) - 3 * GIB)];
        let request = ProbeRequest {
            cpus: 1024,
            verify: true,
            ram,
        };
        let facts = KvmFacts {
            max_vcpus: 1024,
            max_slots: 8,
            gib_pages: true,
            phys_bits: 46,
        };
        assert!(Probe::slot_len(&request, &facts).unwrap() < MIB);
        let small = KvmFacts {
            gib_pages: false,
            ..facts
        };
        assert!(Probe::slot_len(&request, &small).unwrap() > 64 * MIB);
    }
}
