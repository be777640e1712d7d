//! termios(3) and sigaction(2): the terminal's modes, changed, and put back by whatever ends or stops the process.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use libc::{c_int, c_void, sigaction, siginfo_t, sigset_t, termios};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level;

use crate::stop;

/// Modes of the terminal at stdin before they were changed, and the changed ones.
static MODES: OnceLock<(termios, termios)> = OnceLock::new();
/// Whether the terminal is to be raw whenever this process is in its foreground.
static WANTED: AtomicBool = AtomicBool::new(false);
/// Whether it is raw.
static RAW: AtomicBool = AtomicBool::new(false);
/// How often the process was told to stop, or went on.
static TURNS: AtomicUsize = AtomicUsize::new(0);
/// What signals did before, with their numbers.
static FORMER: OnceLock<Vec<(c_int, sigaction)>> = OnceLock::new();

/// Signals that end a process by default, but for SIGINT and SIGTERM, which `stop` has, SIGKILL, which nobody has, and
/// SIGPIPE, which Rust's runtime ignores. Those for real time come on top.
const FATAL: [c_int; 18] = [
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGUSR1,
    libc::SIGSEGV,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGSTKFLT,
    libc::SIGXCPU,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPWR,
    libc::SIGSYS,
];

/// tcgetpgrp(3): whether this process may read from the terminal at stdin.
pub(super) fn is_in_foreground() -> bool {
    // SAFETY: both take no pointer; for what is no terminal the first returns -1.
    unsafe { libc::tcgetpgrp(libc::STDIN_FILENO) == libc::getpgrp() }
}

/// Has the terminal at stdin hand over keys one by one, without echo and without making signals of them, and has the
/// signals that end or stop the process put it back first. Output stays as it was: a new line begins at its beginning.
pub(super) fn make_raw() -> io::Result<()> {
    let mut before = MaybeUninit::uninit();
    // SAFETY: tcgetattr(3) fills what it is given when it succeeds.
    let before: termios = unsafe {
        match libc::tcgetattr(libc::STDIN_FILENO, before.as_mut_ptr()) {
            0 => before.assume_init(),
            _ => return Err(io::Error::last_os_error()),
        }
    };
    let mut raw = before;
    raw.c_iflag &= !(libc::ICRNL | libc::INLCR | libc::IGNCR | libc::IXON | libc::ISTRIP);
    raw.c_lflag &= !(libc::ICANON | libc::ECHO | libc::ISIG | libc::IEXTEN);
    raw.c_cc[libc::VMIN] = 1;
    raw.c_cc[libc::VTIME] = 0;
    MODES.get_or_init(|| (before, raw));
    for signal in [SIGINT, SIGTERM] {
        if !stop::is_ignored(signal) {
            // SAFETY: the action calls what a handler may call.
            unsafe { low_level::register(signal, || keeping_errno(put_back)) }?;
        }
    }
    handle_signals()?;
    WANTED.store(true, Ordering::SeqCst);
    RAW.store(true, Ordering::SeqCst);
    set(&raw)
}

/// Puts the terminal back for good.
pub(super) fn restore() {
    WANTED.store(false, Ordering::SeqCst);
    put_back();
}

/// The modes that were there before, if they are not there now; safe in a signal handler (signal-safety(7)).
fn put_back() {
    if let Some((before, _)) = MODES.get()
        && RAW.swap(false, Ordering::SeqCst)
    {
        let _ = set(before);
    }
}

/// Raw once more, if the terminal is this process's again; safe in a signal handler.
fn raw_again() {
    if let Some((_, raw)) = MODES.get()
        && WANTED.load(Ordering::SeqCst)
        && is_in_foreground()
    {
        RAW.store(true, Ordering::SeqCst);
        let _ = set(raw);
    }
}

/// tcsetattr(3), which from the background would stop the process if it did not block SIGTTOU.
fn set(modes: &termios) -> io::Result<()> {
    let before = mask(libc::SIG_BLOCK, libc::SIGTTOU);
    // SAFETY: the modes are live.
    let result = match unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, modes) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: the set is one that pthread_sigmask(3) gave.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    result
}

