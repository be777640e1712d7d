//! Every system call and every symbol that Rust cannot check. Nothing here decides anything.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::thread::JoinHandleExt;
use std::ptr;
use std::thread::JoinHandle;
use std::time::Duration;

use kvm_bindings::{KVMIO, kvm_signal_mask, kvm_userspace_memory_region};
use kvm_ioctls::{VcpuFd, VmFd};
use vmm_sys_util::ioctl::ioctl_with_ref;

use prezero_memory::{IdSet, SlotRange};

vmm_sys_util::ioctl_iow_nr!(KVM_SET_SIGNAL_MASK, KVMIO, 0x8b, kvm_signal_mask);

/// `struct kvm_signal_mask` with the kernel's 8-byte signal set in place of its flexible array.
#[repr(C)]
struct SignalMask {
    len: u32,
    set: [u8; 8],
}

fn region(range: &SlotRange, memory_size: u64) -> kvm_userspace_memory_region {
    kvm_userspace_memory_region {
        slot: range.slot,
        flags: 0,
        guest_phys_addr: range.gpa,
        memory_size,
        userspace_addr: range.hva,
    }
}

/// KVM_SET_USER_MEMORY_REGION for a new slot.
///
/// # Safety
///
/// The host range stays mapped, and free of Rust references, until the slot is deleted or the machine is gone.
pub(crate) unsafe fn set_slot(vm: &VmFd, range: &SlotRange) -> io::Result<()> {
    // SAFETY: the caller's contract is the one of the ioctl.
    unsafe { vm.set_user_memory_region(region(range, range.len)) }.map_err(Into::into)
}

/// KVM_SET_USER_MEMORY_REGION with no bytes: deletes the slot.
pub(crate) fn delete_slot(vm: &VmFd, range: &SlotRange) -> io::Result<()> {
    // SAFETY: a size of zero makes KVM let go of memory; it gets no access to any.
    unsafe { vm.set_user_memory_region(region(range, 0)) }.map_err(Into::into)
}

/// The signal that interrupts KVM_RUN. It is only ever sent to a thread that blocks it, so no handler runs and its
/// default action never happens.
pub(crate) fn kick_signal() -> libc::c_int {
    libc::SIGRTMIN()
}

fn kick_set() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset(3) initialises the set it is given, sigaddset(3) changes it; neither fails for a valid
    // signal.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), kick_signal());
        set.assume_init()
    }
}

