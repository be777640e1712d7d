//! System calls that the standard library does not wrap.

use std::fs::File;
use std::io::{self, PipeWriter};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::ptr;

/// `kill(2)`. A process that has not been waited for keeps its id, so that nobody else can be hit.
pub(crate) fn kill(pid: u32, signal: i32) {
    let pid = i32::try_from(pid).expect("process ids are positive");
    // SAFETY: kill takes no pointer.
    let result = unsafe { libc::kill(pid, signal) };
    assert_eq!(result, 0, "kill {pid}: {}", io::Error::last_os_error());
}

/// Whether a process group has any process left, dead ones that nobody has waited for included.
pub(crate) fn group_exists(group: u32) -> bool {
    let group = i32::try_from(group).expect("process ids are positive");
    // SAFETY: kill takes no pointer, and signal 0 is not delivered to anybody.
    unsafe { libc::kill(-group, 0) == 0 }
}

/// How many bytes a pipe holds before a writer blocks (`F_GETPIPE_SZ`, fcntl(2)).
pub(crate) fn pipe_capacity(pipe: &PipeWriter) -> usize {
    // SAFETY: this command of fcntl takes no argument, and the descriptor is open.
    let size = unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_GETPIPE_SZ) };
    usize::try_from(size).expect("a pipe has a capacity")
}

/// A CPU that this process may use (sched_getaffinity(2)).
pub(crate) fn first_cpu() -> usize {
    let mut mask = [0_u64; 128];
    // SAFETY: the mask is live and of the size that is given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_getaffinity,
            0,
            size_of_val(&mask),
            mask.as_mut_ptr(),
        )
    };
    assert!(
        result > 0,
        "sched_getaffinity: {}",
        io::Error::last_os_error()
    );
    let word = mask
        .iter()
        .position(|word| *word != 0)
        .expect("one at least");
    word * 64 + mask[word].trailing_zeros() as usize
}

/// A new pair of a terminal and the program that shows it (openpty(3)): the shower's end and the terminal.
pub(crate) fn open_terminal() -> (File, File) {
    let (mut shower, mut terminal) = (-1, -1);
    // SAFETY: both numbers are written where that succeeds, and no name, modes or size are wanted.
    let result = unsafe {
        libc::openpty(
            &raw mut shower,
            &raw mut terminal,
            ptr::null_mut(),
            ptr::null(),
            ptr::null(),
        )
    };
    assert_eq!(result, 0, "openpty: {}", io::Error::last_os_error());
    // SAFETY: both descriptors are new, and nobody else's.
    unsafe { (File::from_raw_fd(shower), File::from_raw_fd(terminal)) }
}

/// All modes of a terminal (tcgetattr(3)).
pub(crate) fn all_modes(terminal: &File) -> libc::termios {
    let mut modes = MaybeUninit::<libc::termios>::uninit();
    // SAFETY: the modes are filled where that succeeds.
    unsafe {
        let result = libc::tcgetattr(terminal.as_raw_fd(), modes.as_mut_ptr());
        assert_eq!(result, 0, "tcgetattr: {}", io::Error::last_os_error());
        modes.assume_init()
    }
}

/// The modes of a terminal for input, output and editing.
pub(crate) fn terminal_modes(terminal: &File) -> [u32; 3] {
    let modes = all_modes(terminal);
    [modes.c_iflag, modes.c_oflag, modes.c_lflag]
}

