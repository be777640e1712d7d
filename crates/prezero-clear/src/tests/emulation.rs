//! Loops whose instruction this CPU may lack, in a process that emulates it when it stops there.
//!
//! Each loop runs twice: with its own instruction, which the CPU executes or the handler emulates, and with an undefined
//! instruction of the same length in its place, which no CPU executes. So the loop around the instruction is tested
//! everywhere, and that the handler really stood in for it is counted.

use std::env;
use std::ffi::{c_int, c_void};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{mem, ptr, slice};

use super::runner::check_loop;
use crate::arch::x86_64::{avx512_nt, clzero, movdir64b};
use crate::{GRANULE, Method};

const CHILD: &str = "PREZERO_TEST_CHILD";

/// Instructions that the handler stood in for.
static EMULATED: AtomicUsize = AtomicUsize::new(0);

/// An instruction that stores a line.
#[derive(Clone, Copy, Debug)]
enum Store {
    /// Zeroes, to the line around RAX.
    Clzero,
    /// The line at RDX, to RAX.
    Movdir64b,
    /// ZMM0, to RAX.
    Avx512Nt,
}

/// The bytes of the instruction or of its stand-in.
const ENCODINGS: [(&[u8], Store); 6] = [
    (&[0x0f, 0x01, 0xfc], Store::Clzero),
    (&[0x0f, 0x0b, 0xfc], Store::Clzero),
    (&[0x66, 0x0f, 0x38, 0xf8, 0x02], Store::Movdir64b),
    (&[0x0f, 0x0b, 0x38, 0xf8, 0x02], Store::Movdir64b),
    (&[0x62, 0xf1, 0x7d, 0x48, 0xe7, 0x00], Store::Avx512Nt),
    (&[0x0f, 0x0b, 0x7d, 0x48, 0xe7, 0x00], Store::Avx512Nt),
];

/// A register of the code that was interrupted.
fn register(context: &mut libc::ucontext_t, number: c_int) -> &mut i64 {
    &mut context.uc_mcontext.gregs[usize::try_from(number).expect("a REG_ constant")]
}

/// SIGILL: does what the instruction would have done, and goes on after it. See sigaction(2).
extern "C" fn emulate(_signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: with SA_SIGINFO this is the context of the code that was interrupted, and the handler's alone.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let at = ptr::with_exposed_provenance::<u8>(
        usize::try_from(*register(context, libc::REG_RIP)).unwrap_or(0),
    );
    // SAFETY: code goes on for more than six bytes after each instruction here: its loop, and a return.
    let code = unsafe { slice::from_raw_parts(at, 6) };
    let known = ENCODINGS.iter().find(|(bytes, _)| code.starts_with(bytes));
    let line = usize::try_from(*register(context, libc::REG_RAX)).unwrap_or(0);
    let source = usize::try_from(*register(context, libc::REG_RDX)).unwrap_or(0);
    let Some((bytes, store)) = known else {
        // SAFETY: abort has no requirements, and may be called in a signal handler.
        unsafe { libc::abort() }
    };
    let is_aligned = line.is_multiple_of(GRANULE);
    let data: [u8; GRANULE] = match store {
        Store::Clzero => [0; GRANULE],
        // SAFETY: the loop keeps the address of 64 zeroes there.
        Store::Movdir64b if is_aligned => unsafe {
            ptr::with_exposed_provenance::<[u8; 64]>(source).read()
        },
        // The register's upper three quarters were cleared together with the lowest; the kernel saved that one here.
        Store::Avx512Nt if is_aligned => {
            // SAFETY: the kernel fills in this pointer on x86-64.
            let xmm0 = unsafe { (*context.uc_mcontext.fpregs)._xmm[0].element };
            // SAFETY: both are 64 bytes without padding.
            unsafe { mem::transmute::<[[u32; 4]; 4], [u8; GRANULE]>([xmm0; 4]) }
        }
        // A general protection fault, on a real CPU.
        // SAFETY: as above.
        Store::Movdir64b | Store::Avx512Nt => unsafe { libc::abort() },
    };
    let line = ptr::with_exposed_provenance_mut::<[u8; GRANULE]>(line & !(GRANULE - 1));
    // SAFETY: the instruction would have stored just there, and the test gave it memory to store to.
    unsafe { line.write_volatile(data) };
    *register(context, libc::REG_RIP) += i64::try_from(bytes.len()).unwrap_or(0);
    EMULATED.fetch_add(1, Ordering::Relaxed);
}

