//! Mounted hugetlbfs filesystems.

use std::path::{Component, Path, PathBuf};

use crate::host::Host;
use crate::mountinfo::{Mount, unescape};
use crate::page_size::PageSize;
use crate::root::Root;

/// A hugetlbfs mount that can be reached, from `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HugetlbfsMount {
    /// Where it is mounted.
    pub path: PathBuf,
    /// The size of its pages: the `pagesize` option, or the host's default size without one.
    pub page_size: Option<PageSize>,
    /// The most that its files may take together, in bytes; `None` without a `size` option.
    pub size_limit: Option<u64>,
    /// Whether nothing can be written to it.
    pub read_only: bool,
    /// Where filesystems of other types are mounted below `path`: what is there is not on this one.
    pub covered: Vec<PathBuf>,
}

impl Host {
    /// The mount to use for pages of this size: the first one in `mounts` that has it and is not
    /// read-only, whatever its `size_limit`. The order is the kernel's (`/proc/self/mountinfo`), so
    /// that the choice is the same every time.
    #[must_use]
    pub fn mount_for(&self, page_size: PageSize) -> Option<&HugetlbfsMount> {
        self.mounts
            .iter()
            .find(|mount| mount.page_size == Some(page_size) && !mount.read_only)
    }

    /// The hugetlbfs mount that an absolute path is on, as far as the path's text tells: the one with
    /// the longest `path` in front, unless another filesystem is mounted in between. Symbolic links
    /// are not followed (std::fs::canonicalize does), and a path with `..` is on none.
    #[must_use]
    pub fn mount_of(&self, path: &Path) -> Option<&HugetlbfsMount> {
        let ends_elsewhere = path.components().any(|part| part == Component::ParentDir);
        if ends_elsewhere || !path.is_absolute() {
            return None;
        }
        self.mounts
            .iter()
            .filter(|mount| path.starts_with(&mount.path))
            .max_by_key(|mount| mount.path.components().count())
            .filter(|mount| !mount.covered.iter().any(|other| path.starts_with(other)))
    }
}

/// The hugetlbfs mounts among `mounts`, in the same order.
pub(crate) fn hugetlbfs(
    root: &mut Root,
    path: &str,
    mounts: &[Mount<'_>],
    default_size: Option<PageSize>,
) -> Vec<HugetlbfsMount> {
    let is_hugetlbfs = |mount: &&Mount<'_>| mount.fs_type == "hugetlbfs";
    mounts
        .iter()
        .filter(is_hugetlbfs)
        .map(|mount| HugetlbfsMount {
            path: unescape(mount.point),
            page_size: match option(mount, "pagesize") {
                Some(size) => {
                    root.understand(path, size, |size| bytes(size).and_then(PageSize::new))
                }
                None => default_size,
            },
            size_limit: option(mount, "size").and_then(|size| root.understand(path, size, bytes)),
            read_only: mount.is_read_only(),
            covered: mounts
                .iter()
                .filter(|other| other.fs_type != "hugetlbfs" && other.is_below(mount))
                .map(|other| unescape(other.point))
                .collect(),
        })
        .collect()
}

fn option<'a>(mount: &Mount<'a>, name: &str) -> Option<&'a str> {
    let values = mount
        .super_options
        .split(',')
        .filter_map(|option| option.split_once('='));
    values
        .filter(|(found, _)| *found == name)
        .map(|(_, value)| value)
        .next_back()
}

/// A number with the suffixes of the kernel's `memparse`, which are powers of 1024 in either case.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|last: char| last.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        "e" => 60,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mountinfo;
    use crate::root::with_files;
    use proptest::prelude::*;

    fn read(text: &str) -> (Vec<HugetlbfsMount>, usize) {
        let dir = with_files(&[]);
        let mut root = Root::new(dir.path());
        let (mounts, _) = mountinfo::parse(text);
        let mounts = hugetlbfs(
            &mut root,
            "proc/self/mountinfo",
            &mounts,
            Some(PageSize::HUGE_2M),
        );
        (mounts, root.problems.len())
    }

    #[test]
    fn mounts_keep_the_order_of_the_file() {
        let (mounts, problems) = read(
            "30 1 0:1 / /dev/huge\\0401G rw - hugetlbfs none rw,pagesize=1024M\n\
             31 1 0:2 / /tmp rw - tmpfs none rw,size=4k\n\
             32 1 0:3 / /a ro - hugetlbfs none rw,pagesize=2M,size=1073741824\n\
             33 1 0:4 / /b rw - hugetlbfs none ro\n",
        );
        let [first, second, third] = &mounts[..] else {
            panic!("{mounts:?}")
        };
        assert_eq!(first.path, PathBuf::from("/dev/huge 1G"));
        assert_eq!(
            (first.page_size, first.size_limit),
            (Some(PageSize::HUGE_1G), None)
        );
        assert!(!first.read_only && second.read_only && third.read_only);
        assert_eq!(
            (second.page_size, second.size_limit),
            (Some(PageSize::HUGE_2M), Some(1 << 30))
        );
        assert_eq!(third.page_size, Some(PageSize::HUGE_2M), "the default size");
        assert_eq!(problems, 0);
    }

    #[test]
    fn a_page_size_that_is_not_understood_is_not_taken_for_the_default() {
        let (mounts, problems) = read("30 1 0:1 / /a rw - hugetlbfs none rw,pagesize=3M\n");
        assert_eq!((mounts[0].page_size, problems), (None, 1));
    }

    #[test]
    fn sizes_have_the_suffixes_of_memparse() {
        assert_eq!(bytes("4096"), Some(4096));
        assert_eq!(bytes("2048k"), Some(2 << 20));
        assert_eq!(bytes("2M"), Some(2 << 20));
        assert_eq!(bytes("1G"), Some(1 << 30));
        for bad in ["", "M", "2MB", "-1", "16E", "2 M"] {
            assert_eq!(bytes(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_option_is_read(options in "\\PC{0,40}|(pagesize|size)=[0-9]{0,22}[a-zA-Z%]?") {
            let _ = read(&format!("30 1 0:1 / /a rw - hugetlbfs none {options}\n"));
            let _ = bytes(&options);
        }
    }
}