/// Has a command run as a job of a shell does: in a process group of its own, in the foreground of the terminal at its
/// stdin, with a parent in the session that waits for it and ends as it did. So it can be stopped; the parent then
/// takes the terminal, if `TAKES_BACK`, and does not give it away again.
pub(crate) fn as_a_job<const TAKES_BACK: bool>(command: &mut Command) {
    let prepare = || {
        // SAFETY: system calls only, of which the last one before exec gives the terminal to the job while SIGTTOU,
        // which that is worth in the background, is ignored.
        unsafe {
            if libc::setsid() == -1 || libc::ioctl(0, libc::TIOCSCTTY, 0) != 0 {
                return Err(io::Error::last_os_error());
            }
            match libc::fork() {
                -1 => Err(io::Error::last_os_error()),
                0 => {
                    libc::setpgid(0, 0);
                    libc::signal(libc::SIGTTOU, libc::SIG_IGN);
                    libc::tcsetpgrp(0, libc::getpid());
                    libc::signal(libc::SIGTTOU, libc::SIG_DFL);
                    Ok(())
                }
                job => {
                    // Who started it waits for the end of a pipe that is among these.
                    libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0);
                    // The terminal's hang-up is the job's business.
                    libc::signal(libc::SIGHUP, libc::SIG_IGN);
                    libc::signal(libc::SIGTTOU, libc::SIG_IGN);
                    let mut status = 0;
                    libc::waitpid(job, &raw mut status, libc::WUNTRACED);
                    while libc::WIFSTOPPED(status) {
                        if TAKES_BACK {
                            libc::tcsetpgrp(0, libc::getpid());
                        }
                        libc::waitpid(job, &raw mut status, libc::WUNTRACED);
                    }
                    libc::_exit(match libc::WIFEXITED(status) {
                        true => libc::WEXITSTATUS(status),
                        false => 128 + libc::WTERMSIG(status),
                    })
                }
            }
        }
    };
    // SAFETY: system calls, which a child may do between fork and exec.
    unsafe { command.pre_exec(prepare) };
}

/// The process group in the foreground of a terminal (tcgetpgrp(3)), whose first process has the same number.
pub(crate) fn foreground_of(terminal: &File) -> u32 {
    // SAFETY: the call takes no pointer.
    let group = unsafe { libc::tcgetpgrp(terminal.as_raw_fd()) };
    u32::try_from(group).expect("a process group")
}

/// Gives a terminal the modes for lines and echo, as a shell does when its job has stopped (tcsetattr(3)).
pub(crate) fn set_modes(terminal: &File, before: &libc::termios) {
    // SAFETY: the modes are live.
    let result = unsafe { libc::tcsetattr(terminal.as_raw_fd(), libc::TCSANOW, before) };
    assert_eq!(result, 0, "tcsetattr: {}", io::Error::last_os_error());
}

/// Has a command begin a session of its own, in the foreground of the terminal at its stdin.
pub(crate) fn own_session(command: &mut Command) {
    let prepare = || {
        // SAFETY: neither takes a pointer; what is at stdin by then is a terminal.
        match unsafe { libc::setsid() != -1 && libc::ioctl(0, libc::TIOCSCTTY, 0) == 0 } {
            true => Ok(()),
            false => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: two system calls, which a child may do between fork and exec.
    unsafe { command.pre_exec(prepare) };
}

/// Hugepages of 2 MiB that are promised to this process and that it has not touched; given back on drop.
#[derive(Debug)]
pub(crate) struct Reserved {
    addr: *mut libc::c_void,
    len: usize,
}

impl Reserved {
    #[track_caller]
    pub(crate) fn hugepages(bytes: u64) -> Self {
        let len = usize::try_from(bytes).expect("64 bits");
        let flags =
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | libc::MAP_HUGE_2MB;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let addr = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                -1,
                0,
            )
        };
        let error = io::Error::last_os_error();
        assert_ne!(addr, libc::MAP_FAILED, "{len} bytes: {error}");
        Self { addr, len }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and nothing refers to it.
        unsafe { libc::munmap(self.addr, self.len) };
    }
}

/// Writes `byte` to every byte of a file of `len` bytes, through a mapping: hugetlbfs has no write(2).
pub(crate) fn fill(path: &Path, len: u64, byte: u8) {
    let file = File::options().read(true).write(true).open(path);
    let file = file.expect("our own file");
    let len = usize::try_from(len).expect("64 bits");
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of an open file, filled as far as it is long, and gone before this returns.
    unsafe {
        let addr = libc::mmap(
            ptr::null_mut(),
            len,
            access,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        assert_ne!(addr, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        ptr::write_bytes(addr.cast::<u8>(), byte, len);
        assert_eq!(libc::munmap(addr, len), 0);
    }
}
