use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use prezero_testkit::skip;

use super::super::layout::LOW_RAM_END;
use super::*;

const GIB: u64 = 1 << 30;

fn node(ram: &[(u64, u64)], distances: &[u8]) -> GuestNode {
    GuestNode {
        ram: ram.to_vec(),
        distances: distances.to_vec(),
    }
}

/// The second node is split by the hole, and the last one has no vCPU.
fn nodes() -> [GuestNode; 3] {
    [
        node(&[(0, GIB), (GIB, GIB)], &[10, 21, 31]),
        node(&[(2 * GIB, GIB), (4 * GIB, GIB)], &[21, 10, 10]),
        node(&[(5 * GIB, GIB)], &[31, 10, 10]),
    ]
}

fn tables(cpus: u32, nodes: &[GuestNode]) -> Tables {
    let topology = Topology::new(cpus, nodes.len(), 1024).expect("it fits");
    Tables::build(&topology, nodes).expect("they fit")
}

fn by_name(tables: &Tables) -> BTreeMap<String, (u64, Vec<u8>)> {
    let named = tables.iter().map(|(gpa, bytes)| {
        let name = String::from_utf8_lossy(&bytes[..4]).into_owned();
        (name, (gpa, bytes.to_vec()))
    });
    named.collect()
}

fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    let digits = bytes[at..at + len].iter().rev();
    digits.fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

#[test]
fn every_table_is_whole_and_is_found_from_the_root() {
    for (cpus, nodes, expected) in [
        (1, &nodes()[..1], &["APIC", "FACP"][..]),
        (255, &nodes()[..1], &["APIC", "FACP"][..]),
        (2, &nodes()[..], &["APIC", "FACP", "SLIT", "SRAT"][..]),
    ] {
        let tables = tables(cpus, nodes);
        let named = by_name(&tables);
        let (at, root) = &named["RSD "];
        assert_eq!(
            (*at, sum(root), sum(&root[..20]), root[15]),
            (RSDP, 0, 0, 2)
        );
        let by_address: BTreeMap<u64, &[u8]> = tables.iter().collect();
        let header = |gpa: u64| {
            let table = by_address[&gpa];
            assert_eq!(number(table, 4, 4), table.len() as u64, "{:?}", &table[..4]);
            assert_eq!(sum(table), 0, "{:?}", &table[..4]);
            table
        };
        let list = header(number(root, 24, 8));
        let entries = list[36..].chunks_exact(8);
        let found: Vec<&[u8]> = entries.map(|entry| header(number(entry, 0, 8))).collect();
        let mut names: Vec<String> = found
            .iter()
            .map(|table| String::from_utf8_lossy(&table[..4]).into_owned())
            .collect();
        names.sort();
        assert_eq!(names, expected);
        let fadt = &named["FACP"].1;
        assert_eq!(&header(number(fadt, 140, 8))[..4], b"DSDT");
    }
}

#[test]
fn tables_lie_in_reserved_memory_and_do_not_overlap() {
    let tables = tables(255, &nodes()[..1]);
    let mut places: Vec<(u64, u64)> = tables
        .iter()
        .map(|(gpa, bytes)| (gpa, bytes.len() as u64))
        .collect();
    places.sort_unstable();
    assert!(
        places.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0),
        "{places:x?}"
    );
    let (first, last) = (places[0], places[places.len() - 1]);
    assert!(
        first.0 >= LOW_RAM_END && last.0 + last.1 <= HIGH_RAM,
        "{places:x?}"
    );
}

/// So many nodes of 2 MiB one after the other.
fn small_nodes(count: usize) -> Vec<GuestNode> {
    let at = |n: usize| (n as u64) << 21;
    (0..count).map(|n| node(&[(at(n), 2 << 20)], &[])).collect()
}

#[test]
fn tables_that_do_not_fit_are_refused_with_the_number_of_nodes_that_do() {
    let topology = |nodes| Topology::new(2, nodes, 1024).expect("it fits");
    let build = |nodes| Tables::build(&topology(nodes), &small_nodes(nodes));
    let error = build(400).expect_err("too many");
    let BootError::TooManyNodes {
        bytes, room, max, ..
    } = error
    else {
        panic!("{error}");
    };
    // The distances of 400 nodes alone are 160000.
    assert!(bytes > 160_000 && room == 131_008, "{error}");
    assert_eq!(error.class(), prezero_memory::Class::Usage);
    assert!(
        error
            .fix()
            .is_some_and(|fix| fix.contains(&max.to_string()))
    );
    let last = build(max).expect("so many fit");
    assert!(last.end() <= HIGH_RAM);
    assert!(build(max + 1).is_err());
}

