//! A run of guest memory, and the nodes it is on.

use prezero_host::{IdSet, PageSize};

use super::{Backing, Origin};
use crate::policy::Policy;
use crate::size::PageBytes;

/// A run of guest memory with one backing, one page size and one policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    pub(super) gpa: u64,
    pub(super) len: PageBytes,
    pub(super) backing: Backing,
    pub(super) node: u32,
    pub(super) nodes: IdSet,
    pub(super) policy: Option<Policy>,
    pub(super) overflow: bool,
    pub(super) origin: Origin,
    pub(super) segment: Option<(usize, u64)>,
}

impl Extent {
    /// Fresh memory on `node`, where nobody asked for one.
    pub(super) fn new(gpa: u64, len: PageBytes, backing: Backing, node: u32) -> Self {
        Self {
            gpa,
            len,
            backing,
            node,
            nodes: IdSet::from_iter([node]),
            policy: None,
            overflow: false,
            origin: Origin::Fresh,
            segment: None,
        }
    }

    /// First guest-physical address.
    #[must_use]
    pub fn gpa(&self) -> u64 {
        self.gpa
    }

    /// Length, in pages of the extent's page size.
    #[must_use]
    pub fn len(&self) -> PageBytes {
        self.len
    }

    /// Never true: a plan holds no empty extent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len.bytes() == 0
    }

    /// Page size of the mapping.
    #[must_use]
    pub fn page_size(&self) -> PageSize {
        self.len.page_size()
    }

    /// What it is made of.
    #[must_use]
    pub fn backing(&self) -> Backing {
        self.backing
    }

    /// The node it is planned on, whose workers populate it; of interleaved memory the first page's.
    #[must_use]
    pub fn node(&self) -> u32 {
        self.node
    }

    /// The nodes that the kernel is told; the planned one alone where nobody asked for a node.
    #[must_use]
    pub fn nodes(&self) -> &IdSet {
        &self.nodes
    }

    /// How strictly it keeps to [`Extent::nodes`] (mbind(2)); `None` where nobody asked for a node.
    #[must_use]
    pub fn policy(&self) -> Option<Policy> {
        self.policy
    }

    /// Whether it is on this node because the preferred ones are short.
    #[must_use]
    pub fn overflow(&self) -> bool {
        self.overflow
    }

    /// Whether the memory may be on no other node (mbind(2), `MPOL_BIND`).
    #[must_use]
    pub fn bound(&self) -> bool {
        self.policy == Some(Policy::Bind)
    }

    /// What its contents are before prezero works on it.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The segment it is part of, as its place in [`crate::Request::recycled`], and where in it the
    /// extent starts, in bytes.
    #[must_use]
    pub fn segment(&self) -> Option<(usize, u64)> {
        self.segment
    }

    /// The parts it is cut into for the workers of its nodes, lowest address first: all of it for the
    /// node's, or, interleaved, as much for each node as it has pages there. Each of those parts has
    /// pages on every node.
    pub fn shares(&self) -> impl Iterator<Item = (u32, PageBytes)> {
        let interleaved = self.policy == Some(Policy::Interleave);
        let nodes: Vec<u32> = match interleaved {
            true => self.nodes.iter().collect(),
            false => vec![self.node],
        };
        let (page, all) = (self.page_size(), self.len.pages());
        let count = nodes.len() as u64;
        (0..).zip(nodes).filter_map(move |(n, node)| {
            let pages = all / count + u64::from(n < all % count);
            PageBytes::new(pages << page.shift(), page)
                .filter(|_| pages > 0)
                .map(|len| (node, len))
        })
    }

    /// Whether page `n`, counted from the extent's first, may be on `node` by plan.
    ///
    /// Interleaved hugepages follow their offset in the file, which starts with the extent; ordinary
    /// memory follows its address, 4 KiB or 2 MiB at a time (`interleave_nid`, mm/mempolicy.c).
    pub(crate) fn expects(&self, n: u64, node: u32) -> bool {
        match self.policy {
            Some(Policy::Interleave) if self.backing.is_hugetlb() => {
                let turn = usize::try_from(n % self.nodes.len().max(1) as u64);
                turn.is_ok_and(|turn| self.nodes.iter().nth(turn) == Some(node))
            }
            Some(Policy::Interleave) => self.nodes.contains(node),
            _ => node == self.node,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many pages on nodes 1, 3 and 4.
    fn extent(backing: Backing, policy: Option<Policy>, pages: u64) -> Extent {
        let page = match backing.is_hugetlb() {
            true => PageSize::HUGE_2M,
            false => PageSize::BASE,
        };
        let len = PageBytes::new(pages << page.shift(), page).unwrap();
        Extent {
            nodes: "1,3-4".parse().unwrap(),
            policy,
            ..Extent::new(0, len, backing, 1)
        }
    }

    #[test]
    fn interleaved_hugepages_are_expected_in_turn_and_ordinary_ones_on_any_of_the_nodes() {
        let huge = extent(Backing::Memfd, Some(Policy::Interleave), 8);
        let on = |n| {
            (0..6)
                .filter(|node| huge.expects(n, *node))
                .collect::<Vec<_>>()
        };
        let turns: Vec<Vec<u32>> = (0..8).map(on).collect();
        assert_eq!(turns, [[1], [3], [4], [1], [3], [4], [1], [3]]);
        let base = extent(Backing::Thp, Some(Policy::Interleave), 8);
        let on = |n| {
            (0..6)
                .filter(|node| base.expects(n, *node))
                .collect::<Vec<_>>()
        };
        assert_eq!(on(5), [1, 3, 4]);
        for policy in [None, Some(Policy::Bind), Some(Policy::Preferred)] {
            let one = extent(Backing::Memfd, policy, 8);
            assert!(one.expects(5, 1) && !one.expects(5, 3), "{policy:?}");
        }
    }

    #[test]
    fn shares_are_whole_pages_and_all_of_them() {
        let pages = |extent: &Extent| -> Vec<(u32, u64)> {
            let shares = extent.shares();
            shares.map(|(node, len)| (node, len.pages())).collect()
        };
        let interleaved = |pages| extent(Backing::Memfd, Some(Policy::Interleave), pages);
        assert_eq!(pages(&interleaved(8)), [(1, 3), (3, 3), (4, 2)]);
        assert_eq!(pages(&interleaved(2)), [(1, 1), (3, 1)]);
        let bound = extent(Backing::Memfd, Some(Policy::Bind), 8);
        assert_eq!(pages(&bound), [(1, 8)]);
    }
}
