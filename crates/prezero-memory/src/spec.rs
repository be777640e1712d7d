//! The memory request as it is typed: `16G` or `size=16G,hugepages=on,host_numa_node=1`.

use std::path::PathBuf;
use std::str::FromStr;

use prezero_host::PageSize;

use crate::size::{ByteSize, SizeError, parse_size};

/// The keys of a SPEC, in the order the documentation lists them.
pub const SPEC_KEYS: [&str; 6] = [
    "size",
    "id",
    "hugepages",
    "hugepage_size",
    "path",
    "host_numa_node",
];

/// Whether memory has to be on hugepages of the hugetlb pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hugepages {
    /// Hugepages where the host has enough, otherwise ordinary memory with a warning.
    #[default]
    Auto,
    /// Hugepages, or an error.
    On,
    /// Ordinary memory, with transparent hugepages where the kernel offers them.
    Off,
}

/// One piece of guest memory: how much, on which pages, on which node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemorySpec {
    /// Size in bytes, not zero.
    pub bytes: u64,
    /// Name of the zone, for messages.
    pub id: Option<String>,
    /// Whether hugepages are wanted.
    pub hugepages: Hugepages,
    /// The hugepage size; without it the planner chooses.
    pub hugepage_size: Option<PageSize>,
    /// A directory on a hugetlbfs mount that the hugepages are to come from.
    pub path: Option<PathBuf>,
    /// The host node that all of it has to be on.
    pub host_numa_node: Option<u32>,
}

impl MemorySpec {
    /// `bytes` bytes with every choice left to the planner.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self {
            bytes,
            id: None,
            hugepages: Hugepages::default(),
            hugepage_size: None,
            path: None,
            host_numa_node: None,
        }
    }
}

/// Why a SPEC was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The size could not be read.
    #[error("The {key} of memory '{spec}' is refused")]
    Size {
        /// The whole SPEC.
        spec: String,
        /// `size` or `hugepage_size`.
        key: &'static str,
        /// What is wrong with it.
        #[source]
        source: SizeError,
    },
    /// No `size=`.
    #[error("Memory '{0}' has no size")]
    NoSize(String),
    /// A key that is not one of [`SPEC_KEYS`].
    #[error("Memory '{spec}' has an unknown key '{key}'")]
    UnknownKey {
        /// The whole SPEC.
        spec: String,
        /// The key.
        key: String,
    },
    /// A key given twice.
    #[error("Memory '{spec}' has '{key}' twice")]
    Twice {
        /// The whole SPEC.
        spec: String,
        /// The key.
        key: String,
    },
    /// A value that the key does not take.
    #[error("Memory '{spec}' has {key}='{value}', which is not {expected}")]
    Value {
        /// The whole SPEC.
        spec: String,
        /// The key.
        key: String,
        /// The value as given.
        value: String,
        /// What the key takes.
        expected: &'static str,
    },
    /// `hugepages=off` together with `hugepage_size` or `path`.
    #[error("Memory '{0}' asks for hugepages of one kind and for none")]
    Contradiction(String),
}

impl SpecError {
    /// What to type instead.
    #[must_use]
    pub fn fix(&self) -> Option<String> {
        Some(match self {
            Self::Size { source, key, .. } => match source {
                SizeError::Fraction { near, .. } => {
                    let first = near.split(' ').next().unwrap_or(near);
                    format!("{key}={first}")
                }
                _ if *key == "size" => "size=16G, size=512M or a number of bytes".to_owned(),
                _ => "hugepage_size=2M or hugepage_size=1G".to_owned(),
            },
            Self::NoSize(_) => "add size=16G".to_owned(),
            Self::UnknownKey { .. } => format!("the keys are {}", SPEC_KEYS.join(", ")),
            Self::Twice { key, .. } => format!("give {key}= once"),
            Self::Value { key, expected, .. } => format!("{key}= takes {expected}"),
            Self::Contradiction(_) => {
                "hugepages=on, or leave hugepage_size and path out".to_owned()
            }
        })
    }
}

impl FromStr for MemorySpec {
    type Err = SpecError;

