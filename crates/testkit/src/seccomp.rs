//! A thread or a command whose system calls are refused, as in a container.

use std::process::Command;

use crate::sys;

/// What becomes of a refused call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It fails with this errno.
    Errno(u16),
    /// It ends the process with SIGSYS.
    Kill,
}

/// A seccomp filter (seccomp(2)) that refuses some system calls and allows all others.
#[derive(Clone, Debug)]
pub struct Refused(Vec<libc::sock_filter>);

impl Refused {
    /// Refuses the calls of these numbers (`libc::SYS_…`).
    ///
    /// # Panics
    ///
    /// If a number is none.
    #[must_use]
    pub fn new(calls: &[libc::c_long], refusal: Refusal) -> Self {
        let op = |code: u32, jf, k| libc::sock_filter {
            code: u16::try_from(code).expect("a BPF operation"),
            jt: 0,
            jf,
            k,
        };
        let action = match refusal {
            Refusal::Errno(errno) => libc::SECCOMP_RET_ERRNO | u32::from(errno),
            Refusal::Kill => libc::SECCOMP_RET_KILL_PROCESS,
        };
        // The number of the call is the first word of `struct seccomp_data`.
        let mut filter = vec![op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
        for call in calls {
            let number = u32::try_from(*call).expect("the number of a system call");
            filter.push(op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, number));
            filter.push(op(libc::BPF_RET | libc::BPF_K, 0, action));
        }
        let allow = libc::SECCOMP_RET_ALLOW;
        filter.push(op(libc::BPF_RET | libc::BPF_K, 0, allow));
        Self(filter)
    }

    /// Runs `f` on a thread of its own under the filter; threads that it makes are under it too.
    ///
    /// # Panics
    ///
    /// If the kernel has no filters, and with `f`.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                sys::filter_system_calls(&self.0).expect("a seccomp filter");
                f()
            });
            thread.join().expect("a thread under a filter")
        })
    }

    /// Has `command` run under the filter.
    pub fn put_on(self, command: &mut Command) {
        sys::filter_before_exec(command, self.0);
    }
}
