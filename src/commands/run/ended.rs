//! What the end of a Linux guest means: its word in the report, and whether the run was well.

use prezero_memory::Class;
use prezero_vmm::LinuxEnd;

use crate::failure::Failure;

/// How the guest ended, with what its command line says about resets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    PowerOff,
    Reset,
    Panic,
    TripleFault(u32),
    DebugExit(u8),
    Until,
    Other,
}

impl End {
    pub(super) fn of(end: LinuxEnd, cmdline: &str) -> Self {
        match end {
            LinuxEnd::PowerOff => Self::PowerOff,
            LinuxEnd::WarmReset if marks_panics(cmdline) => Self::Panic,
            LinuxEnd::Reset | LinuxEnd::WarmReset => Self::Reset,
            LinuxEnd::Panic => Self::Panic,
            LinuxEnd::TripleFault { cpu } => Self::TripleFault(cpu),
            LinuxEnd::DebugExit(code) => Self::DebugExit(code),
            LinuxEnd::Until => Self::Until,
            _ => Self::Other,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::PowerOff => "power-off",
            Self::Reset => "reset",
            Self::Panic => "panic",
            Self::TripleFault(_) => "triple-fault",
            Self::DebugExit(_) => "debug-exit",
            Self::Until => "until",
            Self::Other => "other",
        }
    }

    /// Whether that is well; `until` is the text that was to come first.
    pub(super) fn judge(self, until: Option<&str>) -> Result<(), Failure> {
        let (message, fix) = match self {
            Self::Panic => (
                "The guest's kernel reported a panic".to_owned(),
                "run it again with --serial FILE, and without quiet in --cmdline: the reason is on its console",
            ),
            Self::TripleFault(cpu) => (
                format!("vCPU {cpu} shut down with a triple fault"),
                "add earlyprintk=ttyS0 to --cmdline to see how far the kernel came; reboot=t in it does this on purpose",
            ),
            Self::DebugExit(code) if code != 0 => (
                format!("A program of the guest ended the machine with code {code}"),
                "run it again with --serial FILE, to see what it said",
            ),
            _ => match until.filter(|_| self != Self::Until) {
                Some(until) => (
                    format!(
                        "The guest ended ({}) before {until:?} was on its console",
                        self.name()
                    ),
                    "run it again without --until, and with --serial FILE, to see what it wrote",
                ),
                None => return Ok(()),
            },
        };
        Err(Failure {
            class: Class::Guest,
            message,
            fix: Some(fix.to_owned()),
        })
    }
}

/// Whether a kernel with this command line asks for a warm reset when it panics, and not otherwise.
fn marks_panics(cmdline: &str) -> bool {
    let kinds = cmdline
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("reboot="))
        .flat_map(|kinds| kinds.split(','));
    let (mut after_panic, mut always) = (false, false);
    for kind in kinds {
        after_panic |= kind.starts_with("panic_w");
        always |= kind.starts_with('w');
    }
    after_panic && !always
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::DEFAULT_CMDLINE;

    #[test]
    fn a_warm_reset_is_a_panic_only_where_the_command_line_says_so() {
        let end = |cmdline| End::of(LinuxEnd::WarmReset, cmdline);
        assert_eq!(end(DEFAULT_CMDLINE), End::Panic);
        assert_eq!(end("reboot=panic_warm"), End::Panic);
        for cmdline in [
            "",
            "reboot=k",
            "reboot=w",
            "reboot=w,panic_w",
            "noreboot=panic_w",
        ] {
            assert_eq!(end(cmdline), End::Reset, "{cmdline}");
        }
        assert_eq!(End::of(LinuxEnd::Reset, DEFAULT_CMDLINE), End::Reset);
    }

    #[test]
    fn ends_are_judged() {
        for end in [End::PowerOff, End::Reset, End::DebugExit(0)] {
            assert!(end.judge(None).is_ok(), "{end:?}");
            let failure = end.judge(Some("login:")).expect_err("too early");
            assert!(failure.message.contains("before \"login:\""), "{failure:?}");
        }
        assert!(End::Until.judge(Some("login:")).is_ok());
        for end in [End::Panic, End::TripleFault(1), End::DebugExit(1)] {
            for until in [None, Some("login:")] {
                let failure = end.judge(until).expect_err("a failure");
                assert_eq!(failure.class, Class::Guest);
                assert!(failure.fix.is_some() && !failure.message.contains("before"));
            }
        }
    }
}
