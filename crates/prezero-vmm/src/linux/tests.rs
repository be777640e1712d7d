//! Small guests on the real `/dev/kvm`: ELF kernels of some instructions, entered by PVH as Linux is.
#![allow(unsafe_code, clippy::cast_possible_truncation)]

mod ends;
mod images;

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use prezero_memory::SlotRange;
use prezero_testkit::require_kvm;
use tempfile::TempDir;
use vm_memory::{GuestMemoryMmap, GuestMemoryRegion};

use super::*;
use crate::kvm::Kvm;

const MIB: u64 = 1 << 20;
const LOAD_AT: u64 = MIB;

fn kvm() -> Option<Kvm> {
    let open = || Kvm::open(Path::new("/dev/kvm")).expect("it has just been opened");
    require_kvm().then(open)
}

/// An ELF file of one segment with this 32-bit code, and a note that says where PVH enters it.
fn elf(code: &[u8]) -> Vec<u8> {
    let note = [
        &4_u32.to_le_bytes()[..],
        &4_u32.to_le_bytes(),
        &18_u32.to_le_bytes(),
        b"Xen\0",
        &(LOAD_AT as u32).to_le_bytes(),
    ]
    .concat();
    let (headers, note_at) = (64 + 2 * 56, 64 + 2 * 56);
    let code_at = headers + note.len() as u64;
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend([2, 0, 62, 0, 1, 0, 0, 0]);
    file.extend(LOAD_AT.to_le_bytes());
    file.extend(64_u64.to_le_bytes());
    file.extend([0; 12]);
    file.extend([64, 0, 56, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    for (kind, at, len) in [(1_u32, code_at, code.len()), (4, note_at, note.len())] {
        let len = len as u64;
        file.extend(kind.to_le_bytes());
        file.extend(5_u32.to_le_bytes());
        for field in [at, LOAD_AT, LOAD_AT, len, len, 1] {
            file.extend(field.to_le_bytes());
        }
    }
    file.extend(note);
    file.extend(code);
    file
}

/// `mov edx, port; mov al, value; out dx, al`
fn out(port: u16, value: u8) -> Vec<u8> {
    let [low, high] = port.to_le_bytes();
    vec![0xba, low, high, 0, 0, 0xb0, value, 0xee]
}

fn print(text: &str) -> Vec<u8> {
    text.bytes().flat_map(|byte| out(0x3f8, byte)).collect()
}

/// `jmp .`
const FOREVER: [u8; 2] = [0xeb, 0xfe];
/// `ud2`, without a table of handlers.
const FAULT: [u8; 2] = [0x0f, 0x0b];

struct Guest {
    // Dropped before the memory.
    vm: Vm,
    mem: GuestMemoryMmap,
    linux: Linux,
    _dir: TempDir,
}

impl Guest {
    fn new(kvm: &Kvm, cpus: u32, code: &[u8]) -> Guest {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("kernel");
        fs::write(&path, elf(code)).expect("written");
        let ram = [(0, 8 * MIB), (8 * MIB, 8 * MIB)];
        let request = LinuxRequest {
            kernel: Kernel::open(&path).expect("a kernel"),
            initramfs: None,
            cmdline: "console=ttyS0".to_owned(),
            cpus,
            nodes: ram
                .iter()
                .map(|&range| GuestNode {
                    ram: vec![range],
                    distances: Vec::new(),
                })
                .collect(),
        };
        let mut linux = Linux::new(request, &kvm.facts()).expect("it fits");
        let ranges = ram.map(|(gpa, len)| (GuestAddress(gpa), len as usize));
        let mem = GuestMemoryMmap::from_ranges(&ranges).expect("memory");
        let vm = kvm.create_vm().expect("a machine");
        vm.create_irqchip().expect("interrupt controllers");
        for (slot, region) in (0..).zip(mem.iter()) {
            let hva = mem.get_host_address(region.start_addr()).expect("mapped") as u64;
            let range = SlotRange {
                slot,
                gpa: region.start_addr().0,
                len: region.len(),
                hva,
            };
            // SAFETY: `mem` is a field behind `vm`, so it is dropped after the machine.
            unsafe { vm.add_slot(&range) }.expect("registered");
        }
        linux.load(&mem).expect("loaded");
        Guest {
            vm,
            mem,
            linux,
            _dir: dir,
        }
    }

    /// Runs it; what it wrote, and what came of it.
    fn run(
        self,
        run: &LinuxRun,
        control: &LinuxControl<'_>,
    ) -> (Vec<u8>, Result<LinuxReport, GuestError>) {
        let written = RefCell::new(Vec::new());
        let on_output = |bytes: &[u8]| written.borrow_mut().extend_from_slice(bytes);
        let control = LinuxControl {
            on_output: &on_output,
            ..*control
        };
        let ended = self.linux.run(&self.vm, &self.mem, run, &control);
        (written.take(), ended)
    }
}

static NEVER: AtomicBool = AtomicBool::new(false);

/// For half a minute; these guests need milliseconds.
fn patient() -> LinuxControl<'static> {
    LinuxControl {
        cancel: &NEVER,
        deadline: Some(Instant::now() + Duration::from_secs(30)),
        on_output: &|_| (),
        input: None,
    }
}
