//! Where the pages are: asked of the kernel for every page after populating.

mod numa_maps;

use std::io;

use prezero_host::{IdSet, PageSize};

use crate::class::Class;
use crate::control::{Control, StoppedBy};
use crate::plan::Extent;
use crate::sys;

/// Addresses asked for in one move_pages(2) call.
const BATCH: usize = 4096;

/// How the nodes of pages were found out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckedBy {
    /// For each page, by move_pages(2).
    #[default]
    MovePages,
    /// By the counts of `/proc/self/numa_maps`: ordinary memory, and all where move_pages(2) is refused.
    NumaMaps,
    /// Not at all: both are refused.
    Nothing,
}

impl CheckedBy {
    /// The word used in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::MovePages => "move_pages",
            Self::NumaMaps => "numa_maps",
            Self::Nothing => "none",
        }
    }
}

/// What the check of placement found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Pages the kernel named a node for.
    pub checked_pages: u64,
    /// Pages on another node than planned.
    pub misplaced_pages: u64,
    /// Pages of ordinary memory that were not there: swapped out, or reclaimed, since.
    pub absent_pages: u64,
    /// Pages that could not be checked: `/proc/self/numa_maps` does not show their mapping.
    pub unchecked_pages: u64,
    /// The errno of move_pages(2), if it was refused.
    pub refused: Option<i32>,
    /// How it was found out.
    pub by: CheckedBy,
}

/// Pages that are not where, or what, they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlacementError {
    /// Bound memory on another node.
    #[error(
        "{misplaced} of {pages} pages bound to node {node} are elsewhere, the first at guest address {gpa:#x} on node {found}"
    )]
    Misplaced {
        /// The node asked for.
        node: u32,
        /// Pages elsewhere.
        misplaced: u64,
        /// Pages of the extent.
        pages: u64,
        /// Guest address of the first page elsewhere.
        gpa: u64,
        /// The node that page is on.
        found: u32,
    },
    /// Bound memory on another node, by counts that do not say which pages.
    #[error(
        "{misplaced} of {pages} pages bound to node {node} are elsewhere, from guest address {gpa:#x} on; they are on nodes {found} (/proc/self/numa_maps)"
    )]
    CountedElsewhere {
        /// The node asked for.
        node: u32,
        /// Pages elsewhere, at least.
        misplaced: u64,
        /// Pages of the mapping.
        pages: u64,
        /// Guest address of the first page of the mapping.
        gpa: u64,
        /// The nodes that pages of the mapping are on.
        found: IdSet,
    },
    /// Hugepages that are gone, by counts that do not say which.
    #[error(
        "{absent} of {pages} populated pages of {page} are gone, from guest address {gpa:#x} on (/proc/self/numa_maps)"
    )]
    CountedAbsent {
        /// Pages gone.
        absent: u64,
        /// Pages of the mapping.
        pages: u64,
        /// Their size.
        page: PageSize,
        /// Guest address of the first page of the mapping.
        gpa: u64,
    },
    /// Hugepages that were populated and are gone: somebody cut or punched their file.
    #[error(
        "{absent} of {pages} populated pages of {page} are gone, the first at guest address {gpa:#x}"
    )]
    Absent {
        /// Pages gone.
        absent: u64,
        /// Pages of the extent.
        pages: u64,
        /// Their size.
        page: PageSize,
        /// Guest address of the first.
        gpa: u64,
    },
    /// Cancelled, or past the deadline.
    #[error("{} while the nodes of the pages were checked", match .0 { StoppedBy::Cancel => "Cancelled", StoppedBy::Deadline => "Deadline passed" })]
    Stopped(StoppedBy),
}

/// Pages of one extent that are not as planned.
#[derive(Default)]
struct Odd {
    count: u64,
    /// Index of the first, and the node it is on.
    first: Option<(u64, u32)>,
}

impl Odd {
    fn note(&mut self, page: u64, node: u32) {
        self.count += 1;
        self.first.get_or_insert((page, node));
    }
}

