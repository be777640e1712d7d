//! Transparent hugepages.

use crate::fields::marked;
use crate::root::Root;

/// When ordinary memory gets transparent hugepages: `/sys/kernel/mm/transparent_hugepage/enabled`
/// (`Documentation/admin-guide/mm/transhuge.rst`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Thp {
    /// Wherever it is possible.
    Always,
    /// Where `madvise(MADV_HUGEPAGE)` asks for it.
    Madvise,
    /// Nowhere.
    Never,
    /// The kernel is built without them, or does not say.
    #[default]
    Unavailable,
}

impl Thp {
    pub(crate) fn read(root: &mut Root) -> Self {
        const ENABLED: &str = "sys/kernel/mm/transparent_hugepage/enabled";
        let Some(text) = root.text(ENABLED) else {
            return Self::Unavailable;
        };
        let chosen = |text: &str| match marked(text, '[', ']')? {
            "always" => Some(Self::Always),
            "madvise" => Some(Self::Madvise),
            "never" => Some(Self::Never),
            _ => None,
        };
        root.understand(ENABLED, &text, chosen).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::with_files;

    fn enabled(text: &str) -> (Thp, usize) {
        let dir = with_files(&[("sys/kernel/mm/transparent_hugepage/enabled", text)]);
        let mut root = Root::new(dir.path());
        (Thp::read(&mut root), root.problems.len())
    }

    #[test]
    fn the_word_in_brackets_counts() {
        assert_eq!(enabled("[always] madvise never\n"), (Thp::Always, 0));
        assert_eq!(enabled("always [madvise] never\n"), (Thp::Madvise, 0));
        assert_eq!(enabled("always madvise [never]\n"), (Thp::Never, 0));
    }

    #[test]
    fn an_unknown_word_is_a_problem() {
        assert_eq!(enabled("always madvise never\n"), (Thp::Unavailable, 1));
        assert_eq!(enabled("[inherit]\n"), (Thp::Unavailable, 1));
    }
}
