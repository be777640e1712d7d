//! Why a SPEC was refused, and what to type instead.

use super::SPEC_KEYS;
use crate::policy::{Policy, parse_nodes};
use crate::size::SizeError;

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
    /// `host_numa_node` together with `host_nodes`.
    #[error("Memory '{0}' names its host nodes in two ways")]
    NodesTwice(String),
    /// `policy=bind` or `policy=preferred` without a node.
    #[error("Memory '{spec}' has policy={} and no host nodes", .policy.name())]
    PolicyWithoutNodes {
        /// The whole SPEC.
        spec: String,
        /// The policy.
        policy: Policy,
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
            Self::UnknownKey { key, .. } if parse_nodes(key).is_some() => {
                "host_nodes=[0-1,3]: a list with commas takes brackets".to_owned()
            }
            Self::UnknownKey { .. } => format!("the keys are {}", SPEC_KEYS.join(", ")),
            Self::Twice { key, .. } => format!("give {key}= once"),
            Self::Value { key, expected, .. } => format!("{key}= takes {expected}"),
            Self::NodesTwice(_) => {
                "host_numa_node=0 for one node, or host_nodes=0-1 for several".to_owned()
            }
            Self::PolicyWithoutNodes { policy, .. } => {
                let name = policy.name();
                format!("host_nodes=0,policy={name}, or policy=interleave for every node")
            }
            Self::Contradiction(_) => {
                "hugepages=on, or leave hugepage_size and path out".to_owned()
            }
        })
    }
}