/// pthread_sigmask(3) for one signal: what was blocked before.
fn mask(how: c_int, signal: c_int) -> sigset_t {
    let (mut set, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: sigemptyset(3) initialises both sets before they are used.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigemptyset(before.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::pthread_sigmask(how, set.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

/// Takes the signals that end or stop a process, except those that it was told to ignore, once.
fn handle_signals() -> io::Result<()> {
    if FORMER.get().is_some() {
        return Ok(());
    }
    let real_time = libc::SIGRTMIN() + 1..=libc::SIGRTMAX();
    let all = FATAL.into_iter().chain(real_time);
    let all = all.chain([libc::SIGTSTP, libc::SIGCONT]);
    let former = all.map(|signal| Ok((signal, action(signal, None)?)));
    let mut former = former.collect::<io::Result<Vec<_>>>()?;
    former.retain(|(_, action)| action.sa_sigaction != libc::SIG_IGN);
    for (signal, _) in FORMER.get_or_init(|| former) {
        action(*signal, Some(&ours(*signal)))?;
    }
    Ok(())
}

/// sigaction(2): what a signal does, and what it is to do from now on.
fn action(signal: c_int, new: Option<&sigaction>) -> io::Result<sigaction> {
    let mut former = MaybeUninit::uninit();
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the new action is live or null, and the former one is filled when the call succeeds.
    unsafe {
        match libc::sigaction(signal, new, former.as_mut_ptr()) {
            0 => Ok(former.assume_init()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// An action of this handler. Stacks that have overflown need the other one, which Rust's runtime gives each thread.
fn handled_by(handler: usize) -> sigaction {
    // SAFETY: an action of zeros is the default one, without flags and with nothing blocked.
    let mut action: sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = handler;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    action
}

fn ours(signal: c_int) -> sigaction {
    type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
    let handler: Handler = match signal {
        libc::SIGTSTP => on_stop,
        libc::SIGCONT => on_continue,
        _ => on_end,
    };
    handled_by(handler as usize)
}

/// Puts the terminal back, and has the signal do what it did before.
extern "C" fn on_end(signal: c_int, info: *mut siginfo_t, _: *mut c_void) {
    put_back();
    // SAFETY: the kernel gives every handler with SA_SIGINFO what it knows.
    let code = unsafe { (*info).si_code };
    let faults = match signal {
        libc::SIGBUS => code > 0 && code != libc::BUS_MCEERR_AO,
        libc::SIGSEGV | libc::SIGILL | libc::SIGFPE => code > 0,
        _ => false,
    };
    let former = FORMER
        .get()
        .and_then(|all| all.iter().find(|of| of.0 == signal));
    match former {
        // The instruction is tried once more, and faults again: Rust's runtime knows a stack's overflow.
        Some((_, former)) if faults => drop(action(signal, Some(former))),
        _ => {
            let _ = action(signal, Some(&handled_by(libc::SIG_DFL)));
            // SAFETY: no pointer is given. The signal is blocked until this returns, and ends the process then.
            unsafe { libc::raise(signal) };
        }
    }
}

/// Puts the terminal back and stops. In a process group without a parent in its session nothing stops.
extern "C" fn on_stop(signal: c_int, _: *mut siginfo_t, _: *mut c_void) {
    keeping_errno(|| {
        let turn = TURNS.fetch_add(1, Ordering::SeqCst) + 1;
        put_back();
        let _ = action(signal, Some(&handled_by(libc::SIG_DFL)));
        // SAFETY: no pointer is given. As soon as the signal is let through, it stops the process.
        unsafe { libc::raise(signal) };
        mask(libc::SIG_UNBLOCK, signal);
        mask(libc::SIG_BLOCK, signal);
        let _ = action(signal, Some(&ours(signal)));
        // It was not stopped, as the kernel has it for a group without a parent to go on with it. Otherwise
        // this is late: it may have been told to stop once more, on another thread.
        if TURNS.load(Ordering::SeqCst) == turn {
            raw_again();
        }
    });
}

/// After a stop of any kind, SIGSTOP included.
extern "C" fn on_continue(_: c_int, _: *mut siginfo_t, _: *mut c_void) {
    keeping_errno(|| {
        TURNS.fetch_add(1, Ordering::SeqCst);
        // The thread that stopped may not have come to it.
        let handled = |former: &Vec<(c_int, sigaction)>| {
            former.iter().any(|(signal, _)| *signal == libc::SIGTSTP)
        };
        if FORMER.get().is_some_and(handled) {
            let _ = action(libc::SIGTSTP, Some(&ours(libc::SIGTSTP)));
        }
        raw_again();
    });
}

/// What a handler does must not be seen by whom it interrupts.
fn keeping_errno(work: impl FnOnce()) {
    // SAFETY: every thread has an errno, and its address is valid as long as the thread is.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { errno.read() };
    work();
    // SAFETY: as above.
    unsafe { errno.write(before) };
}

/// poll(2): whether something can be written to stderr without waiting.
pub(super) fn stderr_takes() -> bool {
    let mut stderr = libc::pollfd {
        fd: libc::STDERR_FILENO,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: the entry is live, and there is no time to wait for.
    unsafe { libc::poll(&raw mut stderr, 1, 0) != 0 }
}
