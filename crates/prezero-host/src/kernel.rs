//! Which kernel runs, and how it preempts.

use crate::fields::marked;
use crate::root::Root;

/// The kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kernel {
    /// What `uname -r` prints, from `/proc/sys/kernel/osrelease`; empty if that is absent.
    pub release: String,
    /// The preemption model: `none`, `voluntary`, `full`, `lazy` or `rt`.
    ///
    /// It decides in how large pieces the kernel clears a hugepage. It comes from
    /// `/sys/kernel/debug/sched/preempt`, which only root may read; then from the build flags in
    /// `/proc/version` and a `preempt=` on the kernel's command line. They say less, hence three
    /// more values: `dynamic` (chosen at boot, choice unknown), `none or voluntary` (no flag tells
    /// these two apart) and `unknown`.
    pub preempt: String,
}

impl Kernel {
    /// Major and minor version, such as (6, 18); `None` if the release does not start with them.
    #[must_use]
    pub fn version(&self) -> Option<(u32, u32)> {
        let mut parts = self.release.split(|c: char| !c.is_ascii_digit());
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    }

    pub(crate) fn read(root: &mut Root) -> Self {
        let release = root
            .text("proc/sys/kernel/osrelease")
            .unwrap_or_default()
            .trim()
            .to_owned();
        let debug = root
            .text_if_readable("sys/kernel/debug/sched/preempt")
            .unwrap_or_default();
        let preempt = match marked(&debug, '(', ')') {
            Some(model) => model.to_owned(),
            None => {
                let version = root.reduced("proc/version", build_flags);
                let version = version.unwrap_or_default();
                let cmdline = root.reduced("proc/cmdline", preempt_words);
                let cmdline = cmdline.unwrap_or_default();
                preempt_model(&version, &cmdline).to_owned()
            }
        };
        Self { release, preempt }
    }
}

/// `#` and the flags of `/proc/version` that tell the model. What stands before `#1 SMP PREEMPT`
/// names the builder and the compiler.
fn build_flags(version: &str) -> String {
    let Some((_, build)) = version.rsplit_once('#') else {
        return String::new();
    };
    let flags = build
        .split_whitespace()
        .filter(|word| matches!(*word, "PREEMPT" | "PREEMPT_DYNAMIC" | "PREEMPT_RT"));
    let words: Vec<_> = std::iter::once("#").chain(flags).collect();
    words.join(" ") + "\n"
}

/// The `preempt=` words that the kernel knows: it ignores others.
fn preempt_words(cmdline: &str) -> String {
    let known = |word: &&str| {
        let model = word.strip_prefix("preempt=");
        matches!(model, Some("none" | "voluntary" | "full" | "lazy"))
    };
    let words: Vec<_> = cmdline.split_whitespace().filter(known).collect();
    words.join(" ") + "\n"
}

/// The model as far as the build flags (`init/Makefile` of the kernel) and the command line tell.
fn preempt_model<'a>(flags: &str, cmdline: &'a str) -> &'a str {
    let Some(build) = flags.strip_prefix('#') else {
        return "unknown";
    };
    let flag = |name| build.split_whitespace().any(|word| word == name);
    if flag("PREEMPT_RT") {
        "rt"
    } else if flag("PREEMPT_DYNAMIC") {
        // The last word counts.
        cmdline
            .split_whitespace()
            .filter_map(|word| word.strip_prefix("preempt="))
            .next_back()
            .unwrap_or("dynamic")
    } else if flag("PREEMPT") {
        "full"
    } else {
        "none or voluntary"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::with_files;
    use proptest::prelude::*;

    #[test]
    fn the_preemption_model_follows_flags_and_command_line() {
        let model = |flags: &str, cmdline| {
            let version =
                format!("Linux version 6.1 (build@host) (gcc PREEMPT_RT 15) #1 SMP {flags} Mon\n");
            preempt_model(&build_flags(&version), &preempt_words(cmdline)).to_owned()
        };
        assert_eq!(model("PREEMPT_DYNAMIC", "quiet"), "dynamic");
        assert_eq!(model("PREEMPT_DYNAMIC", "preempt=full quiet\n"), "full");
        assert_eq!(
            model("PREEMPT_DYNAMIC", "preempt=none preempt=lazy preempt=fast"),
            "lazy"
        );
        assert_eq!(model("PREEMPT", "preempt=none"), "full");
        assert_eq!(model("PREEMPT_RT", ""), "rt");
        assert_eq!(model("", ""), "none or voluntary");
        assert_eq!(
            preempt_model(&build_flags("Linux version 6.1"), ""),
            "unknown"
        );
    }

    #[test]
    fn the_kernel_s_own_word_wins_where_it_can_be_read() {
        let dir = with_files(&[
            (
                "sys/kernel/debug/sched/preempt",
                "none voluntary (full) lazy \n",
            ),
            (
                "proc/version",
                "Linux version 6.12 #1 SMP PREEMPT_DYNAMIC\n",
            ),
            ("proc/cmdline", "preempt=voluntary\n"),
            ("proc/sys/kernel/osrelease", "6.12.1\n"),
        ]);
        let mut root = Root::new(dir.path());
        let kernel = Kernel::read(&mut root);
        assert_eq!(
            kernel,
            Kernel {
                release: "6.12.1".into(),
                preempt: "full".into()
            }
        );
        assert_eq!(root.problems, []);
    }

    proptest! {
        #[test]
        fn any_text_has_a_model(version in "\\PC*|#[ A-Z_]*", cmdline in "\\PC*") {
            let (flags, words) = (build_flags(&version), preempt_words(&cmdline));
            prop_assert!(!preempt_model(&flags, &words).is_empty());
            prop_assert_eq!(build_flags(&flags), flags);
            prop_assert_eq!(preempt_words(&words), words);
        }
    }
}
