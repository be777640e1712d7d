//! The DSDT: devices that cannot be found otherwise, and the sleep state that is power off. It has no method to run.

use acpi_tables::Aml;
use acpi_tables::aml::{Device, EISAName, IO, Interrupt, Name, Package, ResourceTemplate, Scope};
use acpi_tables::sdt::Sdt;

use super::{OEM_ID, OEM_REVISION, OEM_TABLE_ID};
use crate::linux::layout::{PVPANIC_PORT, S5_SLEEP_TYPE, SERIAL_IRQ, SERIAL_PORT, SERIAL_PORTS};

/// Bytes of a table's header.
const HEADER: u32 = 36;
/// From 2 on integers have 64 bits.
const REVISION: u8 = 2;

pub(super) fn table() -> Vec<u8> {
    let mut table = Sdt::new(
        *b"DSDT",
        HEADER,
        REVISION,
        OEM_ID,
        OEM_TABLE_ID,
        OEM_REVISION,
    );
    let mut code = Vec::new();
    devices(&mut code);
    let zero = 0_u8;
    let sleep = Package::new(vec![&S5_SLEEP_TYPE, &zero, &zero, &zero]);
    Name::new("_S5_".into(), &sleep).to_aml_bytes(&mut code);
    table.append_slice(&code);
    table.as_slice().to_vec()
}

fn devices(code: &mut Vec<u8>) {
    let ports = u8::try_from(SERIAL_PORTS).unwrap_or(u8::MAX);
    Scope::new(
        "_SB_".into(),
        vec![
            &Device::new(
                "COM1".into(),
                vec![
                    &Name::new("_HID".into(), &EISAName::new("PNP0501")),
                    &Name::new("_UID".into(), &0_u8),
                    &Name::new(
                        "_CRS".into(),
                        &ResourceTemplate::new(vec![
                            &IO::new(SERIAL_PORT, SERIAL_PORT, 1, ports),
                            &Interrupt::new(true, true, false, false, SERIAL_IRQ),
                        ]),
                    ),
                ],
            ),
            &Device::new(
                "PEVT".into(),
                vec![
                    &Name::new("_HID".into(), &"QEMU0001"),
                    &Name::new(
                        "_CRS".into(),
                        &ResourceTemplate::new(vec![&IO::new(PVPANIC_PORT, PVPANIC_PORT, 1, 1)]),
                    ),
                ],
            ),
        ],
    )
    .to_aml_bytes(code);
}