#[test]
fn power_off_and_reset_are_ports_of_a_reduced_platform() {
    let tables = by_name(&tables(1, &nodes()[..1]));
    let fadt = &tables["FACP"].1;
    assert_eq!(fadt.len(), 276);
    assert_ne!(number(fadt, 112, 4) & 1 << 20, 0, "hardware-reduced");
    assert_ne!(number(fadt, 112, 4) & 1 << 10, 0, "has a reset register");
    let port = |at| (fadt[at], fadt[at + 1], number(fadt, at + 4, 8));
    assert_eq!(port(116), (1, 8, 0x602));
    assert_eq!(fadt[128], 1);
    assert_eq!(port(244), (1, 8, 0x600));
    assert_eq!(port(256), (1, 8, 0x601));
}

#[test]
fn affinity_follows_zones_and_topology() {
    let nodes = nodes();
    let tables = by_name(&tables(2, &nodes));
    let srat = &tables["SRAT"].1;
    let mut at = 48;
    let (mut cpus, mut memory) = (Vec::new(), Vec::new());
    while at < srat.len() {
        match (srat[at], srat[at + 1]) {
            (0, 16) => cpus.push((srat[at + 2], srat[at + 3], number(srat, at + 4, 4))),
            (1, 40) => memory.push((
                number(srat, at + 2, 4),
                number(srat, at + 8, 8),
                number(srat, at + 16, 8),
                number(srat, at + 28, 4),
            )),
            other => panic!("entry {other:?}"),
        }
        at += usize::from(srat[at + 1]);
    }
    // Two vCPUs for three nodes: node, APIC id, enabled.
    assert_eq!(cpus, [(0, 0, 1), (1, 1, 1)]);
    assert_eq!(
        memory,
        [
            (0, 0, 2 * GIB, 1),
            (1, 2 * GIB, GIB, 1),
            (1, 4 * GIB, GIB, 1),
            (2, 5 * GIB, GIB, 1),
        ]
    );
    let slit = &tables["SLIT"].1;
    assert_eq!(number(slit, 36, 8), 3);
    // What is no distance between two nodes becomes the least there is.
    assert_eq!(slit[44..], [10, 21, 31, 21, 10, 11, 31, 11, 10]);
}

/// ACPICA's own disassembler reads them, its compiler what that wrote, and both find nothing odd.
#[test]
fn iasl_decodes_every_table() {
    if Command::new("iasl").arg("-v").output().is_err() {
        skip("iasl", "it is not installed");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let mut said = String::new();
    for tables in [tables(3, &nodes()), tables(255, &small_nodes(1))] {
        for (name, (_, table)) in by_name(&tables) {
            if name != "RSD " {
                said.push_str(&decode(dir.path(), &name, &table));
            }
        }
    }
    for expected in [
        "Device (COM1)",
        "Device (PEVT)",
        "Name (_S5, Package (0x04)",
        "Hardware Reduced (V5) : 1",
        "Proximity Domain : 00000002",
        "I/O Apic ID : 00",
    ] {
        assert!(said.contains(expected), "{expected} is not in {said}");
    }
    for odd in [
        "Error",
        "ERROR",
        "Warning",
        "WARNING",
        "Incorrect checksum",
        "Invalid",
    ] {
        assert!(!said.contains(odd), "{odd} is in {said}");
    }
}

fn decode(dir: &Path, name: &str, table: &[u8]) -> String {
    let file = dir.join(name);
    fs::write(&file, table).expect("written");
    let iasl = |arguments: &[&str], file: &Path| {
        let mut iasl = Command::new("iasl");
        let ran = iasl.args(arguments).arg(file).output().expect("iasl runs");
        assert!(ran.status.success(), "{name}: {ran:?}");
        ran
    };
    let decoded = iasl(&["-d"], &file);
    let text = fs::read_to_string(file.with_extension("dsl")).expect("decoded");
    let errors = String::from_utf8_lossy(&decoded.stderr).into_owned();
    // What iasl says of its version and files is no complaint.
    let complaints = errors
        .lines()
        .filter(|line| line.contains("arning") || line.contains("rror"));
    let complaints = complaints.collect::<String>();
    // The compiler looks closer than the disassembler, and counts.
    let compiled = iasl(&[], &file.with_extension("dsl"));
    let counts = String::from_utf8_lossy(&compiled.stdout).into_owned();
    assert!(
        counts.contains("0 Errors, 0 Warnings"),
        "{name}: {counts} {compiled:?}"
    );
    text + &complaints
}
