//! ACPI tables: where the interrupt controllers are, which CPUs and memory are on which node, and how to power off.
//!
//! The platform is hardware-reduced: it has no fixed power management hardware, only a sleep and a reset register.
//! Linux then uses neither the old interrupt controller nor the old timer, both of which KVM has all the same, for
//! kernels that are told `acpi=off`.
//!
//! ```text
//! RSDP ─▶ XSDT ─┬▶ FADT ─▶ DSDT   serial port, panic device, \_S5
//!               ├▶ MADT           local APICs, I/O APIC
//!               ├▶ SRAT           nodes of CPUs and memory    only with several
//!               └▶ SLIT           how far they are apart      nodes
//! ```

mod dsdt;
mod nodes;
#[cfg(test)]
mod tests;

use acpi_tables::Aml;
use acpi_tables::fadt::{FADTBuilder, Flags};
use acpi_tables::gas::{AccessSize, AddressSpace, GAS};
use acpi_tables::madt::{
    EnabledStatus, IoApic, LocalInterruptController, MADT, ProcessorLocalApic,
};
use acpi_tables::rsdp::Rsdp;
use acpi_tables::xsdt::XSDT;

use super::GuestNode;
use super::error::BootError;
use super::layout::{
    ACPI_TABLES, HIGH_RAM, IO_APIC, LOCAL_APIC, RESET_PORT, RESET_VALUE, RSDP, SLEEP_CONTROL_PORT,
    SLEEP_STATUS_PORT,
};
use super::topology::Topology;

const OEM_ID: [u8; 6] = *b"PREZRO";
const OEM_TABLE_ID: [u8; 8] = *b"PREZEROV";
const OEM_REVISION: u32 = 1;

/// `ACPI_FADT_NO_VGA`, `ACPI_FADT_NO_ASPM` and `ACPI_FADT_NO_CMOS_RTC`; the bit for a keyboard controller is not set.
const BOOT_FLAGS: u16 = 1 << 2 | 1 << 4 | 1 << 5;

/// Tables by their guest addresses.
#[derive(Debug)]
pub(super) struct Tables(Vec<(u64, Vec<u8>)>);

impl Tables {
    /// The tables of a machine, if they fit into the area that the memory map reserves for them.
    pub(super) fn build(topology: &Topology, nodes: &[GuestNode]) -> Result<Tables, BootError> {
        let end = |nodes: &[GuestNode]| Tables::of(topology, nodes).end();
        let tables = Tables::of(topology, nodes);
        if tables.end() <= HIGH_RAM {
            return Ok(tables);
        }
        // Their length grows with every node.
        let (mut max, mut too_many) = (1, nodes.len());
        while max + 1 < too_many {
            let middle = max.midpoint(too_many);
            match end(&nodes[..middle]) <= HIGH_RAM {
                true => max = middle,
                false => too_many = middle,
            }
        }
        Err(BootError::TooManyNodes {
            nodes: nodes.len(),
            bytes: tables.end() - ACPI_TABLES,
            room: HIGH_RAM - ACPI_TABLES,
            max,
        })
    }

    /// The first address after them.
    fn end(&self) -> u64 {
        let ends = self.iter().map(|(gpa, bytes)| gpa + bytes.len() as u64);
        ends.max().unwrap_or(ACPI_TABLES)
    }

    fn of(topology: &Topology, nodes: &[GuestNode]) -> Tables {
        let mut tables = Tables(Vec::new());
        let mut next = ACPI_TABLES;
        let mut add = |tables: &mut Tables, bytes: Vec<u8>| {
            let at = next;
            next = (at + bytes.len() as u64).next_multiple_of(16);
            tables.0.push((at, bytes));
            at
        };
        let dsdt = add(&mut tables, dsdt::table());
        let mut listed = vec![
            add(&mut tables, fadt(dsdt)),
            add(&mut tables, madt(topology)),
        ];
        if nodes.len() > 1 {
            listed.push(add(&mut tables, nodes::srat(topology, nodes)));
            listed.push(add(&mut tables, nodes::slit(nodes)));
        }
        let mut xsdt = XSDT::new(OEM_ID, OEM_TABLE_ID, OEM_REVISION);
        listed.iter().for_each(|&table| xsdt.add_entry(table));
        let xsdt = add(&mut tables, bytes(&xsdt));
        tables.0.push((RSDP, bytes(&Rsdp::new(OEM_ID, xsdt))));
        tables
    }

    /// Guest address and bytes of each.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.0.iter().map(|(gpa, bytes)| (*gpa, bytes.as_slice()))
    }
}

fn bytes(table: &impl Aml) -> Vec<u8> {
    let mut bytes = Vec::new();
    table.to_aml_bytes(&mut bytes);
    bytes
}

fn fadt(dsdt: u64) -> Vec<u8> {
    let port = |port: u16| {
        GAS::new(
            AddressSpace::SystemIo,
            8,
            0,
            AccessSize::ByteAccess,
            port.into(),
        )
    };
    let mut fadt = FADTBuilder::new(OEM_ID, OEM_TABLE_ID, OEM_REVISION)
        .dsdt_64(dsdt)
        .flag(Flags::Wbinvd)
        .flag(Flags::PwrButton)
        .flag(Flags::SlpButton)
        .flag(Flags::ResetRegSup)
        .flag(Flags::Headless)
        .flag(Flags::HwReducedAcpi);
    fadt.iapc_boot_arch = BOOT_FLAGS.into();
    fadt.reset_reg = port(RESET_PORT);
    fadt.reset_value = RESET_VALUE;
    fadt.sleep_control_reg = port(SLEEP_CONTROL_PORT);
    fadt.sleep_status_reg = port(SLEEP_STATUS_PORT);
    fadt.hypervisor_vendor_identity = u64::from_le_bytes(*b"PREZERO\0").into();
    bytes(&fadt.finalize())
}

fn madt(topology: &Topology) -> Vec<u8> {
    let local = LocalInterruptController::Address(LOCAL_APIC);
    let mut madt = MADT::new(OEM_ID, OEM_TABLE_ID, OEM_REVISION, local);
    for (cpu, place) in (0..).zip(topology.places()) {
        // Both are below 255, or the topology had been refused.
        let byte = |number: u32| u8::try_from(number).unwrap_or(u8::MAX);
        madt.add_structure(ProcessorLocalApic::new(
            byte(cpu),
            byte(place.apic_id),
            EnabledStatus::Enabled,
        ));
    }
    madt.add_structure(IoApic::new(0, IO_APIC, 0));
    bytes(&madt)
}
