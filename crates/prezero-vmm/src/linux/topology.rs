//! Which vCPU is on which guest node, and what its APIC id is.
//!
//! Every guest node with vCPUs is a package of its own, because Linux takes the CPUs of a package to share a last-level
//! cache and a node. An APIC id is the package's number followed by the number within it, which has as many bits as the
//! largest package needs.

use super::error::BootError;

/// The largest APIC id that needs no x2APIC; 255 is the broadcast.
const APIC_ID_MAX: u32 = 254;

/// Where the vCPUs of a guest are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Topology {
    cpus: u32,
    nodes: u32,
}

/// One vCPU's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) node: u32,
    pub(super) package: u32,
    /// Number within the package.
    pub(super) core: u32,
    /// How many vCPUs the package has.
    pub(super) cores: u32,
    pub(super) apic_id: u32,
}

impl Topology {
    /// Spreads `cpus` vCPUs over `nodes` guest nodes, neighbours on one node.
    pub(super) fn new(cpus: u32, nodes: usize, kvm_max: u32) -> Result<Topology, BootError> {
        let count = u32::try_from(nodes).unwrap_or(u32::MAX).max(1);
        let topology = |cpus| Topology { cpus, nodes: count };
        let fits = |cpus: u32| cpus == 0 || topology(cpus).place(cpus - 1).apic_id <= APIC_ID_MAX;
        // Beyond 255 no layout fits, so the search is short.
        let max = (1..=kvm_max.min(APIC_ID_MAX + 1))
            .rev()
            .find(|&cpus| fits(cpus));
        let max = max.unwrap_or(1);
        if cpus == 0 || cpus > max {
            return Err(BootError::VcpuCount {
                cpus,
                nodes,
                max,
                by_kvm: max == kvm_max,
            });
        }
        Ok(topology(cpus))
    }

    pub(super) fn cpus(&self) -> u32 {
        self.cpus
    }

    fn node_of(&self, cpu: u32) -> u32 {
        let node = u64::from(cpu) * u64::from(self.nodes) / u64::from(self.cpus);
        u32::try_from(node).unwrap_or(u32::MAX)
    }

    /// The first vCPU of a node, or of the next one that has any.
    fn first_of(&self, node: u32) -> u32 {
        let first = (u64::from(node) * u64::from(self.cpus)).div_ceil(u64::from(self.nodes));
        u32::try_from(first).unwrap_or(u32::MAX)
    }

    /// Bits of an APIC id that number the vCPUs of a package.
    pub(super) fn core_bits(&self) -> u32 {
        let largest = self.cpus.div_ceil(self.nodes);
        largest.next_power_of_two().trailing_zeros()
    }

    /// Where vCPU `cpu` is.
    pub(super) fn place(&self, cpu: u32) -> Place {
        let node = self.node_of(cpu);
        let (first, end) = (self.first_of(node), self.first_of(node + 1));
        // With fewer vCPUs than nodes each has a package to itself, and some nodes have none.
        let package = if self.cpus < self.nodes { cpu } else { node };
        Place {
            node,
            package,
            core: cpu - first,
            cores: end - first,
            apic_id: package << self.core_bits() | (cpu - first),
        }
    }

    /// All of them, in the order of their numbers.
    pub(super) fn places(self) -> impl Iterator<Item = Place> {
        (0..self.cpus).map(move |cpu| self.place(cpu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(cpus: u32, nodes: usize) -> Vec<(u32, u32)> {
        let topology = Topology::new(cpus, nodes, 1024).expect("it fits");
        topology
            .places()
            .map(|place| (place.node, place.apic_id))
            .collect()
    }

    #[test]
    fn neighbours_share_a_node_and_every_node_is_a_package() {
        assert_eq!(ids(1, 1), [(0, 0)]);
        assert_eq!(ids(3, 1), [(0, 0), (0, 1), (0, 2)]);
        assert_eq!(ids(2, 2), [(0, 0), (1, 1)]);
        assert_eq!(ids(3, 2), [(0, 0), (0, 1), (1, 2)]);
        assert_eq!(ids(5, 2), [(0, 0), (0, 1), (0, 2), (1, 4), (1, 5)]);
        assert_eq!(ids(2, 3), [(0, 0), (1, 1)]);
    }

    #[test]
    fn every_vcpu_has_its_own_apic_id_and_the_first_has_0() {
        for nodes in 1..=9 {
            for cpus in 1..=100 {
                let topology = Topology::new(cpus, nodes, 1024).expect("it fits");
                let mut ids: Vec<u32> = topology.places().map(|place| place.apic_id).collect();
                assert_eq!(ids[0], 0);
                ids.dedup();
                assert!(ids.is_sorted(), "{nodes} {cpus} {ids:?}");
                assert_eq!(ids.len(), cpus as usize, "{nodes} {cpus}");
                let cores: u32 = topology
                    .places()
                    .filter(|place| place.core == 0)
                    .map(|place| place.cores)
                    .sum();
                assert_eq!(cores, cpus, "{nodes} {cpus}");
            }
        }
    }

    #[test]
    fn what_needs_an_x2apic_is_refused_with_the_limit() {
        assert!(Topology::new(255, 1, 1024).is_ok());
        for (cpus, nodes, kvm, limit, by_kvm) in [
            (256, 1, 1024, 255, false),
            (0, 1, 1024, 255, false),
            (9, 1, 8, 8, true),
            (255, 1, 254, 254, true),
        ] {
            let error = Topology::new(cpus, nodes, kvm).expect_err("too many");
            let BootError::VcpuCount {
                max, by_kvm: found, ..
            } = error
            else {
                panic!("{error}");
            };
            assert_eq!((max, found), (limit, by_kvm), "{error}");
        }
        // Three packages of 64 and a fourth with 63.
        assert!(Topology::new(255, 4, 1024).is_ok());
        assert!(Topology::new(200, 3, 1024).is_err());
    }
}
