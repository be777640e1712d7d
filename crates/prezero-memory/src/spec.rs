//! The memory request as it is typed: `16G` or `size=16G,hugepages=on,host_numa_node=1`.

mod error;

use std::path::PathBuf;
use std::str::FromStr;

use prezero_host::PageSize;

pub use self::error::SpecError;
use crate::policy::{NodeChoice, Policy, parse_nodes};
use crate::size::{ByteSize, parse_size};

/// The keys of a SPEC, in the order the documentation lists them.
pub const SPEC_KEYS: [&str; 8] = [
    "size",
    "id",
    "hugepages",
    "hugepage_size",
    "path",
    "host_numa_node",
    "host_nodes",
    "policy",
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
    /// The host nodes it is to be on; without them it follows the free pages.
    pub nodes: Option<NodeChoice>,
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
            nodes: None,
        }
    }
}

impl FromStr for MemorySpec {
    type Err = SpecError;

    fn from_str(spec: &str) -> Result<Self, SpecError> {
        let mut seen: Vec<&str> = Vec::new();
        let mut size = None;
        let mut out = Self::new(0);
        let (mut nodes, mut policy) = (Vec::new(), None);
        for (n, item) in items(spec).enumerate() {
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
            // As with QEMU's host-nodes, more of these add to the list.
            if seen.contains(&key) && key != "host_nodes" {
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
                "host_numa_node" => {
                    let node = value.parse();
                    nodes.push(node.map_err(|_| refuse("a node number such as 0"))?);
                }
                "host_nodes" => {
                    let list = parse_nodes(value)
                        .ok_or_else(|| refuse("a list of node numbers such as 0-1 or [0-1,3]"))?;
                    nodes.extend(list.iter());
                }
                _ => {
                    policy = Some(match value {
                        "bind" => Policy::Bind,
                        "preferred" => Policy::Preferred,
                        "interleave" => Policy::Interleave,
                        _ => return Err(refuse("bind, preferred or interleave")),
                    })
                }
            }
        }
        if seen.contains(&"host_numa_node") && seen.contains(&"host_nodes") {
            return Err(SpecError::NodesTwice(spec.to_owned()));
        }
        out.nodes = match policy {
            Some(policy) if nodes.is_empty() && policy != Policy::Interleave => {
                let spec = spec.to_owned();
                return Err(SpecError::PolicyWithoutNodes { spec, policy });
            }
            None if nodes.is_empty() => None,
            policy => Some(NodeChoice {
                policy: policy.unwrap_or_default(),
                nodes: nodes.into_iter().collect(),
            }),
        };
        out.bytes = size.ok_or_else(|| SpecError::NoSize(spec.to_owned()))?;
        let particular = out.hugepage_size.is_some() || out.path.is_some();
        if out.hugepages == Hugepages::Off && particular {
            return Err(SpecError::Contradiction(spec.to_owned()));
        }
        Ok(out)
    }
}

/// The keys and values: commas separate them, except in brackets.
fn items(spec: &str) -> impl Iterator<Item = &str> {
    let mut in_list = false;
    spec.split(move |c: char| {
        match c {
            '[' => in_list = true,
            ']' => in_list = false,
            _ => {}
        }
        c == ',' && !in_list
    })
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
mod tests;
