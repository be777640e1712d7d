//! Sets of CPU or node numbers in the kernel's list format.

use std::fmt;
use std::iter::Copied;
use std::slice;
use std::str::FromStr;

/// A sorted set of CPU or node ids.
///
/// As text it has the format of the kernel's `cpulist` files (`bitmap_parselist` in
/// `lib/bitmap-str.c`): `0-3,8,10-11`, or nothing for the empty set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct IdSet(Vec<u32>);

impl IdSet {
    /// The highest id accepted in text. Linux stops at 8192 CPUs and 1024 nodes; the limit keeps a
    /// line like `0-4294967295` from becoming gigabytes.
    pub const MAX_ID: u32 = 65535;

    /// The ids in ascending order.
    pub fn iter(&self) -> Copied<slice::Iter<'_, u32>> {
        self.0.iter().copied()
    }

    /// Whether `id` is in the set.
    #[must_use]
    pub fn contains(&self, id: u32) -> bool {
        self.0.binary_search(&id).is_ok()
    }

    /// How many ids the set has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the set has no ids.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lowest id.
    #[must_use]
    pub fn first(&self) -> Option<u32> {
        self.0.first().copied()
    }

    /// The ids that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.iter().filter(|&id| other.contains(id)).collect())
    }
}

/// Ids may come in any order and more than once. [`IdSet::MAX_ID`] binds only text.
impl FromIterator<u32> for IdSet {
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> Self {
        let mut ids: Vec<u32> = ids.into_iter().collect();
        ids.sort_unstable();
        ids.dedup();
        Self(ids)
    }
}

impl<'a> IntoIterator for &'a IdSet {
    type Item = u32;
    type IntoIter = Copied<slice::Iter<'a, u32>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for IdSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, run) in self.0.chunk_by(|a, b| a + 1 == *b).enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            match *run {
                [only] => write!(f, "{only}")?,
                [first, .., last] => write!(f, "{first}-{last}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

/// Accepts ids, ranges (`0-3`) and ranges with a stride (`0-31:2/4`: the first 2 of every 4),
/// separated by commas, in any order and overlapping; white space around the whole is ignored.
impl FromStr for IdSet {
    type Err = ParseIdSetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(Self::default());
        }
        // One flag per id bounds the memory by the highest id, whatever the text repeats.
        let mut present: Vec<bool> = Vec::new();
        for element in text.split(',') {
            let (range, stride) = match element.split_once(':') {
                Some((range, stride)) => (range, Some(stride)),
                None => (element, None),
            };
            let (first, last) = match range.split_once('-') {
                Some((first, last)) => (id(first, element)?, id(last, element)?),
                None if stride.is_some() => return Err(ParseIdSetError::NotAnId(element.into())),
                None => (id(range, element)?, id(range, element)?),
            };
            if first > last {
                return Err(ParseIdSetError::Reversed { first, last });
            }
            let (used, group) = match stride {
                Some(stride) => self::stride(stride, element)?,
                None => (1, 1),
            };
            if present.len() <= last {
                present.resize(last + 1, false);
            }
            for start in (first..=last).step_by(group) {
                present[start..(start + used).min(last + 1)].fill(true);
            }
        }
        Ok(Self(
            (0..)
                .zip(present)
                .filter_map(|(id, present)| present.then_some(id))
                .collect(),
        ))
    }
}

fn id(digits: &str, element: &str) -> Result<usize, ParseIdSetError> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ParseIdSetError::NotAnId(element.into()));
    }
    match digits.parse::<u16>() {
        Ok(id) => Ok(usize::from(id)),
        Err(_) => Err(ParseIdSetError::TooLarge(digits.into())),
    }
}

fn stride(text: &str, element: &str) -> Result<(usize, usize), ParseIdSetError> {
    let bad = || ParseIdSetError::Stride(element.into());
    let (used, group) = text.split_once('/').ok_or_else(bad)?;
    match (id(used, element)?, id(group, element)?) {
        (used, group) if used <= group && group > 0 => Ok((used, group)),
        _ => Err(bad()),
    }
}

/// Why a text is not a list of ids.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseIdSetError {
    /// Something between two commas is neither a number nor a range.
    #[error("Expected an id or a range of ids, found {0:?}")]
    NotAnId(String),
    /// A number is above [`IdSet::MAX_ID`].
    #[error("Id {0} is above {max}, the highest that is accepted", max = IdSet::MAX_ID)]
    TooLarge(String),
    /// The end of a range is below its start.
    #[error("Range {first}-{last} runs backwards")]
    Reversed {
        /// The number before the dash.
        first: usize,
        /// The number after the dash.
        last: usize,
    },
    /// A stride uses more of a group than the group has, or groups of nothing.
    #[error("The stride in {0:?} is not of the form used/group with used up to group")]
    Stride(String),
}

