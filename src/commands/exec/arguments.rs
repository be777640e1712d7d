//! `{path}`, `{size}` and `{node}` in the arguments of a command.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

const PATH: &[u8] = b"{path}";

/// What a command can be told of its segment.
#[derive(Debug)]
pub(super) struct Segment<'a> {
    pub(super) path: &'a Path,
    pub(super) bytes: u64,
    pub(super) node: u32,
}

impl Segment<'_> {
    /// An argument with all that it names filled in. Other braces, as in JSON, stay as they are, and what
    /// was filled in is not looked at again.
    pub(super) fn fill_in(&self, arg: &OsStr) -> OsString {
        let (size, node) = (self.bytes.to_string(), self.node.to_string());
        let values = [
            (PATH, self.path.as_os_str().as_bytes()),
            (b"{size}", size.as_bytes()),
            (b"{node}", node.as_bytes()),
        ];
        let mut filled = Vec::new();
        let mut rest = arg.as_bytes();
        while let Some((first, others)) = rest.split_first() {
            match values.iter().find(|(name, _)| rest.starts_with(name)) {
                Some((name, value)) => {
                    filled.extend_from_slice(value);
                    rest = &rest[name.len()..];
                }
                None => {
                    filled.push(*first);
                    rest = others;
                }
            }
        }
        OsString::from_vec(filled)
    }
}

/// Whether an argument is told the segment's path.
pub(super) fn names_path(arg: &OsStr) -> bool {
    arg.as_bytes().windows(PATH.len()).any(|part| part == PATH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(arg: &[u8]) -> Vec<u8> {
        let segment = Segment {
            path: Path::new("/huge/{size}"),
            bytes: 4096,
            node: 1,
        };
        segment.fill_in(OsStr::from_bytes(arg)).into_vec()
    }

    #[test]
    fn names_are_filled_in_wherever_they_are() {
        assert_eq!(filled(b"{size}"), b"4096");
        assert_eq!(
            filled(b"id=m0,size={size},file={path},node={node}{node}"),
            b"id=m0,size=4096,file=/huge/{size},node=11"
        );
    }

    #[test]
    fn everything_else_stays_as_it_is() {
        for arg in [
            &b""[..],
            b"{}",
            b"{\"size\": {pat}}",
            b"{Path}",
            b"{size",
            b"\xff{\xfe}",
        ] {
            assert_eq!(filled(arg), arg);
        }
        assert_eq!(filled(b"\xff{node}\xfe"), b"\xff1\xfe");
    }

    #[test]
    fn a_path_is_found_inside_of_an_argument() {
        assert!(names_path("mem-path={path},share=on".as_ref()));
        assert!(!names_path("{size}".as_ref()) && !names_path("".as_ref()));
    }
}
