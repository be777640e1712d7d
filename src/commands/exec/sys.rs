//! System calls that the standard library does not wrap: signals, and what a child does before its exec.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::ptr;

/// Those that a command is told about.
const PASSED_ON: [i32; 7] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
];

/// Signals that are taken one by one instead of interrupting anything, so that none is lost between two
/// steps.
pub(super) struct Signals {
    taken: libc::sigset_t,
    /// The mask that the command is to start with.
    before: libc::sigset_t,
}

/// What came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// A child ended, stopped or went on.
    ChildChanged,
    /// From a process.
    Sent(i32),
    /// From the kernel, because of a key, another window size or a hang-up.
    OfTerminal(i32),
}

impl Signals {
    /// Blocks them in this thread, which has to be the only one.
    pub(super) fn block() -> io::Result<Self> {
        let mut taken = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: the calls initialise the sets they are given, and these signals exist. The default action
        // for SIGCHLD is to do nothing; ignored, as it can be inherited, nobody could wait for a child.
        unsafe {
            libc::sigemptyset(taken.as_mut_ptr());
            for signal in PASSED_ON.into_iter().chain([libc::SIGCHLD]) {
                libc::sigaddset(taken.as_mut_ptr(), signal);
            }
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            let failed =
                libc::pthread_sigmask(libc::SIG_BLOCK, taken.as_ptr(), before.as_mut_ptr());
            match failed {
                0 => Ok(Self {
                    taken: taken.assume_init(),
                    before: before.assume_init(),
                }),
                errno => Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }

    /// Waits for the next one: sigwaitinfo(2).
    pub(super) fn next(&self) -> io::Result<Signal> {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        loop {
            // SAFETY: the set is initialised, and `info` is written to before it is read.
            let number = unsafe { libc::sigwaitinfo(&self.taken, info.as_mut_ptr()) };
            if number < 0 {
                let error = io::Error::last_os_error();
                match error.kind() {
                    io::ErrorKind::Interrupted => continue,
                    _ => return Err(error),
                }
            }
            // SAFETY: zeroed is a valid value, and the call has filled it in.
            let code = unsafe { info.assume_init() }.si_code;
            return Ok(match number {
                libc::SIGCHLD => Signal::ChildChanged,
                // Codes of the kernel are above zero (SI_FROMKERNEL in its signal headers).
                number if code > 0 => Signal::OfTerminal(number),
                number => Signal::Sent(number),
            });
        }
    }
}

/// Starts the command with `lock` as its only other open descriptor, and the signals as they were before.
pub(super) fn spawn(
    command: &mut Command,
    lock: BorrowedFd<'_>,
    signals: &Signals,
) -> io::Result<Child> {
    let (lock, before) = (lock.as_raw_fd(), signals.before);
    let prepare = move || {
        // SAFETY: `lock` is open in the parent while it spawns, and so in its child; the sets and
        // actions are initialised. A handler of this program must not take a signal that is meant for
        // the command: it ends the child then, as it would have a moment later.
        unsafe {
            // Only here, so that no other child can get it.
            if libc::fcntl(lock, libc::F_SETFD, 0) < 0 {
                return Err(io::Error::last_os_error());
            }
            for signal in PASSED_ON {
                let mut action = MaybeUninit::<libc::sigaction>::zeroed();
                libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
                if action.assume_init().sa_sigaction != libc::SIG_IGN {
                    libc::signal(signal, libc::SIG_DFL);
                }
            }
            match libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut()) {
                0 => Ok(()),
                errno => Err(io::Error::from_raw_os_error(errno)),
            }
        }
    };
    // SAFETY: between fork and exec it makes nothing but calls that are safe there (signal-safety(7)), and
    // allocates nothing.
    unsafe { command.pre_exec(prepare) };
    command.spawn()
}

/// Whether the kernel has sent a signal of the terminal's to a child as well, when this process got it.
///
/// Those of keys and of another window size go to all of the foreground process group: a child that is in
/// another one, as timeout(1) and setsid(1) are, gets none. A hang-up goes to the session's leader alone,
/// and to the group only when the leader ends (`tty_signal_session_leader`, drivers/tty/tty_jobctrl.c).
pub(super) fn has_had_it_too(child: u32, signal: i32) -> bool {
    let Ok(child) = i32::try_from(child) else {
        return false;
    };
    // SAFETY: these calls take no pointers.
    let (ours, its, leader) = unsafe {
        (
            libc::getpgrp(),
            libc::getpgid(child),
            libc::getsid(0) == libc::getpid(),
        )
    };
    let to_leader_alone = signal == libc::SIGHUP && leader;
    its == ours && !to_leader_alone
}

/// kill(2); a process that has ended already needs no signal.
pub(super) fn send(process: u32, signal: i32) -> io::Result<()> {
    let Ok(process) = i32::try_from(process) else {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    };
    // SAFETY: kill takes no pointer.
    if unsafe { libc::kill(process, signal) } == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        error => Err(error),
    }
}