impl Placement {
    /// Checks every page of mapped extents, given with their host addresses.
    pub(crate) fn of(
        extents: &[(u64, &Extent)],
        control: &Control<'_>,
    ) -> Result<Self, PlacementError> {
        let mut placement = Self::default();
        let huge = |of: &&(u64, &Extent)| of.1.backing().is_hugetlb();
        let (huge, mut rest): (Vec<_>, Vec<_>) = extents.iter().partition(huge);
        // 512 base pages take as long to ask for as one hugepage takes to clear, and the kernel counts a
        // transparent hugepage at once: pages are asked for one by one only where the counts are odd.
        if let Some(pages) = numa_maps::all_as_planned(&rest) {
            placement.checked_pages = pages;
            if huge.is_empty() {
                placement.by = CheckedBy::NumaMaps;
            }
            rest.clear();
        }
        for (addr, extent) in huge.iter().chain(&rest) {
            placement.check(*addr, extent, control)?;
        }
        let Some(errno) = placement.refused else {
            return Ok(placement);
        };
        let by_counts = match numa_maps::read() {
            Ok(text) => numa_maps::count(&text, extents)?,
            Err(_) => Self {
                by: CheckedBy::Nothing,
                ..Self::default()
            },
        };
        Ok(Self {
            refused: Some(errno),
            ..by_counts
        })
    }

    /// Checks one mapped extent at host address `addr` and adds it to the figures.
    fn check(
        &mut self,
        addr: u64,
        extent: &Extent,
        control: &Control<'_>,
    ) -> Result<(), PlacementError> {
        let (page, pages) = (extent.page_size(), extent.len().pages());
        let (mut misplaced, mut absent) = (Odd::default(), Odd::default());
        let mut addresses = Vec::with_capacity(BATCH);
        let mut nodes = [0_i32; BATCH];
        let mut from = 0;
        while from < pages && self.refused.is_none() {
            if let Some(by) = control.stopped_by() {
                return Err(PlacementError::Stopped(by));
            }
            let to = pages.min(from + BATCH as u64);
            addresses.clear();
            addresses.extend((from..to).map(|n| addr + n * page.bytes()));
            if let Err(error) = sys::page_nodes(&addresses, &mut nodes) {
                self.refused = Some(error.raw_os_error().unwrap_or(0));
                break;
            }
            for (n, node) in (from..to).zip(&nodes) {
                match u32::try_from(*node) {
                    Ok(node) if extent.expects(n, node) => self.checked_pages += 1,
                    Ok(node) => {
                        self.checked_pages += 1;
                        misplaced.note(n, node);
                    }
                    // A negative errno: no page there.
                    Err(_) => absent.note(n, extent.node()),
                }
            }
            from = to;
        }
        self.misplaced_pages += misplaced.count;
        self.absent_pages += absent.count;
        let gpa = |n: u64| extent.gpa() + n * page.bytes();
        if let Some((first, _)) = absent.first.filter(|_| page > PageSize::BASE) {
            return Err(PlacementError::Absent {
                absent: absent.count,
                pages,
                page,
                gpa: gpa(first),
            });
        }
        match misplaced.first {
            Some((first, found)) if extent.bound() => Err(PlacementError::Misplaced {
                node: extent.node(),
                misplaced: misplaced.count,
                pages,
                gpa: gpa(first),
                found,
            }),
            _ => Ok(()),
        }
    }

    /// What to tell the user, if anything.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        if self.by == CheckedBy::Nothing {
            let why = io::Error::from_raw_os_error(self.refused.unwrap_or(0));
            return Some(format!(
                "The nodes of the pages were not checked: move_pages: {why}, and there is no /proc/self/numa_maps"
            ));
        }
        if self.unchecked_pages > 0 {
            return Some(format!(
                "The nodes of {} pages were not checked: /proc/self/numa_maps does not show them",
                self.unchecked_pages
            ));
        }
        if self.absent_pages > 0 {
            let absent = self.absent_pages;
            return Some(format!(
                "{absent} populated base pages are not in memory any more"
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

impl PlacementError {
    /// Whether pages are on another node than they were bound to.
    #[must_use]
    pub fn is_misplaced(&self) -> bool {
        matches!(self, Self::Misplaced { .. } | Self::CountedElsewhere { .. })
    }

    /// What kind of error it is.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            // The node had no page left at some moment, whatever it had when it was counted.
            Self::Misplaced { .. } | Self::CountedElsewhere { .. } => Class::Shortage,
            Self::Absent { .. } | Self::CountedAbsent { .. } => Class::Internal,
            Self::Stopped(_) => Class::Stopped,
        }
    }

    /// What to type: these switches tell whether the kernel moves pages.
    #[must_use]
    pub fn fix(&self) -> Option<String> {
        match self {
            Self::Misplaced { .. } | Self::CountedElsewhere { .. } => Some(
                "grep . /proc/sys/kernel/numa_balancing /proc/sys/vm/compaction_proactiveness"
                    .to_owned(),
            ),
            Self::Absent { .. } | Self::CountedAbsent { .. } | Self::Stopped(_) => None,
        }
    }
}
