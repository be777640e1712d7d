//! The probe guest on the real `/dev/kvm`: the machine that the tests run it in.
#![allow(unsafe_code, clippy::cast_possible_truncation)]

mod control;
mod scan;

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use prezero_memory::SlotRange;
use prezero_testkit::require_kvm;
use vm_memory::{GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};

use super::*;
use crate::kvm::Kvm;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const LOW: (u64, u64) = (0, 24 * MIB);
/// Ends at the hole and is not a multiple of a large page.
const BELOW_HOLE: (u64, u64) = (3 * GIB - 17 * MIB - 4096, 17 * MIB + 4096);
const ABOVE_HOLE: (u64, u64) = (4 * GIB, 33 * MIB + 12288);

fn kvm() -> Option<Kvm> {
    let open = || Kvm::open(Path::new("/dev/kvm")).expect("it has just been opened");
    require_kvm().then(open)
}

struct Machine {
    vm: Vm,
    mem: GuestMemoryMmap,
    facts: KvmFacts,
    request: ProbeRequest,
}

impl Machine {
    fn new(kvm: &Kvm, facts: KvmFacts, request: ProbeRequest) -> Machine {
        let slot_len = Probe::slot_len(&request, &facts).unwrap();
        let mut ranges = request.ram.clone();
        ranges.push((PROBE_GPA, slot_len));
        ranges.sort_unstable();
        let ranges: Vec<_> = ranges
            .iter()
            .map(|&(gpa, len)| (GuestAddress(gpa), len as usize))
            .collect();
        let mem = GuestMemoryMmap::from_ranges(&ranges).unwrap();
        let vm = kvm.create_vm().unwrap();
        for (slot, region) in (0..).zip(mem.iter()) {
            let hva = mem.get_host_address(region.start_addr()).unwrap() as u64;
            let range = SlotRange {
                slot,
                gpa: region.start_addr().0,
                len: region.len(),
                hva,
            };
            // SAFETY: `mem` is a field behind `vm`, so it is dropped after the machine.
            unsafe { vm.add_slot(&range) }.unwrap();
        }
        Machine {
            vm,
            mem,
            facts,
            request,
        }
    }

    fn verifying(kvm: &Kvm, cpus: u32, ram: &[(u64, u64)]) -> Machine {
        Machine::new(
            kvm,
            kvm.facts(),
            ProbeRequest {
                cpus,
                verify: true,
                ram: ram.to_vec(),
            },
        )
    }

    fn plant(&self, gpa: u64, byte: u8) {
        self.mem.write_obj(byte, GuestAddress(gpa)).unwrap();
    }

    fn run(&self, control: &ProbeControl<'_>) -> Result<ProbeReport, GuestError> {
        Probe::load(&self.mem, &self.facts, &self.request)?.run(&self.vm, &self.mem, control)
    }

    fn run_code(&self, code: &[u8], control: &ProbeControl<'_>) -> Result<ProbeReport, GuestError> {
        Probe::load_code(&self.mem, &self.facts, &self.request, code)?
            .run(&self.vm, &self.mem, control)
    }
}

static NEVER: AtomicBool = AtomicBool::new(false);

fn patient() -> ProbeControl<'static> {
    ProbeControl {
        cancel: &NEVER,
        deadline: None,
        silence: Duration::from_secs(10),
        on_progress: None,
    }
}

/// Runs `scenario` alone among the tests that count vCPU threads or descriptors.
fn alone<T>(scenario: impl FnOnce() -> T) -> T {
    static LOCK: Mutex<()> = Mutex::new(());
    let _lock = LOCK
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    scenario()
}

fn vcpu_threads() -> Vec<i32> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    // A thread may end between the two looks at it.
    tasks
        .filter(|t| {
            fs::read_to_string(t.path().join("comm"))
                .is_ok_and(|name| name.starts_with("prezero-vcpu"))
        })
        .map(|t| t.file_name().to_str().unwrap().parse().unwrap())
        .collect()
}

/// Returns the threads of `count` vCPUs once they have their descriptors, which is after they have blocked the kick.
fn wait_for_vcpus(count: usize) -> Vec<i32> {
    let started = Instant::now();
    while vcpu_descriptors() < count {
        assert!(started.elapsed() < Duration::from_secs(5));
        thread::sleep(Duration::from_millis(1));
    }
    vcpu_threads()
}

/// Fails if a vCPU's thread or descriptor is left. A thread that has been joined may stay in /proc for another moment.
fn assert_nothing_left() {
    assert_eq!(vcpu_descriptors(), 0);
    let started = Instant::now();
    while !vcpu_threads().is_empty() {
        assert!(
            started.elapsed() < Duration::from_millis(500),
            "{:?}",
            vcpu_threads()
        );
        thread::sleep(Duration::from_millis(1));
    }
}

/// A set of signals of a thread, from /proc; empty when the thread is gone.
fn signals(tid: i32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/self/task/{tid}/status")).unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
    line.map_or(0, |hex| u64::from_str_radix(hex, 16).unwrap())
}

fn vcpu_descriptors() -> usize {
    let fds = fs::read_dir("/proc/self/fd").unwrap().flatten();
    fds.filter(|fd| {
        fs::read_link(fd.path()).is_ok_and(|to| to.to_string_lossy().contains("kvm-vcpu"))
    })
    .count()
}

/// `jmp .`: a guest that says nothing.
const MUTE: &[u8] = &[0xeb, 0xfe];