impl ParseIdSetError {
    /// What to write instead.
    #[must_use]
    pub fn fix(&self) -> Option<String> {
        Some(match self {
            Self::NotAnId(_) => "write ids and ranges separated by commas: 0-3,8".into(),
            Self::TooLarge(_) => format!("use ids from 0 to {}", IdSet::MAX_ID),
            Self::Reversed { first, last } => format!("write {last}-{first}"),
            Self::Stride(_) => "write 0-31:2/4 for the first 2 of every 4".into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn parse(text: &str) -> Vec<u32> {
        text.parse::<IdSet>().unwrap().iter().collect()
    }

    #[test]
    fn reads_the_lists_the_kernel_writes() {
        assert_eq!(parse("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(parse("0\n"), [0]);
        assert_eq!(parse("\n"), [0; 0]);
        assert_eq!(parse(""), [0; 0]);
        assert_eq!(parse("65535"), [65535]);
    }

    #[test]
    fn reads_strides_as_the_kernel_does() {
        assert_eq!(parse("0-9:2/4"), [0, 1, 4, 5, 8, 9]);
        assert_eq!(parse("1-8:2/4"), [1, 2, 5, 6]);
        assert_eq!(parse("0-8:2/4"), [0, 1, 4, 5, 8]);
        assert_eq!(parse("0-7:0/4"), [0; 0]);
    }

    #[test]
    fn sorts_and_merges_what_overlaps() {
        assert_eq!(parse("5,1-3,2-4,5"), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn refuses_reversed_ranges_and_high_ids() {
        use ParseIdSetError::*;
        let error = |text: &str| text.parse::<IdSet>().unwrap_err();
        assert_eq!(error("3-1"), Reversed { first: 3, last: 1 });
        assert_eq!(error("3-1").fix().as_deref(), Some("write 1-3"));
        assert_eq!(error("65536"), TooLarge("65536".into()));
        assert_eq!(
            error("0-99999999999999999999"),
            TooLarge("99999999999999999999".into())
        );
        for text in [
            "0,", ",0", "0,,1", "-", "-1", "1-", "+1", "0x1", "1 2", "a", "3:1/2",
        ] {
            assert!(matches!(error(text), NotAnId(_)), "{text}");
        }
        for text in ["0-3:2", "0-3:3/2", "0-3:0/0"] {
            assert_eq!(error(text), Stride(text.into()));
        }
    }

    #[test]
    fn prints_runs_as_ranges() {
        let set: IdSet = [11, 0, 1, 10, 2, 8, 3, 8].into_iter().collect();
        assert_eq!(set.to_string(), "0-3,8,10-11");
        assert_eq!(IdSet::default().to_string(), "");
    }

    #[test]
    fn holds_ids_that_text_may_not() {
        let set: IdSet = [u32::MAX, u32::MAX - 1].into_iter().collect();
        assert_eq!(set.to_string(), "4294967294-4294967295");
    }

    proptest! {
        #[test]
        fn printing_and_reading_is_the_identity(ids in prop::collection::btree_set(0u32..=65535, 0..200)) {
            let set: IdSet = ids.iter().copied().collect();
            prop_assert_eq!(set.to_string().parse::<IdSet>().unwrap(), set);
        }

        #[test]
        fn behaves_like_an_ordered_set(a in prop::collection::vec(0u32..64, 0..40), b in prop::collection::btree_set(0u32..64, 0..40)) {
            let model: BTreeSet<u32> = a.iter().copied().collect();
            let set: IdSet = a.into_iter().collect();
            let other: IdSet = b.iter().copied().collect();
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), model.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(set.len(), model.len());
            prop_assert_eq!(set.is_empty(), model.is_empty());
            prop_assert_eq!(set.first(), model.first().copied());
            prop_assert!((0..64).all(|id| set.contains(id) == model.contains(&id)));
            prop_assert_eq!(set.intersection(&other), model.intersection(&b).copied().collect());
        }

        #[test]
        fn any_text_is_a_set_or_an_error(text in "[0-9,:/ \n-]{0,60}|\\PC*") {
            if let Ok(set) = text.parse::<IdSet>() {
                prop_assert!(set.len() <= 65536);
                prop_assert_eq!(set.to_string().parse::<IdSet>().unwrap(), set);
            }
        }
    }
}
