//! Small kernels: ELF files of some instructions of 32-bit code, which are entered by PVH as Linux is.

/// Where they are loaded and entered: 1 MiB.
pub const KERNEL_AT: u32 = 1 << 20;

/// A loop that never ends: `jmp .`
pub const FOREVER: [u8; 2] = [0xeb, 0xfe];

/// A triple fault: `ud2`, and nobody to handle it.
pub const FAULT: [u8; 2] = [0x0f, 0x0b];

const HEADER_BYTES: u16 = 64;
const SEGMENT_BYTES: u16 = 56;
const LOAD: u32 = 1;
const NOTE: u32 = 4;

/// An ELF file of one segment with this code, and a note that says where PVH enters it.
#[must_use]
pub fn pvh_kernel(code: &[u8]) -> Vec<u8> {
    let number = |number: u32| number.to_le_bytes();
    let note = [
        number(4),
        number(4),
        number(18),
        *b"Xen\0",
        number(KERNEL_AT),
    ]
    .concat();
    let note_at = u64::from(HEADER_BYTES + 2 * SEGMENT_BYTES);
    let code_at = note_at + note.len() as u64;
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    // An executable for x86-64.
    file.extend([2, 0, 62, 0, 1, 0, 0, 0]);
    file.extend(u64::from(KERNEL_AT).to_le_bytes());
    file.extend(u64::from(HEADER_BYTES).to_le_bytes());
    file.extend([0; 12]);
    for field in [HEADER_BYTES, SEGMENT_BYTES, 2, 0, 0, 0] {
        file.extend(field.to_le_bytes());
    }
    for (kind, at, len) in [(LOAD, code_at, code.len()), (NOTE, note_at, note.len())] {
        let (len, to) = (len as u64, u64::from(KERNEL_AT));
        file.extend(number(kind));
        file.extend(number(5));
        for field in [at, to, to, len, len, 1] {
            file.extend(field.to_le_bytes());
        }
    }
    file.extend(note);
    file.extend(code);
    file
}

/// Code that writes a byte to a port: `mov edx, port; mov al, value; out dx, al`
#[must_use]
pub fn write_port(port: u16, value: u8) -> Vec<u8> {
    let [low, high] = port.to_le_bytes();
    vec![0xba, low, high, 0, 0, 0xb0, value, 0xee]
}

/// Code that writes text to the serial port COM1.
#[must_use]
pub fn print(text: &str) -> Vec<u8> {
    text.bytes()
        .flat_map(|byte| write_port(0x3f8, byte))
        .collect()
}
