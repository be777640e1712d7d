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
use prezero_testkit::kernel::{FAULT, FOREVER, KERNEL_AT, print, pvh_kernel, write_port as out};
use prezero_testkit::require_kvm;
use tempfile::TempDir;
use vm_memory::{GuestMemoryMmap, GuestMemoryRegion};

use super::*;
use crate::kvm::Kvm;

const MIB: u64 = 1 << 20;

fn kvm() -> Option<Kvm> {
    let open = || Kvm::open(Path::new("/dev/kvm")).expect("it has just been opened");
    require_kvm().then(open)
}

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
        fs::write(&path, pvh_kernel(code)).expect("written");
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
        let on_output = |bytes: &[u8]| {
            written.borrow_mut().extend_from_slice(bytes);
            (control.on_output)(bytes);
        };
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