/// From here on, this process emulates.
fn handle_undefined_instructions() {
    // SAFETY: all-zero bytes are a sigaction with an empty mask.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction =
        emulate as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as usize;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the handler calls nothing that is not allowed in one, and this process runs no other test.
    let result = unsafe { libc::sigaction(libc::SIGILL, &raw const action, ptr::null_mut()) };
    assert_eq!(result, 0);
}

/// Runs one loop through all starts and lengths; returns its lines and how many of them were emulated.
fn emulated(name: &str, clear: unsafe fn(*mut u8, usize)) -> (usize, usize) {
    EMULATED.store(0, Ordering::Relaxed);
    // A signal takes some 30 µs in a virtual machine, so not from every line on.
    let starts = [0, 1, 63, 127].map(|line| line * GRANULE);
    let lines = check_loop(name, starts.into_iter(), |ptr, len| {
        // SAFETY: the runner gives memory of its own, and what this CPU lacks is emulated.
        unsafe { clear(ptr.with_exposed(), len) };
    });
    (lines, EMULATED.load(Ordering::Relaxed))
}

/// A pointer that the signal handler may make again from its address.
trait WithExposed {
    fn with_exposed(self) -> Self;
}

impl WithExposed for *mut u8 {
    fn with_exposed(self) -> Self {
        let _ = self.expose_provenance();
        self
    }
}

#[test]
#[ignore = "run as a child by loops_store_each_line_once_also_where_their_instruction_is_emulated"]
fn child_that_emulates() {
    if env::var_os(CHILD).is_none() {
        return;
    }
    handle_undefined_instructions();
    type Loop = unsafe fn(*mut u8, usize);
    let loops: [(&str, Loop, Loop); 3] = [
        ("clzero", clzero::clear, clzero::clear_with_stand_in),
        (
            "movdir64b",
            movdir64b::clear,
            movdir64b::clear_with_stand_in,
        ),
        (
            "avx512-nt",
            avx512_nt::clear,
            avx512_nt::clear_with_stand_in,
        ),
    ];
    for (name, own, stand_in) in loops {
        if name == "avx512-nt" && !std::arch::is_x86_feature_detected!("avx") {
            println!("{name}: not run, its register is cleared with an AVX instruction");
            continue;
        }
        let (lines, emulated_lines) = emulated(name, stand_in);
        assert_eq!(emulated_lines, lines, "{name} with a stand-in");
        let (lines, emulated_lines) = emulated(name, own);
        let by_cpu = Method::named(name).is_ok();
        assert_eq!(emulated_lines, if by_cpu { 0 } else { lines }, "{name}");
        println!(
            "{name}: {lines} lines {}",
            if by_cpu { "by the CPU" } else { "emulated" }
        );
    }
}

#[test]
fn loops_store_each_line_once_also_where_their_instruction_is_emulated() {
    let child = Command::new(env::current_exe().expect("path of this binary"))
        .args([
            "tests::emulation::child_that_emulates",
            "--exact",
            "--ignored",
            "--nocapture",
        ])
        .env(CHILD, "1")
        .output()
        .expect("this binary starts");
    let stdout = String::from_utf8_lossy(&child.stdout);
    let passed = child.status.success() && stdout.contains("1 passed");
    assert!(
        passed,
        "{}\n{stdout}\n{}",
        child.status,
        String::from_utf8_lossy(&child.stderr)
    );
    println!("{stdout}");
}
