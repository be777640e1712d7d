//! SRAT and SLIT: the nodes of CPUs and memory, and how far they are apart.

use acpi_tables::Aml;
use acpi_tables::sdt::Sdt;
use acpi_tables::slit::SLIT;
use acpi_tables::srat::MemoryAffinity;

use super::super::GuestNode;
use super::super::memory_map::joined;
use super::super::topology::Topology;
use super::{OEM_ID, OEM_REVISION, OEM_TABLE_ID, bytes};

/// Header, a word that is 1, and eight reserved bytes.
const SRAT_HEADER: u32 = 48;
const SRAT_REVISION: u8 = 3;

/// The crate's own SRAT has no entries for local APICs.
pub(super) fn srat(topology: &Topology, nodes: &[GuestNode]) -> Vec<u8> {
    let mut table = Sdt::new(
        *b"SRAT",
        SRAT_HEADER,
        SRAT_REVISION,
        OEM_ID,
        OEM_TABLE_ID,
        OEM_REVISION,
    );
    table.write_u32(36, 1);
    let mut entries = Vec::new();
    for place in topology.places() {
        entries.extend(local_apic(place.apic_id, place.node));
    }
    for (node, of_node) in (0..).zip(nodes) {
        for (gpa, len) in joined(&of_node.ram) {
            MemoryAffinity::new(node, gpa, len)
                .enabled()
                .to_aml_bytes(&mut entries);
        }
    }
    table.append_slice(&entries);
    table.as_slice().to_vec()
}

/// "Processor Local APIC/SAPIC Affinity Structure", ACPI 6.5, 5.2.16.1.
fn local_apic(apic_id: u32, node: u32) -> [u8; 16] {
    const KIND: u8 = 0;
    const LEN: u8 = 16;
    const ENABLED: u8 = 1;
    let [node_0, node_1, node_2, node_3] = node.to_le_bytes();
    // Below 255, or the topology had been refused.
    let apic_id = u8::try_from(apic_id).unwrap_or(u8::MAX);
    [
        KIND, LEN, node_0, apic_id, ENABLED, 0, 0, 0, 0, node_1, node_2, node_3, 0, 0, 0, 0,
    ]
}

/// A distance that Linux accepts: 10 within a node and more between two (`slit_valid`).
fn distance(node: &GuestNode, to: usize) -> u8 {
    node.distances.get(to).copied().unwrap_or(20).max(11)
}

pub(super) fn slit(nodes: &[GuestNode]) -> Vec<u8> {
    let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
    let mut slit = SLIT::new(OEM_ID, OEM_TABLE_ID, OEM_REVISION, count);
    for (from, node) in nodes.iter().enumerate() {
        for to in from + 1..nodes.len() {
            slit.set_distance(from, to, distance(node, to));
        }
    }
    bytes(&slit)
}
