//! A zone's pages, used up range by range of guest memory.

use prezero_host::IdSet;

use super::pages::PageChoice;
use super::{Backing, Extent, Recycled};
use crate::policy::Policy;
use crate::size::PageBytes;

/// What is left of a zone's share of each node.
pub(super) struct Supply<'a> {
    choice: &'a PageChoice,
    /// Segments, the next one last, each with what is used of it.
    segments: Vec<(usize, Recycled, u64)>,
    left: Vec<(u32, u64)>,
    /// Interleaved: whose turn it is, as a position among the nodes.
    turn: usize,
}

impl<'a> Supply<'a> {
    pub(super) fn new(choice: &'a PageChoice) -> Self {
        let bytes = |pages: u64| pages << choice.granule.shift();
        let shares = choice.shares.iter().rev();
        Self {
            choice,
            segments: (choice.recycled.iter().rev())
                .map(|(n, segment)| (*n, *segment, 0))
                .collect(),
            left: shares.map(|(node, pages)| (*node, bytes(*pages))).collect(),
            turn: 0,
        }
    }

    /// The extents of the next `len` bytes, which start at `gpa`.
    pub(super) fn fill(&mut self, gpa: u64, len: u64) -> Vec<Extent> {
        let choice = self.choice.nodes.as_ref();
        if let Some(choice) = choice.filter(|choice| choice.policy == Policy::Interleave) {
            return self.in_turn(gpa, len, &choice.nodes);
        }
        let mut extents = Vec::new();
        let mut offset = 0;
        while let Some((n, segment, used)) = self.segments.last_mut() {
            if offset == len {
                break;
            }
            let take = (segment.len.bytes() - *used).min(len - offset);
            let (n, segment, at) = (*n, *segment, *used);
            *used += take;
            if *used == segment.len.bytes() {
                self.segments.pop();
            }
            extents.extend(self.of_segment(gpa + offset, take, (n, segment, at)));
            offset += take;
        }
        while let Some((node, left)) = self.left.last_mut() {
            if offset == len {
                break;
            }
            let (take, node) = ((*left).min(len - offset), *node);
            *left -= take;
            if *left == 0 {
                self.left.pop();
            }
            extents.extend(self.extent(gpa + offset, take, node));
            offset += take;
        }
        extents
    }

    fn extent(&self, gpa: u64, len: u64, node: u32) -> Option<Extent> {
        let PageChoice { page, backing, .. } = *self.choice;
        let len = PageBytes::new(len, page).filter(|_| len > 0)?;
        let mut extent = Extent::new(gpa, len, backing, node);
        if let Some(choice) = &self.choice.nodes {
            extent.policy = Some(choice.policy);
            // Beyond the preferred nodes each extent has its own node's preference.
            if choice.policy == Policy::Preferred {
                match choice.nodes.contains(node) {
                    true => extent.nodes = choice.nodes.clone(),
                    false => extent.overflow = true,
                }
            }
        }
        Some(extent)
    }

    /// Part of a segment, whose pages are where they are: its policy says where they were wanted.
    fn of_segment(
        &self,
        gpa: u64,
        len: u64,
        (n, segment, at): (usize, Recycled, u64),
    ) -> Option<Extent> {
        let len = PageBytes::new(len, self.choice.page).filter(|_| len > 0)?;
        let mut extent = Extent::new(gpa, len, Backing::Pool, segment.node);
        extent.policy = self.choice.nodes.as_ref().map(|choice| choice.policy);
        extent.origin = segment.origin;
        extent.segment = Some((n, at));
        Some(extent)
    }

    /// The kernel starts each mapping with its first node. Where it is another node's turn, the nodes
    /// whose turns are left come first, in an extent of their own: no node gets two pages more than
    /// another, however many slots a zone has.
    fn in_turn(&mut self, gpa: u64, len: u64, nodes: &IdSet) -> Vec<Extent> {
        let all: Vec<u32> = nodes.iter().collect();
        let of = |supply: &Self, gpa: u64, len: u64, nodes: &[u32]| {
            let mut extent = supply.extent(gpa, len, *nodes.first()?)?;
            extent.nodes = nodes.iter().copied().collect();
            Some(extent)
        };
        if !self.choice.backing.is_hugetlb() {
            return of(self, gpa, len, &all).into_iter().collect();
        }
        let shift = self.choice.page.shift();
        let pages = len >> shift;
        let count = all.len() as u64;
        let rest = all.get(self.turn..).filter(|_| self.turn > 0);
        let rest = rest.unwrap_or_default();
        let lead = pages.min(rest.len() as u64);
        let first = &rest[..usize::try_from(lead).unwrap_or(0)];
        let lead = lead << shift;
        let extents = [
            of(self, gpa, lead, first),
            of(self, gpa + lead, len - lead, &all),
        ];
        let turn = (self.turn as u64 + pages) % count.max(1);
        self.turn = usize::try_from(turn).unwrap_or(0);
        extents.into_iter().flatten().collect()
    }
}
