//! Fresh pages get no store from user space: the kernel has cleared them already (acrn-hypervisor#7300).
//!
//! The CPU's debug registers count the stores to a few addresses, for this thread and those it starts. A clear
//! of the memory in user space cannot leave out these addresses, and the kernel clears through other ones.

mod requests;

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;

use prezero_memory::{ClearRequest, Control, Workers};
use prezero_testkit::{Hugepages, MachineLock, skip};
use requests::{PAGE, eager, huge, planned, reserved, scribble};

/// The first version of `struct perf_event_attr` with breakpoints (include/uapi/linux/perf_event.h).
#[repr(C)]
#[derive(Default)]
struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    bp_addr: u64,
    bp_len: u64,
}

const PERF_TYPE_BREAKPOINT: u32 = 5;
const HW_BREAKPOINT_W: u32 = 2;
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;

/// Counts stores to eight bytes, by this thread and those it starts from now on.
struct Stores(File);

impl Stores {
    fn to(addr: u64) -> io::Result<Self> {
        let attr = PerfEventAttr {
            kind: PERF_TYPE_BREAKPOINT,
            size: u32::try_from(size_of::<PerfEventAttr>()).expect("72 bytes"),
            flags: INHERIT | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR,
            bp_type: HW_BREAKPOINT_W,
            bp_addr: addr,
            bp_len: 8,
            ..PerfEventAttr::default()
        };
        let cloexec: u64 = 8;
        // SAFETY: the kernel reads `size` bytes of a live structure.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attr,
                0,
                -1,
                -1,
                cloexec,
            )
        };
        let fd = i32::try_from(fd).expect("a descriptor");
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just returned it and nobody else has it.
        Ok(Self(unsafe { File::from_raw_fd(fd) }))
    }

    fn count(&mut self) -> u64 {
        let mut count = [0; 8];
        self.0
            .read_exact(&mut count)
            .expect("the count is readable");
        u64::from_ne_bytes(count)
    }
}

/// Populates and checks the memory of `zone`, and returns the stores to it that were seen: none before, and
/// some after it was overwritten, which shows that they can be seen.
fn stores_to(zone: &str) -> Option<(Vec<u64>, Vec<u64>)> {
    let plan = planned(&eager(&[zone]));
    let ram = reserved(&plan);
    let slot = ram.slots().next().expect("one slot");
    let inside = slot.len / 2 + 4096 + 8;
    let watched = [0, inside, slot.len - PAGE - 8, slot.len - 8];
    let stores: io::Result<Vec<Stores>> =
        watched.iter().map(|at| Stores::to(slot.hva + at)).collect();
    let mut stores = match stores {
        Ok(stores) => stores,
        Err(error) => {
            skip("perf", &format!("breakpoints of perf_event_open: {error}"));
            return None;
        }
    };
    let workers = Workers::start(plan.workers()).expect("a few threads");
    let (ram, _) = ram
        .populate(&workers, &Control::default())
        .expect("reserved memory");
    let (ram, cleared) = ram
        .clear(&workers, &ClearRequest::default(), &Control::default())
        .expect("nothing stops it");
    assert_eq!(cleared.bytes, 0);
    drop(workers);
    let (ram, _) = ram
        .check_placement(&Control::default())
        .expect("nothing is bound");
    let before = stores.iter_mut().map(Stores::count).collect();
    std::thread::spawn(move || scribble(slot.hva, slot.len))
        .join()
        .expect("the memory is mapped");
    let after = stores.iter_mut().map(Stores::count).collect();
    drop(ram);
    Some((before, after))
}

#[track_caller]
fn assert_untouched((before, after): (Vec<u64>, Vec<u64>)) {
    assert!(
        after.iter().all(|count| *count > 0),
        "nothing was counted: {after:?}"
    );
    assert_eq!(before, [0; 4]);
}

#[test]
fn hugepages_are_populated_without_a_store_from_user_space() {
    let Some(pages) = Hugepages::take(PAGE, 32) else {
        return;
    };
    if let Some(counts) = stores_to(&huge(32)) {
        assert_untouched(counts);
    }
    pages.assert_clean();
}

#[test]
fn ordinary_memory_is_populated_without_a_store_from_user_space() {
    let _lock = MachineLock::acquire();
    if let Some(counts) = stores_to("size=64M,hugepages=off") {
        assert_untouched(counts);
    }
}