/// pthread_sigmask(3): blocks the kick in this thread. Returns the thread's former mask without the kick, in the
/// kernel's form (signal n is bit n - 1), which is what KVM_RUN is to use.
pub(crate) fn block_kick() -> io::Result<u64> {
    let mut old = MaybeUninit::uninit();
    // SAFETY: both sets are valid for the call, and pthread_sigmask(3) fills the second one when it succeeds.
    let old = unsafe {
        match libc::pthread_sigmask(libc::SIG_BLOCK, &kick_set(), old.as_mut_ptr()) {
            0 => old.assume_init(),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    };
    let blocked = (1..=64).filter(|&signal| {
        // SAFETY: `old` is an initialised set; an invalid number only makes sigismember(3) return -1.
        signal != kick_signal() && unsafe { libc::sigismember(&old, signal) } == 1
    });
    Ok(blocked.fold(0, |mask, signal| mask | 1 << (signal - 1)))
}

/// KVM_SET_SIGNAL_MASK: the signals in `mask` stay blocked while the guest runs, all others interrupt it.
pub(crate) fn set_run_mask(vcpu: &VcpuFd, mask: u64) -> io::Result<()> {
    let mask = SignalMask {
        len: 8,
        set: mask.to_ne_bytes(),
    };
    // SAFETY: KVM reads `len` and then that many bytes behind it, which are in `mask`.
    match unsafe { ioctl_with_ref(vcpu, KVM_SET_SIGNAL_MASK(), &mask) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// sigtimedwait(2) without waiting: takes a pending kick, so that the next KVM_RUN enters the guest.
pub(crate) fn take_kick() {
    let none = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the set and the timeout are valid for the call; a null pointer says that the details are not wanted.
    unsafe { libc::sigtimedwait(&kick_set(), ptr::null_mut(), &none) };
}

/// pthread_kill(3): interrupts KVM_RUN in a thread that has called [`block_kick`].
pub(crate) fn kick<T>(thread: &JoinHandle<T>) {
    // SAFETY: the handle is neither joined nor detached, so the identifier is valid; a thread that has ended is ESRCH
    // or nothing.
    unsafe { libc::pthread_kill(thread.as_pthread_t(), kick_signal()) };
}

/// The sub-error of a KVM_EXIT_INTERNAL_ERROR; 1 is a failed emulation.
pub(crate) fn internal_error(vcpu: &mut VcpuFd) -> u32 {
    // SAFETY: every member of the union is plain data, and KVM filled this one for the exit that the caller has seen.
    unsafe { vcpu.get_kvm_run().__bindgen_anon_1.internal.suberror }
}

/// The kernel takes and gives CPU masks of at most so many bits (CONFIG_NR_CPUS).
const CPU_WORDS: usize = 128;
const WORD_BITS: usize = 64;

/// sched_setaffinity(2): the calling thread runs on these CPUs only.
pub(crate) fn run_on(cpus: &IdSet) -> io::Result<()> {
    let mut mask = [0_u64; CPU_WORDS];
    for cpu in cpus.iter().map(|cpu| cpu as usize) {
        let word = mask.get_mut(cpu / WORD_BITS);
        *word.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))? |= 1 << (cpu % WORD_BITS);
    }
    // SAFETY: the mask is live and of the size that is given.
    match unsafe {
        libc::syscall(
            libc::SYS_sched_setaffinity,
            0,
            size_of_val(&mask),
            mask.as_ptr(),
        )
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// sched_getaffinity(2): the CPUs that the calling thread may run on.
pub(crate) fn affinity() -> io::Result<IdSet> {
    let mut mask = [0_u64; CPU_WORDS];
    let size = size_of_val(&mask);
    // SAFETY: the mask is live and of the size that is given.
    if unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, size, mask.as_mut_ptr()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let cpus = (0..).zip(0..CPU_WORDS * WORD_BITS);
    let allowed = cpus.filter(|(_, bit)| mask[bit / WORD_BITS] & 1 << (bit % WORD_BITS) != 0);
    Ok(allowed.map(|(cpu, _)| cpu).collect())
}

/// poll(2): waits for either descriptor, for `timeout` at most. Returns whether the second can be read.
pub(crate) fn wait_readable(wake: RawFd, input: Option<RawFd>, timeout: Duration) -> bool {
    let entry = |fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // A negative descriptor is passed over.
    let mut entries = [entry(wake), entry(input.unwrap_or(-1))];
    let timeout = libc::c_int::try_from(timeout.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: both entries are live. An error, such as EINTR, is as if the time had passed.
    let ready = unsafe { libc::poll(entries.as_mut_ptr(), 2, timeout) };
    ready > 0 && entries[1].revents != 0
}

/// read(2).
pub(crate) fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer is live and of the length that is given.
    let len = unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
    usize::try_from(len).map_err(|_| io::Error::last_os_error())
}

unsafe extern "C" {
    // Defined by the assembly in probe/code.rs.
    static prezero_probe_start: [u8; 0];
    static prezero_probe_end: [u8; 0];
}

/// The probe guest's machine code, as the assembler left it in the read-only data of this program.
pub(crate) fn probe_code() -> &'static [u8] {
    // SAFETY: both symbols lie in one section, in this order, and nothing but initialised bytes is between them.
    unsafe {
        let start = &raw const prezero_probe_start as *const u8;
        let end = &raw const prezero_probe_end as *const u8;
        std::slice::from_raw_parts(start, end.offset_from_unsigned(start))
    }
}

/// tgkill(2): sends a signal to one thread of this process.
#[cfg(test)]
pub(crate) fn tgkill(tid: i32, signal: libc::c_int) -> io::Result<()> {
    // SAFETY: tgkill(2) takes three numbers; the thread group is this process.
    match unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
