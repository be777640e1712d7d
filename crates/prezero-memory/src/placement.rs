//! Where the pages are: asked of the kernel for every page after populating.

use std::io;

use crate::plan::Extent;
use crate::size::ByteSize;
use crate::sys;

/// Addresses asked for in one move_pages(2) call.
const BATCH: usize = 4096;

/// What the check of placement found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Pages the kernel named a node for.
    pub checked_pages: u64,
    /// Pages on another node than planned.
    pub misplaced_pages: u64,
    /// Why pages were not checked, if they were not: move_pages(2)'s error.
    pub unchecked: Option<String>,
}

/// Pages of bound memory that are on another node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{misplaced} of {pages} pages bound to node {node} are elsewhere, the first at guest address {gpa:#x} on node {found}"
)]
pub struct Misplaced {
    /// The node asked for.
    pub node: u32,
    /// Pages elsewhere.
    pub misplaced: u64,
    /// Pages of the extent.
    pub pages: u64,
    /// Guest address of the first page elsewhere.
    pub gpa: u64,
    /// The node that page is on.
    pub found: u32,
}

impl Placement {
    /// Checks one mapped extent at host address `addr` and adds it to the figures.
    pub(crate) fn check(&mut self, addr: u64, extent: &Extent) -> Result<(), Misplaced> {
        let page = extent.page_size().bytes();
        let pages = extent.len().pages();
        let mut first: Option<(u64, u32)> = None;
        let mut misplaced = 0;
        let mut addresses = Vec::with_capacity(BATCH);
        let mut nodes = [0_i32; BATCH];
        let mut from = 0;
        while from < pages && self.unchecked.is_none() {
            let to = pages.min(from + BATCH as u64);
            addresses.clear();
            addresses.extend((from..to).map(|n| addr + n * page));
            if let Err(error) = sys::page_nodes(&addresses, &mut nodes) {
                self.unchecked = Some(describe(&error));
                break;
            }
            for (n, node) in (from..to).zip(&nodes) {
                // Negative: no page there, which only ordinary memory under pressure can show.
                let Ok(node) = u32::try_from(*node) else {
                    continue;
                };
                self.checked_pages += 1;
                if node != extent.node() {
                    misplaced += 1;
                    first.get_or_insert((extent.gpa() + n * page, node));
                }
            }
            from = to;
        }
        self.misplaced_pages += misplaced;
        match first {
            Some((gpa, found)) if extent.bound() => Err(Misplaced {
                node: extent.node(),
                misplaced,
                pages,
                gpa,
                found,
            }),
            _ => Ok(()),
        }
    }

    /// What to tell the user, if anything.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        if let Some(why) = &self.unchecked {
            return Some(format!(
                "The nodes of the pages could not be checked: {why}"
            ));
        }
        (self.misplaced_pages > 0).then(|| {
            format!(
                "{} of {} pages are on another node than planned",
                self.misplaced_pages, self.checked_pages
            )
        })
    }
}

fn describe(error: &io::Error) -> String {
    format!("move_pages: {error}")
}

impl Misplaced {
    /// What to type.
    #[must_use]
    pub fn fix(&self) -> Option<String> {
        Some("cat /proc/self/numa_maps of a run to see what moved the pages (NUMA balancing, compaction)".to_owned())
    }

    /// Bytes elsewhere, for pages of `page` bytes.
    #[must_use]
    pub fn size(&self, page: u64) -> ByteSize {
        ByteSize(self.misplaced.saturating_mul(page))
    }
}
