//! System calls that the standard library does not wrap.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};

/// `kill(2)`.
pub(crate) fn kill(pid: u32, signal: i32) {
    let pid = i32::try_from(pid).expect("process ids are positive");
    // SAFETY: kill takes no pointer.
    let result = unsafe { libc::kill(pid, signal) };
    assert_eq!(result, 0, "kill {pid}: {}", io::Error::last_os_error());
}

/// A hugetlbfs file mapped shared; hugetlbfs has no write(2), and read(2) would do for reading only.
#[derive(Debug)]
pub(crate) struct View {
    addr: *mut u8,
    len: usize,
}

impl View {
    #[track_caller]
    pub(crate) fn of(path: &Path) -> Self {
        let file = File::options().read(true).write(true).open(path);
        let file = file.unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let len = usize::try_from(file.metadata().expect("it is open").len()).expect("64 bits");
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (shared, fd) = (libc::MAP_SHARED, file.as_raw_fd());
        // SAFETY: a new mapping at an address of the kernel's choice.
        let addr = unsafe { libc::mmap(std::ptr::null_mut(), len, access, shared, fd, 0) };
        assert_ne!(
            addr,
            libc::MAP_FAILED,
            "{path:?}: {}",
            io::Error::last_os_error()
        );
        let addr = addr.cast();
        Self { addr, len }
    }

    pub(crate) fn fill(&self, byte: u8) {
        // SAFETY: the mapping is this view's and writable; no reference into it exists.
        unsafe { std::ptr::write_bytes(self.addr, byte, self.len) };
    }

    /// How many bytes are not zero.
    pub(crate) fn stained(&self) -> usize {
        // SAFETY: inside of the mapping.
        let byte = |n| unsafe { self.addr.add(n).read_volatile() };
        (0..self.len).step_by(64).filter(|n| byte(*n) != 0).count()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: the mapping is this view's.
        unsafe { libc::munmap(self.addr.cast(), self.len) };
    }
}

/// SIGKILL for all of a process group; true if there was anybody.
pub(crate) fn kill_group(group: u32) -> bool {
    let group = i32::try_from(group).expect("process ids are positive");
    // SAFETY: kill takes no pointer.
    unsafe { libc::kill(-group, libc::SIGKILL) == 0 }
}

/// A terminal, seen from the side of its keys. Dropped, it hangs up.
#[derive(Debug)]
pub(crate) struct Terminal(File);

impl Terminal {
    /// Starts a command that leads a session on a new terminal, with the terminal as its stdin.
    #[track_caller]
    pub(crate) fn spawn(command: &mut Command) -> (Self, Child) {
        let keys = File::options().read(true).write(true).open("/dev/ptmx");
        let keys = keys.expect("a terminal");
        let unlocked: libc::c_int = 0;
        let access = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
        // SAFETY: ioctl_tty(2): the first call reads an int, the second takes flags and returns a descriptor
        // that nobody else has.
        let screen = unsafe {
            libc::ioctl(keys.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlocked);
            libc::ioctl(keys.as_raw_fd(), libc::TIOCGPTPEER, access)
        };
        assert!(screen >= 0, "{}", io::Error::last_os_error());
        // SAFETY: it is open, and nobody else's.
        let screen = unsafe { OwnedFd::from_raw_fd(screen) };
        command.stdin(screen);
        let lead = || {
            // SAFETY: both calls are safe between fork and exec, and stdin is the terminal by now.
            let failed = unsafe { libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 };
            match failed {
                true => Err(io::Error::last_os_error()),
                false => Ok(()),
            }
        };
        // SAFETY: it allocates nothing.
        unsafe { command.pre_exec(lead) };
        let child = command.spawn().expect("it starts");
        // The parent's copy of the screen would keep it open.
        command.stdin(std::process::Stdio::null());
        (Self(keys), child)
    }

    pub(crate) fn press(&self, key: u8) {
        let written = io::Write::write(&mut &self.0, &[key]);
        assert_eq!(written.expect("it is open"), 1);
    }

    /// Gives it as many columns.
    pub(crate) fn resize(&self, columns: u16) {
        let size = libc::winsize {
            ws_row: 24,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        // SAFETY: TIOCSWINSZ reads a winsize (ioctl_tty(2)).
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
    }
}

/// A thread of another process that stands still, until its process ends.
#[derive(Debug)]
pub(crate) struct Halted(Option<std::thread::JoinHandle<()>>);

impl Halted {
    /// ptrace(2) halts one thread, where SIGSTOP halts its process.
    pub(crate) fn new(thread: u32) -> Self {
        let thread = i32::try_from(thread).expect("process ids are positive");
        let (told, halts) = std::sync::mpsc::channel();
        // A tracer is a thread, and has to see the end of those it traces.
        let tracer = std::thread::spawn(move || {
            let none = std::ptr::null_mut::<libc::c_void>();
            // SAFETY: neither request reads or writes memory.
            let halted = unsafe {
                libc::ptrace(libc::PTRACE_SEIZE, thread, none, none) == 0
                    && libc::ptrace(libc::PTRACE_INTERRUPT, thread, none, none) == 0
            };
            told.send(halted).expect("it is waited for");
            if !halted {
                return;
            }
            loop {
                let mut status = 0;
                // SAFETY: `status` is written to.
                let seen = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
                if seen != thread || libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
                    return;
                }
            }
        });
        assert!(halts.recv().expect("it says so"), "the thread is traced");
        Self(Some(tracer))
    }
}

impl Drop for Halted {
    fn drop(&mut self) {
        let ended = self.0.take().map(std::thread::JoinHandle::join);
        assert!(ended.is_none_or(|ended| ended.is_ok()) || std::thread::panicking());
    }
}
