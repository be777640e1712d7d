//! Which host nodes a zone asks for, and how strictly (set_mempolicy(2)).

pub(crate) mod sys;

use std::fmt;

use prezero_host::IdSet;

/// How strictly memory keeps to the nodes asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// On these nodes or not at all (`MPOL_BIND`).
    #[default]
    Bind,
    /// On these nodes as far as they have pages, on the nearest others beyond that
    /// (`MPOL_PREFERRED`, `MPOL_PREFERRED_MANY`).
    Preferred,
    /// Page by page in turn, so that the guest has the bandwidth of all of them (`MPOL_INTERLEAVE`).
    Interleave,
}

impl Policy {
    /// The word that is typed, and used in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bind => "bind",
            Self::Preferred => "preferred",
            Self::Interleave => "interleave",
        }
    }
}

/// The nodes a zone is to be on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeChoice {
    /// How strictly.
    pub policy: Policy,
    /// Which nodes; none stands for every node with memory that the process may use.
    pub nodes: IdSet,
}

impl NodeChoice {
    /// All of it on `node`, or an error.
    #[must_use]
    pub fn bind(node: u32) -> Self {
        Self {
            policy: Policy::Bind,
            nodes: IdSet::from_iter([node]),
        }
    }

    /// The one node that everything has to be on, if it is one.
    pub(crate) fn only_node(&self) -> Option<u32> {
        let only = self.nodes.first().filter(|_| self.nodes.len() == 1);
        only.filter(|_| self.policy == Policy::Bind)
    }
}

/// As it is typed in a SPEC.
impl fmt::Display for NodeChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(node) = self.only_node() {
            return write!(f, "host_numa_node={node}");
        }
        if !self.nodes.is_empty() {
            write!(f, "host_nodes={},", typed(&self.nodes))?;
        }
        write!(f, "policy={}", self.policy.name())
    }
}

/// A list with a comma takes brackets, because commas separate the keys of a SPEC.
fn typed(nodes: &IdSet) -> String {
    let list = nodes.to_string();
    match list.contains(',') {
        true => format!("[{list}]"),
        false => list,
    }
}

/// The nodes of `host_nodes=`: `0-1`, or `[0-1,3]`.
pub(crate) fn parse_nodes(text: &str) -> Option<IdSet> {
    let inner = text.strip_prefix('[').map(|rest| rest.strip_suffix(']'));
    let list = match inner {
        Some(list) => list?,
        None => text,
    };
    list.parse().ok().filter(|nodes: &IdSet| !nodes.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_nodes_may_have_brackets_but_not_half_of_them() {
        for (text, nodes) in [
            ("0", "0"),
            ("0-1", "0-1"),
            ("[0-1,3]", "0-1,3"),
            ("[2]", "2"),
        ] {
            assert_eq!(parse_nodes(text).expect(text).to_string(), nodes);
        }
        for text in ["", "[]", "[0", "0]", "[[0]]", "a", "1-0", "-1", "[0][1]"] {
            assert_eq!(parse_nodes(text), None, "{text}");
        }
    }

    #[test]
    fn a_choice_is_shown_as_it_is_typed() {
        let choice = |policy, nodes: &str| NodeChoice {
            policy,
            nodes: nodes.parse().unwrap(),
        };
        for (choice, text) in [
            (NodeChoice::bind(3), "host_numa_node=3"),
            (choice(Policy::Bind, "0-1"), "host_nodes=0-1,policy=bind"),
            (
                choice(Policy::Preferred, "1"),
                "host_nodes=1,policy=preferred",
            ),
            (
                choice(Policy::Interleave, "0-1,3"),
                "host_nodes=[0-1,3],policy=interleave",
            ),
            (choice(Policy::Interleave, ""), "policy=interleave"),
        ] {
            assert_eq!(choice.to_string(), text);
            let spec: crate::MemorySpec = format!("1G,{text}").parse().expect(text);
            assert_eq!(spec.nodes, Some(choice));
        }
    }
}
