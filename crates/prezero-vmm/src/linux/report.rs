//! How a Linux guest ended, and what is known of it then.

use std::time::Instant;

use prezero_memory::IdSet;

use crate::error::GuestError;

/// How a Linux guest ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinuxEnd {
    /// It powered off, whatever it had written before.
    PowerOff,
    /// It reset itself.
    Reset,
    /// It reset itself, and asked for a warm one, which a kernel does after a panic if its command line has
    /// `reboot=panic_warm` (and after any other reset with `reboot=warm`).
    WarmReset,
    /// It said that it panicked, by the panic device, or on its console before it reset itself.
    Panic,
    /// A vCPU met an exception while it handled an exception, twice over; a kernel with `reboot=t` does so on purpose.
    TripleFault {
        /// Which vCPU, counted from 0.
        cpu: u32,
    },
    /// A program of the guest wrote this byte to the debug exit port, 0xf4.
    DebugExit(u8),
    /// The text that was looked for has come.
    Until,
}

impl LinuxEnd {
    /// What an end means with what is known besides: whether the kernel said on its console that it panics, and
    /// whether it asked for a warm reset.
    ///
    /// With `panic=1` and a way of reset of its own a kernel only says so on its console. One that powers off has not
    /// panicked: that text was a program's.
    pub(super) fn in_the_light_of(self, panicked: bool, warm: bool) -> LinuxEnd {
        match self {
            LinuxEnd::Reset | LinuxEnd::TripleFault { .. } if panicked => LinuxEnd::Panic,
            LinuxEnd::Reset if warm => LinuxEnd::WarmReset,
            end => end,
        }
    }
}

/// What became of a Linux guest. Times are the host's.
#[derive(Debug)]
pub struct LinuxReport {
    /// How it ended, or why it could not run on or was stopped. Everything else is known in either case.
    pub end: Result<LinuxEnd, GuestError>,
    /// Just before the first vCPU entered the kernel.
    pub started: Option<Instant>,
    /// The first byte on the serial port.
    pub first_byte: Option<Instant>,
    /// When the kernel said that it runs its first program (`Run /init as init process`, at the log level that Linux
    /// has without `quiet`).
    pub user_space: Option<Instant>,
    /// When the text that was looked for had come.
    pub until: Option<Instant>,
    /// When the guest had ended or was stopped.
    pub ended: Instant,
    /// The guest node of each vCPU, and the host CPUs that its thread was found to be kept to.
    pub vcpus: Vec<(u32, IdSet)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_said_explains_a_reset_and_nothing_else() {
        use LinuxEnd::*;
        let fault = TripleFault { cpu: 1 };
        for (end, panicked, warm, means) in [
            (Reset, false, false, Reset),
            (Reset, false, true, WarmReset),
            (Reset, true, false, Panic),
            (Reset, true, true, Panic),
            (fault, false, true, fault),
            (fault, true, false, Panic),
            (PowerOff, true, true, PowerOff),
            (Until, true, true, Until),
            (DebugExit(0), true, true, DebugExit(0)),
            (Panic, false, false, Panic),
        ] {
            assert_eq!(
                end.in_the_light_of(panicked, warm),
                means,
                "{end:?} {panicked} {warm}"
            );
        }
    }
}
