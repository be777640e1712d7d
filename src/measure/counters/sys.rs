//! perf_event_open(2), of whose many fields these few are used.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `struct perf_event_attr` of include/uapi/linux/perf_event.h as it was first (PERF_ATTR_SIZE_VER0):
/// every kernel takes it, and nothing that came later is needed.
#[repr(C)]
struct Attr {
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
}

const SIZE: u32 = 64;
const _: () = assert!(size_of::<Attr>() == SIZE as usize);

/// `disabled`, a bit of the flags.
const DISABLED: u64 = 1;
/// `inherit`: what the thread starts is counted, too, and added up in its parent's when it ends.
const INHERIT: u64 = 1 << 1;
/// `enable_on_exec`: of who is disabled until then.
const ON_EXEC: u64 = 1 << 12;
/// `exclude_kernel` and `exclude_hv`, bits of the flags.
const USER_ONLY: u64 = 1 << 5 | 1 << 6;
/// PERF_FORMAT_TOTAL_TIME_ENABLED, PERF_FORMAT_TOTAL_TIME_RUNNING and PERF_FORMAT_GROUP.
const READ_FORMAT: u64 = 1 | 1 << 1 | 1 << 3;
/// PERF_EVENT_IOC_ENABLE.
const ENABLE: libc::c_ulong = 0x2400;
/// PERF_FLAG_FD_CLOEXEC.
const CLOSE_ON_EXEC: u64 = 1 << 3;

/// What is counted: `type` and `config` of the attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) kind: u32,
    pub(super) config: u64,
}

/// Who is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// A thread of this process, or the calling one if the number is 0.
    Thread(libc::pid_t),
    /// The programs that the calling thread starts, each from its exec on, with all of its threads and children.
    Programs,
}

/// perf_event_open(2): a counter of one thread on whatever CPU it runs, or of programs. Those of a group
/// count at the same times: from when its first one is enabled, which is read for all.
pub(super) fn open(
    event: Event,
    user_only: bool,
    whose: Whose,
    group: Option<BorrowedFd<'_>>,
) -> io::Result<OwnedFd> {
    let mut flags = match (group, whose) {
        (None, Whose::Thread(_)) => DISABLED,
        (None, Whose::Programs) => DISABLED | ON_EXEC,
        (Some(_), _) => 0,
    };
    let thread: libc::pid_t = match whose {
        Whose::Thread(thread) => thread,
        Whose::Programs => {
            flags |= INHERIT;
            0
        }
    };
    if user_only {
        flags |= USER_ONLY;
    }
    let attr = Attr {
        kind: event.kind,
        size: SIZE,
        config: event.config,
        sample_period: 0,
        sample_type: 0,
        read_format: READ_FORMAT,
        flags,
        wakeup_events: 0,
        bp_type: 0,
        bp_addr: 0,
    };
    let any_cpu: libc::c_int = -1;
    let group = group.map_or(-1, |group| group.as_raw_fd());
    let number = libc::SYS_perf_event_open;
    // SAFETY: the attributes are live and as long as they say; the kernel reads them only.
    let fd = unsafe {
        libc::syscall(
            number,
            &raw const attr,
            thread,
            any_cpu,
            group,
            CLOSE_ON_EXEC,
        )
    };
    match i32::try_from(fd) {
        // SAFETY: the kernel just returned it and nobody else has it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// ioctl(2) PERF_EVENT_IOC_ENABLE: the group of this first counter begins.
pub(super) fn enable(first: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the request takes a number, and the descriptor is open.
    match unsafe { libc::ioctl(first.as_raw_fd(), ENABLE as _, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
