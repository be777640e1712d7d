//! The lines of `/proc/self/mountinfo` (proc_pid_mountinfo(5)).

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::cgroup::{CONTROLLERS, COUNTS_HUGETLB};
use crate::pseudonyms::Pseudonyms;

/// One mount. Paths are still escaped, as they are in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mount<'a> {
    id: u64,
    parent: u64,
    /// The directory of the filesystem that is mounted: not `/` for a bind mount.
    pub(crate) root: &'a str,
    pub(crate) point: &'a str,
    pub(crate) options: &'a str,
    pub(crate) fs_type: &'a str,
    pub(crate) super_options: &'a str,
}

impl Mount<'_> {
    pub(crate) fn has_super_option(&self, name: &str) -> bool {
        self.super_options.split(',').any(|option| option == name)
    }

    /// A bind mount can be read-only on its own, or the filesystem as a whole.
    pub(crate) fn is_read_only(&self) -> bool {
        self.options.split(',').any(|option| option == "ro") || self.has_super_option("ro")
    }

    /// Whether the mount point is in a directory below `other`'s.
    pub(crate) fn is_below(&self, other: &Mount<'_>) -> bool {
        directories_above(self.point).any(|dir| dir == other.point)
    }
}

/// The mounts that can be reached, in the order of the file, and how many lines made no sense.
///
/// A mount is out of reach where another one covers it: one on the same path, with it as parent, or
/// one with the same parent on a directory above it; and so are the mounts in one that is covered
/// by the latter.
pub(crate) fn parse(text: &str) -> (Vec<Mount<'_>>, usize) {
    let lines: Vec<Option<Mount<'_>>> = text.lines().map(parse_line).collect();
    let broken = lines.iter().filter(|mount| mount.is_none()).count();
    let mounts = || lines.iter().flatten().copied();
    // The root of all mounts is its own parent.
    let covered: HashSet<(u64, &str)> = mounts()
        .filter(|mount| mount.parent != mount.id)
        .map(|mount| (mount.parent, mount.point))
        .collect();
    let by_id: HashMap<u64, Mount<'_>> = mounts().map(|mount| (mount.id, mount)).collect();
    let is_hidden = |mount: Mount<'_>| {
        let mut next = Some(mount);
        let mut parents = std::iter::from_fn(|| {
            let current = next?;
            let parent = by_id.get(&current.parent).copied();
            next = parent.filter(|parent| parent.id != current.id);
            Some(current)
        });
        // Nothing stops a mountinfo that is made up from going round in circles.
        parents.by_ref().take(by_id.len()).any(|mount| {
            directories_above(mount.point).any(|dir| covered.contains(&(mount.parent, dir)))
        })
    };
    let reachable =
        mounts().filter(|mount| !covered.contains(&(mount.id, mount.point)) && !is_hidden(*mount));
    (reachable.collect(), broken)
}

/// `/a` and `/` for `/a/b`, escaped or not.
fn directories_above(point: &str) -> impl Iterator<Item = &str> {
    let slashes = point.rmatch_indices('/').map(|(index, _)| index);
    let above = slashes.map(|index| if index == 0 { "/" } else { &point[..index] });
    above.filter(move |dir| *dir != point)
}

/// The mounts that matter and only the options that do, with the paths under the names that a
/// recording gives them.
pub(crate) fn recorded(mounts: &[Mount<'_>], broken: usize, names: &mut Pseudonyms) -> String {
    let mut text = "?\n".repeat(broken);
    for mount in mounts {
        let hugetlbfs = || mounts.iter().filter(|mount| mount.fs_type == "hugetlbfs");
        let (fs_type, root, options) = match mount.fs_type {
            "hugetlbfs" => (mount.fs_type, PathBuf::from("/"), used_options(mount)),
            "cgroup" | "cgroup2"
                if !used_options(mount).is_empty() || mount.fs_type == "cgroup2" =>
            {
                (
                    mount.fs_type,
                    names.group(&unescape(mount.root)),
                    used_options(mount),
                )
            }
            _ if hugetlbfs().any(|other| mount.is_below(other)) => {
                ("other", PathBuf::from("/"), Vec::new())
            }
            _ => continue,
        };
        let access = if mount.is_read_only() { "ro" } else { "rw" };
        let options: Vec<_> = [access].into_iter().chain(options).collect();
        text.push_str(&format!(
            "{} {} 0:0 {} {} {access} - {fs_type} none {}\n",
            mount.id,
            mount.parent,
            root.display(),
            names.mount_point(&unescape(mount.point)).display(),
            options.join(","),
        ));
    }
    text
}

fn used_options<'a>(mount: &Mount<'a>) -> Vec<&'a str> {
    let is_used = |option: &&str| match option.split_once('=') {
        Some((name, _)) => mount.fs_type == "hugetlbfs" && matches!(name, "pagesize" | "size"),
        None => CONTROLLERS.contains(option) || *option == COUNTS_HUGETLB,
    };
    mount.super_options.split(',').filter(is_used).collect()
}

