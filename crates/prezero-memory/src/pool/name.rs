//! The names of segments, which say everything about them that their contents cannot.

use std::fmt;
use std::str::FromStr;

use prezero_host::PageSize;

use crate::plan::Origin;

/// What a segment's name says about its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Every byte is zero, unless somebody went behind the pool's back.
    Clean,
    /// Contents unknown.
    Dirty,
    /// Never used again: a poisoned page, or pages on another node than the directory's.
    Retired,
}

impl State {
    /// The word that ends the names of segments in this state.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Dirty => "dirty",
            Self::Retired => "retired",
        }
    }

    /// What a guest's memory made of it starts as; nothing is made of retired segments.
    #[must_use]
    pub fn origin(self) -> Option<Origin> {
        match self {
            Self::Clean => Some(Origin::Clean),
            Self::Dirty => Some(Origin::Dirty),
            Self::Retired => None,
        }
    }
}

/// `<bytes>-<id>.<state>`: the length, so that a file that was cut is noticed; 16 hexadecimal digits
/// that no other segment of the pool has; the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentName {
    /// Length in bytes.
    pub bytes: u64,
    /// What tells segments of one length apart.
    pub id: u64,
    /// What is known about the contents.
    pub state: State,
}

impl SegmentName {
    pub(super) fn with_state(self, state: State) -> Self {
        Self { state, ..self }
    }

    /// The name a file has, if it is one of ours and of whole pages.
    pub(super) fn parse(name: &str, page: PageSize) -> Option<Self> {
        let parsed: Self = name.parse().ok()?;
        page.is_aligned(parsed.bytes).then_some(parsed)
    }
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:016x}.{}", self.bytes, self.id, self.state.name())
    }
}

/// A text that is no segment's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Not the name of a segment, as in 1073741824-0123456789abcdef.clean")]
pub struct NotASegment;

impl FromStr for SegmentName {
    type Err = NotASegment;

    fn from_str(text: &str) -> Result<Self, NotASegment> {
        let parse = || {
            let (bytes, rest) = text.split_once('-')?;
            let (id, state) = rest.split_once('.')?;
            let states = [State::Clean, State::Dirty, State::Retired];
            let name = Self {
                bytes: bytes.parse().ok().filter(|bytes| *bytes > 0)?,
                id: u64::from_str_radix(id, 16).ok()?,
                state: states.into_iter().find(|known| known.name() == state)?,
            };
            // Signs, leading zeros and capitals parse too, and would give one segment many names.
            (name.to_string() == text).then_some(name)
        };
        parse().ok_or(NotASegment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_written_is_read() {
        let name = "4194304-00c0ffee00c0ffee.dirty";
        let parsed: SegmentName = name.parse().unwrap();
        assert_eq!((parsed.bytes, parsed.state), (4 << 20, State::Dirty));
        assert_eq!(parsed.to_string(), name);
        for odd in [
            "",
            "4194304",
            "4194304-00c0ffee00c0ffee",
            "4194304-00c0ffee00c0ffee.",
            "4194304-00c0ffee00c0ffee.Clean",
            "4194304-00c0ffee00c0ffee.clean~",
            "4194304-00c0ffee00c0ffee.clean.dirty",
            "04194304-00c0ffee00c0ffee.clean",
            "+4194304-00c0ffee00c0ffee.clean",
            "4194304-+0c0ffee00c0ffee.clean",
            "4194304-00C0FFEE00C0FFEE.clean",
            "4194304-c0ffee.clean",
            "0-00c0ffee00c0ffee.clean",
            "18446744073709551616-00c0ffee00c0ffee.clean",
        ] {
            assert_eq!(odd.parse::<SegmentName>(), Err(NotASegment), "{odd}");
        }
    }

    #[test]
    fn a_length_of_part_of_a_page_is_no_name() {
        let name = "4194304-00c0ffee00c0ffee.clean";
        assert!(SegmentName::parse(name, PageSize::HUGE_2M).is_some());
        assert!(SegmentName::parse(name, PageSize::HUGE_1G).is_none());
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_name_or_none(text in "\\PC{0,40}") {
            if let Ok(name) = text.parse::<SegmentName>() {
                proptest::prop_assert_eq!(name.to_string(), text);
            }
        }
    }
}
