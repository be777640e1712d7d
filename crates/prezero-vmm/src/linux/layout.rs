//! Where things are in a Linux guest's physical memory, and its ports and interrupts.
//!
//! ```text
//!        0 ┌───────────────────────┐
//!    0x500 │ GDT                   │ for the first instructions only
//!   0x6000 │ PVH start info        │ with its modules and memory map
//!   0x7000 │ boot_params           │ the "zero page" of the Linux boot protocol
//!   0x9000 │ page tables           │ 3 pages: the first GiB, mapped to itself
//!  0x20000 │ command line          │
//!  0x9fc00 ├───────────────────────┤ end of usable low memory
//!  0xe0000 │ RSDP, ACPI tables     │ reserved in the memory map
//! 0x100000 ├───────────────────────┤
//!          │ kernel                │
//!          │ …                     │
//!          │ initramfs             │ as high as it may be
//!          ├───────────────────────┤ 3 GiB at the latest: devices
//! ```

/// First guest address that the memory map does not offer below 1 MiB, where a BIOS has its data area.
pub(crate) const LOW_RAM_END: u64 = 0x9_fc00;
/// Where usable memory goes on.
pub(crate) const HIGH_RAM: u64 = 0x10_0000;

pub(crate) const GDT: u64 = 0x500;
pub(crate) const START_INFO: u64 = 0x6000;
pub(crate) const MODULE_LIST: u64 = 0x6040;
pub(crate) const MEMORY_MAP: u64 = 0x6100;
pub(crate) const ZERO_PAGE: u64 = 0x7000;
/// The root; the two other tables follow it.
pub(crate) const PAGE_TABLES: u64 = 0x9000;
/// The page tables map addresses below this, 1 GiB, and a kernel has to lie there.
pub(crate) const MAPPED_END: u64 = 1 << 30;
pub(crate) const CMDLINE: u64 = 0x2_0000;

/// The root pointer is where a BIOS has it, so that a kernel that is told no address finds it too.
pub(crate) const RSDP: u64 = 0xe_0000;
pub(crate) const ACPI_TABLES: u64 = 0xe_0040;

pub(crate) const LOCAL_APIC: u32 = 0xfee0_0000;
pub(crate) const IO_APIC: u32 = 0xfec0_0000;

/// COM1.
pub(crate) const SERIAL_PORT: u16 = 0x3f8;
pub(crate) const SERIAL_PORTS: u16 = 8;
pub(crate) const SERIAL_IRQ: u32 = 4;
/// The keyboard controller, of which only the reset line exists.
pub(crate) const I8042_DATA: u16 = 0x60;
pub(crate) const I8042_COMMAND: u16 = 0x64;
/// Where a guest says that it panicked: QEMU's pvpanic device on the ISA bus (docs/specs/pvpanic.rst).
pub(crate) const PVPANIC_PORT: u16 = 0x505;
/// A guest program that writes here ends the machine, as with QEMU's isa-debug-exit.
pub(crate) const DEBUG_EXIT_PORT: u16 = 0xf4;
/// Sleep control, sleep status and reset registers of hardware-reduced ACPI, a byte each.
pub(crate) const SLEEP_CONTROL_PORT: u16 = 0x600;
pub(crate) const SLEEP_STATUS_PORT: u16 = 0x601;
pub(crate) const RESET_PORT: u16 = 0x602;
/// Written to the reset register.
pub(crate) const RESET_VALUE: u8 = 1;
/// The sleep type of \_S5, power off.
pub(crate) const S5_SLEEP_TYPE: u8 = 5;

/// Where a kernel says which kind of reset it wants, a word: "warm" or zero.
pub(crate) const RESET_FLAG: u64 = 0x472;
pub(crate) const RESET_FLAG_WARM: u16 = 0x1234;