    fn from_str(spec: &str) -> Result<Self, SpecError> {
        let mut seen: Vec<&str> = Vec::new();
        let mut size = None;
        let mut out = Self::new(0);
        for (n, item) in spec.split(',').enumerate() {
            let (key, value) = match item.split_once('=') {
                Some(pair) => pair,
                None if n == 0 => ("size", item),
                None => (item, ""),
            };
            if !SPEC_KEYS.contains(&key) {
                return Err(SpecError::UnknownKey {
                    spec: spec.to_owned(),
                    key: key.to_owned(),
                });
            }
            if seen.contains(&key) {
                return Err(SpecError::Twice {
                    spec: spec.to_owned(),
                    key: key.to_owned(),
                });
            }
            seen.push(key);
            let refuse = |expected| SpecError::Value {
                spec: spec.to_owned(),
                key: key.to_owned(),
                value: value.to_owned(),
                expected,
            };
            let refuse_size = |key| {
                move |source| SpecError::Size {
                    spec: spec.to_owned(),
                    key,
                    source,
                }
            };
            match key {
                "size" => size = Some(parse_size(value).map_err(refuse_size("size"))?),
                "id" => {
                    let word = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
                    if value.is_empty() || !value.chars().all(word) {
                        return Err(refuse("a name of letters, digits, '-' and '_'"));
                    }
                    out.id = Some(value.to_owned());
                }
                "hugepages" => {
                    out.hugepages = match value {
                        "auto" => Hugepages::Auto,
                        "on" => Hugepages::On,
                        "off" => Hugepages::Off,
                        _ => return Err(refuse("auto, on or off")),
                    }
                }
                "hugepage_size" => {
                    let bytes = parse_size(value).map_err(refuse_size("hugepage_size"))?;
                    let page = PageSize::new(bytes).filter(|page| *page > PageSize::BASE);
                    out.hugepage_size =
                        Some(page.ok_or_else(|| refuse("a hugepage size such as 2M or 1G"))?);
                }
                "path" => {
                    if !value.starts_with('/') {
                        return Err(refuse("an absolute path on a hugetlbfs mount"));
                    }
                    out.path = Some(value.into());
                }
                _ => {
                    let node = value
                        .parse()
                        .map_err(|_| refuse("a node number such as 0"))?;
                    out.host_numa_node = Some(node);
                }
            }
        }
        out.bytes = size.ok_or_else(|| SpecError::NoSize(spec.to_owned()))?;
        let particular = out.hugepage_size.is_some() || out.path.is_some();
        if out.hugepages == Hugepages::Off && particular {
            return Err(SpecError::Contradiction(spec.to_owned()));
        }
        Ok(out)
    }
}

impl std::fmt::Display for MemorySpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.id {
            Some(id) => write!(f, "memory '{id}' of {}", ByteSize(self.bytes)),
            None => write!(f, "memory of {}", ByteSize(self.bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<MemorySpec, SpecError> {
        text.parse()
    }

    #[test]
    fn a_bare_size_and_the_long_form_are_the_same() {
        assert_eq!(parse("16G"), Ok(MemorySpec::new(16 << 30)));
        assert_eq!(parse("size=16G"), parse("16G"));
        let full = parse("size=2G,id=a-1,hugepages=on,hugepage_size=1G,host_numa_node=3").unwrap();
        assert_eq!(full.id.as_deref(), Some("a-1"));
        assert_eq!(full.hugepages, Hugepages::On);
        assert_eq!(full.hugepage_size, Some(PageSize::HUGE_1G));
        assert_eq!(full.host_numa_node, Some(3));
        assert_eq!(parse("1G,hugepages=off").unwrap().hugepages, Hugepages::Off);
    }

    #[test]
    fn keys_that_do_not_work_yet_are_refused_like_unknown_ones() {
        for key in [
            "policy=bind",
            "host_nodes=0-1",
            "shared=on",
            "Size=1G",
            "on",
        ] {
            let error = parse(&format!("size=1G,{key}")).unwrap_err();
            assert!(
                matches!(error, SpecError::UnknownKey { .. }),
                "{key}: {error}"
            );
            assert!(error.fix().unwrap().contains("hugepage_size"));
        }
    }

    #[test]
    fn refuses_what_it_would_have_to_guess() {
        for (text, part) in [
            ("size=1G,size=2G", "twice"),
            ("1G,size=2G", "twice"),
            ("hugepages=on", "no size"),
            ("", "refused"),
            ("1G,", "unknown key ''"),
            ("1G,id=", "id=''"),
            ("1G,id=a b", "id='a b'"),
            ("1G,hugepages=yes", "hugepages='yes'"),
            ("1G,path=huge", "path='huge'"),
            ("1G,hugepages=off,path=/x", "and for none"),
            ("1G,hugepage_size=3M", "hugepage_size='3M'"),
            ("1G,hugepage_size=4K", "hugepage_size='4K'"),
            ("1G,host_numa_node=-1", "host_numa_node='-1'"),
            ("1G,hugepages=off,hugepage_size=2M", "and for none"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.to_string().contains(part), "{text}: {error}");
            assert!(error.fix().is_some(), "{text}");
        }
    }

    #[test]
    fn a_fraction_is_answered_with_what_to_type() {
        assert_eq!(
            parse("1.5G").unwrap_err().fix().as_deref(),
            Some("size=1536M")
        );
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_spec_or_a_refusal(text in "\\PC{0,40}") {
            if let Err(error) = parse(&text) {
                proptest::prop_assert!(error.fix().is_some());
            }
        }

        #[test]
        fn any_mix_of_known_words_is_a_spec_or_a_refusal(
            words in proptest::collection::vec(
                proptest::sample::select(vec![
                    "size", "id", "hugepages", "hugepage_size", "host_numa_node", "=", ",", "on",
                    "1G", "-1", "1.5", "99999999999999999999", "2M",
                ]), 0..12)
        ) {
            let _ = parse(&words.concat());
        }
    }
}
