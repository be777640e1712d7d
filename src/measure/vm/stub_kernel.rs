//! A kernel that does nothing, for monitors that make no machine without one: an ELF file with the note
//! of the PVH boot protocol (Xen's docs/misc/pvh.pandoc), whose entry halts for ever.

/// Where it is loaded, in bytes: as Linux is.
const ADDR: u64 = 1 << 20;
/// `cli`, `hlt`, and back to it, in 32 bit mode.
const CODE: [u8; 4] = [0xfa, 0xf4, 0xeb, 0xfd];

/// Sizes of the parts, in bytes.
const ELF_HEADER: u64 = 64;
const PROGRAM_HEADER: u64 = 56;
const NOTE: u64 = 24;

/// Where they are in the file.
const NOTE_AT: u64 = ELF_HEADER + 2 * PROGRAM_HEADER;
const CODE_AT: u64 = NOTE_AT + NOTE;

/// The file.
pub(super) fn file() -> Vec<u8> {
    const PT_LOAD: u32 = 1;
    const PT_NOTE: u32 = 4;
    let mut file = Vec::new();
    // Class 64, little endian, version 1, no ABI of an operating system.
    file.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    // An executable for x86-64, version 1.
    file.extend([2, 0, 62, 0, 1, 0, 0, 0]);
    // The entry, where the program headers are, and that there are no sections.
    for word in [ADDR, ELF_HEADER, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    // Sizes and numbers of headers.
    for half in [ELF_HEADER, PROGRAM_HEADER, 2, 0, 0, 0] {
        file.extend(&half.to_le_bytes()[..2]);
    }
    for (kind, flags, at, len) in [
        (PT_LOAD, 5_u32, CODE_AT, CODE.len() as u64),
        (PT_NOTE, 4, NOTE_AT, NOTE),
    ] {
        file.extend(kind.to_le_bytes());
        file.extend(flags.to_le_bytes());
        let align = 4;
        for word in [at, ADDR, ADDR, len, len, align] {
            file.extend(word.to_le_bytes());
        }
    }
    // XEN_ELFNOTE_PHYS32_ENTRY: the lengths of name and value, the kind, the name, the entry.
    for word in [4_u32, 8, 18] {
        file.extend(word.to_le_bytes());
    }
    file.extend(b"Xen\0");
    file.extend(ADDR.to_le_bytes());
    file.extend(CODE);
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(file: &[u8], at: u64, len: usize) -> u64 {
        let at = usize::try_from(at).expect("small");
        let bytes = file[at..at + len].iter().rev();
        bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// The fields of elf(5), read at their offsets.
    #[test]
    fn its_headers_lead_to_its_parts() {
        let file = file();
        assert_eq!(file.len() as u64, CODE_AT + CODE.len() as u64);
        let field = |at, len| number(&file, at, len);
        let (phoff, phentsize, phnum) = (field(32, 8), field(54, 2), field(56, 2));
        assert_eq!((phoff, phentsize, phnum), (64, 56, 2));
        assert_eq!((field(18, 2), field(24, 8), field(52, 2)), (62, ADDR, 64));
        // Offset, physical address and length of what is loaded.
        let load = [field(64 + 8, 8), field(64 + 24, 8), field(64 + 32, 8)];
        assert_eq!(load, [CODE_AT, ADDR, 4]);
        assert_eq!(file[file.len() - CODE.len()..], CODE);
        let note = field(64 + 56 + 8, 8);
        assert_eq!((field(64 + 56, 4), note), (4, NOTE_AT));
        assert_eq!(
            [field(note, 4), field(note + 4, 4), field(note + 8, 4)],
            [4, 8, 18]
        );
        assert_eq!(field(note + 16, 4), ADDR);
    }
}
