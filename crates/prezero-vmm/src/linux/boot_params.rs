//! What a kernel is told: the zero page of the Linux boot protocol, or PVH's start info.

use linux_loader::loader::bootparam::{boot_e820_entry, boot_params, setup_header};
use linux_loader::loader::elf::start_info::{
    hvm_memmap_table_entry, hvm_modlist_entry, hvm_start_info,
};

use super::layout::{CMDLINE, MEMORY_MAP, MODULE_LIST, RSDP};
use super::memory_map::MapEntry;

/// What both protocols tell.
#[derive(Debug)]
pub(super) struct Told<'a> {
    pub(super) map: &'a [MapEntry],
    /// Address and length of the initramfs.
    pub(super) initramfs: Option<(u64, u64)>,
    pub(super) cmdline_len: u64,
}

/// Values of fields of the setup header (Documentation/arch/x86/boot.rst).
const LOADER_UNDEFINED: u8 = 0xff;
const BOOT_FLAG: u16 = 0xaa55;
const HEADER_MAGIC: u32 = 0x5372_6448;
const ALIGNMENT: u32 = 0x100_0000;

/// The lower half of a number that is passed in two.
fn low(number: u64) -> u32 {
    u32::try_from(number & 0xffff_ffff).unwrap_or(0)
}

/// The zero page. `header` is the kernel's own, if its file had one.
pub(super) fn zero_page(told: &Told<'_>, header: Option<setup_header>) -> boot_params {
    let mut params = boot_params {
        hdr: header.unwrap_or(setup_header {
            boot_flag: BOOT_FLAG,
            header: HEADER_MAGIC,
            kernel_alignment: ALIGNMENT,
            ..Default::default()
        }),
        acpi_rsdp_addr: RSDP,
        ..Default::default()
    };
    params.hdr.type_of_loader = LOADER_UNDEFINED;
    params.hdr.cmd_line_ptr = low(CMDLINE);
    params.hdr.cmdline_size = low(told.cmdline_len + 1);
    if let Some((gpa, len)) = told.initramfs {
        params.hdr.ramdisk_image = low(gpa);
        params.hdr.ramdisk_size = low(len);
        params.ext_ramdisk_image = low(gpa >> 32);
        params.ext_ramdisk_size = low(len >> 32);
    }
    for (to, entry) in params.e820_table.iter_mut().zip(told.map) {
        *to = boot_e820_entry {
            addr: entry.gpa,
            size: entry.len,
            r#type: entry.kind,
        };
    }
    params.e820_entries = u8::try_from(told.map.len()).unwrap_or(u8::MAX);
    params
}

/// The start info with its list of modules, which are the initramfs, and its memory map.
pub(super) fn start_info(
    told: &Told<'_>,
) -> (
    hvm_start_info,
    Option<hvm_modlist_entry>,
    Vec<hvm_memmap_table_entry>,
) {
    const MAGIC: u32 = 0x336e_c578;
    const VERSION: u32 = 1;
    let module = told.initramfs.map(|(paddr, size)| hvm_modlist_entry {
        paddr,
        size,
        ..Default::default()
    });
    let map = told.map.iter().map(|entry| hvm_memmap_table_entry {
        addr: entry.gpa,
        size: entry.len,
        type_: entry.kind,
        reserved: 0,
    });
    let map: Vec<_> = map.collect();
    let info = hvm_start_info {
        magic: MAGIC,
        version: VERSION,
        nr_modules: u32::from(module.is_some()),
        modlist_paddr: module.map_or(0, |_| MODULE_LIST),
        cmdline_paddr: CMDLINE,
        rsdp_paddr: RSDP,
        memmap_paddr: MEMORY_MAP,
        memmap_entries: u32::try_from(map.len()).unwrap_or(u32::MAX),
        ..Default::default()
    };
    (info, module, map)
}
