//! The lines of `/proc/self/mountinfo` (proc_pid_mountinfo(5)).

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

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
}

/// The mounts that can be reached, in the order of the file, and how many lines made no sense.
///
/// A mount is out of reach where another one covers it: one on the same path, with it as parent.
pub(crate) fn parse(text: &str) -> (Vec<Mount<'_>>, usize) {
    let lines: Vec<Option<Mount<'_>>> = text.lines().map(parse_line).collect();
    let broken = lines.iter().filter(|mount| mount.is_none()).count();
    let mounts = || lines.iter().flatten().copied();
    // The root of all mounts is its own parent.
    let covered: HashSet<(u64, &str)> = mounts()
        .filter(|mount| mount.parent != mount.id)
        .map(|mount| (mount.parent, mount.point))
        .collect();
    let reachable = mounts().filter(|mount| !covered.contains(&(mount.id, mount.point)));
    (reachable.collect(), broken)
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