/// `36 35 98:0 /root /point rw,noatime master:1 - ext3 /dev/sda rw`: any number of fields may stand
/// before the dash, and the source after it may be empty, so that a field ends at exactly one space.
fn parse_line(line: &str) -> Option<Mount<'_>> {
    let mut fields = line.split(' ');
    let id = fields.next()?.parse().ok()?;
    let parent = fields.next()?.parse().ok()?;
    let _device = fields.next()?;
    let (root, point, options) = (fields.next()?, fields.next()?, fields.next()?);
    fields.find(|field| *field == "-")?;
    let (fs_type, _source, super_options) = (fields.next()?, fields.next()?, fields.next()?);
    Some(Mount {
        id,
        parent,
        root,
        point,
        options,
        fs_type,
        super_options,
    })
}

/// A path with its octal escapes (`\040` for a space) replaced.
pub(crate) fn unescape(path: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let (byte, tail) = match (first, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..]) => {
                ((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), tail)
            }
            _ => (first, tail),
        };
        bytes.push(byte);
        rest = tail;
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_are_found_behind_any_number_of_optional_ones() {
        let plain = "36 35 98:0 /a /b rw,noatime - hugetlbfs none rw,pagesize=2M";
        let shared = "36 35 98:0 /a /b rw,noatime shared:1 master:2 - hugetlbfs  rw,pagesize=2M";
        let mount = parse_line(plain).unwrap();
        assert_eq!(Some(mount), parse_line(shared));
        assert_eq!(
            (mount.root, mount.point, mount.options),
            ("/a", "/b", "rw,noatime")
        );
        assert_eq!(mount.fs_type, "hugetlbfs");
        assert!(mount.has_super_option("rw") && !mount.has_super_option("pagesize"));
    }

    #[test]
    fn a_line_that_makes_no_sense_is_counted_and_skipped() {
        let (mounts, broken) =
            parse("1 1 0:1 / / rw - rootfs none rw\n\n2 1 0:2 / /x rw tmpfs none rw\n");
        assert_eq!((mounts.len(), broken), (1, 2));
    }

    #[test]
    fn a_covered_mount_is_out_of_reach() {
        let text = "24 24 0:6 / / rw - ext4 none rw\n\
                    25 24 0:7 / /dev/pts rw - devpts first rw\n\
                    26 25 0:8 / /dev/pts rw - devpts second ro\n\
                    27 24 0:9 / /other rw - devpts third rw\n";
        let reachable: Vec<_> = parse(text).0.iter().map(|mount| mount.id).collect();
        assert_eq!(reachable, [24, 26, 27]);
    }

    #[test]
    fn a_mount_below_a_covered_directory_is_out_of_reach_with_all_that_is_in_it() {
        let text = "24 24 0:6 / / rw - ext4 none rw\n\
                    25 24 0:7 / /mnt/huge rw - hugetlbfs none rw\n\
                    26 25 0:8 / /mnt/huge/in rw - tmpfs none rw\n\
                    27 24 0:9 / /mnt rw - tmpfs none rw\n\
                    28 27 0:9 / /mnt/huge2 rw - hugetlbfs none rw\n\
                    29 24 0:9 / /mntx rw - tmpfs none rw\n";
        let reachable: Vec<_> = parse(text).0.iter().map(|mount| mount.id).collect();
        assert_eq!(reachable, [24, 27, 28, 29]);
    }

    #[test]
    fn parents_that_go_round_in_circles_end() {
        let text = "1 2 0:6 / /a/x rw - ext4 none rw\n2 1 0:7 / /a/y rw - ext4 none rw\n";
        assert_eq!(parse(text).0.len(), 2);
    }

    #[test]
    fn octal_escapes_become_their_characters() {
        assert_eq!(unescape(r"/a\040b\011c\134d"), PathBuf::from("/a b\tc\\d"));
        assert_eq!(unescape(r"/a\04"), PathBuf::from(r"/a\04"));
        assert_eq!(unescape(r"/a\477\"), PathBuf::from(r"/a\477\"));
    }

    proptest! {
        #[test]
        fn any_text_is_a_list_of_mounts(text in "[0-9a-z/:, \n\\\\-]{0,120}|\\PC*") {
            let (mounts, broken) = parse(&text);
            prop_assert!(mounts.len() + broken <= text.lines().count());
            let _ = unescape(&text);
        }

        #[test]
        fn escaping_and_unescaping_is_the_identity(path in "[ -~\t\n]{0,40}") {
            let escaped: String = path.chars().map(|c| match c {
                ' ' | '\t' | '\n' | '\\' => format!("\\{:03o}", u32::from(c)),
                c => c.to_string(),
            }).collect();
            prop_assert_eq!(unescape(&escaped), PathBuf::from(path));
        }
    }
}
