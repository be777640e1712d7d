//! ELF kernels: where their segments go, and whether they have a PVH entry point.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::error::BootError;
use super::layout::HIGH_RAM;

pub(super) const MAGIC: [u8; 4] = *b"\x7fELF";

const HEADER_BYTES: usize = 64;
const SEGMENT_BYTES: usize = 56;
const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const EXECUTABLE: u16 = 2;
const X86_64: u16 = 62;
const LOAD: u32 = 1;
const NOTE: u32 = 4;
/// `XEN_ELFNOTE_PHYS32_ENTRY`: the 32-bit entry point of PVH.
const PVH_NOTE: u32 = 18;
/// A kernel's notes have some hundred bytes.
const NOTES_MAX: u64 = 1 << 20;
/// Where a Linux kernel's own addresses begin; a program's are far below.
const KERNEL_HALF: u64 = 1 << 63;

/// What has to be known of an ELF kernel. Addresses are guest-physical.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ElfKernel {
    pub(super) entry: u64,
    pub(super) pvh_entry: Option<u32>,
    pub(super) first: u64,
    /// After the last byte that is in the file.
    pub(super) file_end: u64,
    /// After the last byte that it uses.
    pub(super) end: u64,
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut number = [0; N];
    if let Some(found) = bytes.get(at..at + N) {
        number.copy_from_slice(found);
    }
    number
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(number(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(number(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(number(bytes, at))
}

/// Reads headers and notes of an ELF file of `len` bytes.
pub(super) fn check(path: &Path, file: &File, len: u64) -> Result<ElfKernel, BootError> {
    let not = |why| BootError::NotAKernel {
        path: path.into(),
        why,
    };
    let truncated = |needed: u64| BootError::Truncated {
        path: path.into(),
        len,
        needed,
    };
    let read = |at: u64, bytes: u64| {
        let needed = at.checked_add(bytes).ok_or(not("its headers overflow"))?;
        if needed > len {
            return Err(truncated(needed));
        }
        let mut buffer = vec![0; usize::try_from(bytes).unwrap_or(0)];
        match file.read_exact_at(&mut buffer, at) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(truncated(needed)),
            Err(source) => Err(BootError::Unreadable {
                what: "kernel",
                path: path.into(),
                source,
            }),
            Ok(()) => Ok(buffer),
        }
    };
    let header = read(0, HEADER_BYTES as u64)?;
    if header[4] != CLASS_64 || header[5] != LITTLE_ENDIAN || u16_at(&header, 18) != X86_64 {
        return Err(not("it is an ELF file of another architecture"));
    }
    if u16_at(&header, 16) != EXECUTABLE {
        return Err(not("it is an ELF file to be linked, not to be started"));
    }
    if usize::from(u16_at(&header, 54)) != SEGMENT_BYTES {
        return Err(not("its segment headers have another size"));
    }
    let count = u64::from(u16_at(&header, 56));
    let segments = read(u64_at(&header, 32), count * SEGMENT_BYTES as u64)?;
    let mut kernel = ElfKernel {
        entry: u64_at(&header, 24),
        pvh_entry: None,
        first: u64::MAX,
        file_end: 0,
        end: 0,
    };
    let mut highest = 0;
    for segment in segments.chunks_exact(SEGMENT_BYTES) {
        let (kind, offset, virt) = (u32_at(segment, 0), u64_at(segment, 8), u64_at(segment, 16));
        let (phys, in_file, in_memory) = (
            u64_at(segment, 24),
            u64_at(segment, 32),
            u64_at(segment, 40),
        );
        let needed = offset
            .checked_add(in_file)
            .ok_or(not("its segments overflow"))?;
        if matches!(kind, LOAD | NOTE) && needed > len {
            return Err(truncated(needed));
        }
        if kind == NOTE && in_file <= NOTES_MAX {
            let notes = read(offset, in_file)?;
            kernel.pvh_entry = kernel.pvh_entry.or(pvh_entry(&notes));
        }
        if kind == LOAD && in_memory > 0 {
            let end = phys.checked_add(in_memory.max(in_file));
            kernel.end = kernel.end.max(end.ok_or(not("its segments overflow"))?);
            kernel.first = kernel.first.min(phys);
            kernel.file_end = kernel.file_end.max(phys + in_file);
            highest = highest.max(virt);
        }
    }
    if kernel.end == 0 {
        return Err(not("it has no segment to load"));
    }
    if kernel.pvh_entry.is_none() && highest < KERNEL_HALF {
        return Err(not("it is a program"));
    }
    if kernel.first < HIGH_RAM {
        return Err(not("it wants to be loaded below 1 MiB"));
    }
    Ok(kernel)
}

/// The entry point in the note of PVH, if there is one. Names and descriptors are padded to 4 bytes.
fn pvh_entry(mut notes: &[u8]) -> Option<u32> {
    while notes.len() >= 12 {
        let padded = |at| {
            u32_at(notes, at)
                .checked_next_multiple_of(4)
                .map(|n| n as usize)
        };
        let (name_len, description_len) = (padded(0)?, padded(4)?);
        let (name, rest) = notes[12..].split_at_checked(name_len)?;
        let (description, rest) = rest.split_at_checked(description_len)?;
        if u32_at(notes, 8) == PVH_NOTE && name.starts_with(b"Xen\0") && description.len() >= 4 {
            return Some(u32_at(description, 0));
        }
        notes = rest;
    }
    None
}
