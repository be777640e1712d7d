//! The resource limits of this process.

use crate::root::Root;

/// The soft limits (getrlimit(2)) that can stand in the way of a large VM, from
/// `/proc/self/limits`. `None` is no limit, or one that is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessLimits {
    /// The largest file this process may make, in bytes (`RLIMIT_FSIZE`). Above it `ftruncate` raises
    /// SIGXFSZ, for a memfd or a hugetlbfs file too.
    pub file_size: Option<u64>,
    /// Its address space in bytes (`RLIMIT_AS`), guest memory included.
    pub address_space: Option<u64>,
    /// What it may lock in memory, in bytes (`RLIMIT_MEMLOCK`). Hugetlb pages need no lock; what VFIO
    /// pins counts.
    pub locked_memory: Option<u64>,
    /// How many descriptors it may have (`RLIMIT_NOFILE`).
    pub open_files: Option<u64>,
}

/// `seq_printf` in `proc_pid_limits` of the kernel's `fs/proc/base.c` pads the names with spaces.
const FILE_SIZE: &str = "Max file size ";
const OPEN_FILES: &str = "Max open files ";
const LOCKED_MEMORY: &str = "Max locked memory ";
const ADDRESS_SPACE: &str = "Max address space ";

impl ProcessLimits {
    pub(crate) fn read(root: &mut Root, path: &str) -> Self {
        let text = root.reduced(path, used_lines).unwrap_or_default();
        let mut soft = |name| {
            let value = soft_limit(&text, name)?;
            root.understand(path, value, |value| match value {
                "unlimited" => Some(None),
                value => value.parse().ok().map(Some),
            })?
        };
        Self {
            file_size: soft(FILE_SIZE),
            address_space: soft(ADDRESS_SPACE),
            locked_memory: soft(LOCKED_MEMORY),
            open_files: soft(OPEN_FILES),
        }
    }
}

fn used_lines(text: &str) -> String {
    let line = |name: &&str| Some(format!("{name:<26}{}\n", soft_limit(text, name)?));
    [FILE_SIZE, OPEN_FILES, LOCKED_MEMORY, ADDRESS_SPACE]
        .iter()
        .filter_map(line)
        .collect()
}

/// The first of the two figures on the line with this name.
fn soft_limit<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.split_whitespace().next())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::with_files;
    use proptest::prelude::*;

    fn limits(text: &str) -> (ProcessLimits, usize) {
        let dir = with_files(&[("limits", text)]);
        let mut root = Root::new(dir.path());
        (
            ProcessLimits::read(&mut root, "limits"),
            root.problems.len(),
        )
    }

    const KERNEL_S: &str = "\
Limit                     Soft Limit           Hard Limit           Units     
Max file size             1048576              unlimited            bytes     
Max open files            1024                 524288               files     
Max locked memory         8388608              8388608              bytes     
Max address space         unlimited            unlimited            bytes     
Max file locks            7                    unlimited            locks     
";

    #[test]
    fn the_soft_limit_counts_and_unlimited_is_none() {
        let expected = ProcessLimits {
            file_size: Some(1 << 20),
            address_space: None,
            locked_memory: Some(8 << 20),
            open_files: Some(1024),
        };
        assert_eq!(limits(KERNEL_S), (expected, 0));
    }

    #[test]
    fn absent_lines_are_no_limits_and_broken_ones_problems() {
        assert_eq!(limits(""), (ProcessLimits::default(), 0));
        assert_eq!(
            limits("Max file size   \nMax open files many 1 files\n"),
            (ProcessLimits::default(), 1)
        );
        assert_eq!(limits("Max file sizes 1 1 bytes\n").0.file_size, None);
    }

    #[test]
    fn what_is_kept_reads_as_the_whole() {
        let kept = used_lines(KERNEL_S);
        assert_eq!(limits(&kept), limits(KERNEL_S));
        assert_eq!(used_lines(&kept), kept);
        assert_eq!(kept.lines().count(), 4);
    }

    proptest! {
        #[test]
        fn any_text_has_limits(text in "(Max file size|Max open files)[0-9a-z \n]{0,40}|\\PC*") {
            let _ = limits(&text);
        }
    }
}
