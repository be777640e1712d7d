//! The probe guest's machine code.
//!
//! It runs in ring 3 of long mode, at whatever address it is copied to, and uses no stack: it calls nothing, and
//! without an interrupt controller nothing interrupts it. It speaks to the host through three ports, always 32 bits
//! wide:
//!
//! * [`PORT_ALIVE`], once, first;
//! * [`PORT_PROGRESS`], after each stretch of at most [`STRETCH_BYTES`]: the stretch's length in 4 KiB pages;
//! * [`PORT_DONE`], once, last, when its counts are in the mailbox. It is never resumed after that.
//!
//! ```text
//! say alive
//! for each piece:
//!     for each stretch of it:
//!         for each 64-byte block: OR its eight words; if not zero, count its non-zero bytes and note the first ever
//!         say progress
//! write counts to the mailbox; say done
//! ```

use std::arch::global_asm;

use super::mailbox::{FIRST, NONZERO, PIECE_COUNT, PIECES, SCANNED};

/// Says that the guest executes instructions.
pub(crate) const PORT_ALIVE: u16 = 0x5e0;
/// Says how many more 4 KiB pages have been scanned.
pub(crate) const PORT_PROGRESS: u16 = 0x5e4;
/// Says that the counts are in the mailbox.
pub(crate) const PORT_DONE: u16 = 0x5e8;

/// Bytes between two signs of life. Under a KVM that emulates every instruction (3 million a second) the worst case,
/// a stretch of only non-zero bytes, takes about 6 s; on a CPU that runs the guest natively it takes under 2 ms.
pub(crate) const STRETCH_BYTES: u32 = 8 << 20;

global_asm!(
    ".pushsection .rodata.prezero_probe, \"a\", @progbits",
    ".globl prezero_probe_start",
    ".globl prezero_probe_end",
    ".hidden prezero_probe_start",
    ".hidden prezero_probe_end",
    ".p2align 6",
    "prezero_probe_start:",
    // In:  rdi  this vCPU's mailbox
    // Use: rsi  next piece           r8   pieces left
    //      rbx  cursor               r9   bytes of the piece beyond this stretch
    //      r10  end of the stretch   r11  its length
    //      r12  bytes scanned        r13  non-zero bytes
    //      r14  first non-zero address, all ones if none
    //      r15  0x7f in every byte   rbp  0x80 in every byte
    "    mov     edx, {alive}",
    "    xor     eax, eax",
    "    out     dx, eax",
    "    xor     r12d, r12d",
    "    xor     r13d, r13d",
    "    mov     r14, -1",
    "    mov     rsi, [rdi + {pieces}]",
    "    mov     r8, [rdi + {piece_count}]",
    "    movabs  r15, 0x7f7f7f7f7f7f7f7f",
    "    movabs  rbp, 0x8080808080808080",
    // The next piece: two words, address and length.
    "20:",
    "    test    r8, r8",
    "    jz      90f",
    "    dec     r8",
    "    mov     rbx, [rsi]",
    "    mov     r9, [rsi + 8]",
    "    add     rsi, 16",
    // The next stretch of the piece: the smaller of what is left and STRETCH_BYTES.
    "30:",
    "    test    r9, r9",
    "    jz      20b",
    "    mov     r11d, {stretch}",
    "    cmp     r9, r11",
    "    cmovb   r11, r9",
    "    sub     r9, r11",
    "    lea     r10, [rbx + r11]",
    // Blocks of 64 bytes, in two chains so that the ORs do not wait for one another. Plain loads: no CPU lacks them,
    // and one CPU's memory bandwidth is reached with them. The padding is executed, and a data section's would be
    // zeros.
    "    .p2align 6, 0x90",
    "40:",
    "    mov     rax, [rbx]",
    "    mov     rcx, [rbx + 8]",
    "    or      rax, [rbx + 16]",
    "    or      rcx, [rbx + 24]",
    "    or      rax, [rbx + 32]",
    "    or      rcx, [rbx + 40]",
    "    or      rax, [rbx + 48]",
    "    or      rcx, [rbx + 56]",
    "    or      rax, rcx",
    "    jnz     60f",
    "50:",
    "    add     rbx, 64",
    "    cmp     rbx, r10",
    "    jb      40b",
    // The stretch is done: tell the host.
    "    add     r12, r11",
    "    mov     rax, r11",
    "    shr     rax, 12",
    "    mov     edx, {progress}",
    "    out     dx, eax",
    "    jmp     30b",
    // A block that is not zero: word by word, rcx is the offset.
    "60:",
    "    xor     ecx, ecx",
    "70:",
    "    mov     rax, [rbx + rcx]",
    "    test    rax, rax",
    "    jz      80f",
    "    cmp     r14, -1",
    "    jne     75f",
    // Little endian: the lowest bit that is set is in the byte with the lowest address.
    "    bsf     rdx, rax",
    "    shr     edx, 3",
    "    lea     r14, [rbx + rcx]",
    "    add     r14, rdx",
    // Bit 7 of each byte becomes 1 if the byte is not zero: adding 0x7f to its low seven bits carries into it, or it
    // was set.
    "75:",
    "    mov     rdx, rax",
    "    and     rdx, r15",
    "    add     rdx, r15",
    "    or      rdx, rax",
    "    and     rdx, rbp",
    // The multiplication adds the eight bytes, now 0 or 1 each, into the highest.
    "    shr     rdx, 7",
    "    movabs  rax, 0x0101010101010101",
    "    imul    rdx, rax",
    "    shr     rdx, 56",
    "    add     r13, rdx",
    "80:",
    "    add     ecx, 8",
    "    cmp     ecx, 64",
    "    jb      70b",
    "    jmp     50b",
    // The end: counts first, then the word that makes the host read them.
    "90:",
    "    mov     [rdi + {scanned}], r12",
    "    mov     [rdi + {nonzero}], r13",
    "    mov     [rdi + {first}], r14",
    "    mov     edx, {done}",
    "    xor     eax, eax",
    "    out     dx, eax",
    // Not reached. A ud2 is a triple fault, which the host reports, where a jump to itself would be ten seconds of
    // silence.
    "    ud2",
    "prezero_probe_end:",
    ".popsection",
    alive = const PORT_ALIVE,
    progress = const PORT_PROGRESS,
    done = const PORT_DONE,
    stretch = const STRETCH_BYTES,
    pieces = const PIECES,
    piece_count = const PIECE_COUNT,
    scanned = const SCANNED,
    nonzero = const NONZERO,
    first = const FIRST,
);

#[cfg(test)]
mod tests {
    use crate::sys;

    #[test]
    fn fits_half_a_page_and_ends_in_ud2() {
        let code = sys::probe_code();
        assert!(code.len() > 100 && code.len() <= 2048, "{}", code.len());
        assert_eq!(code[code.len() - 2..], [0x0f, 0x0b]);
    }
}
