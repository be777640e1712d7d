//! `/proc/self/numa_maps`: how many pages of each mapping are on which node (numa(7)).
//!
//! For where move_pages(2) is refused, as Docker's default seccomp profile does, and for ordinary
//! memory, of which a transparent hugepage counts at once. It does not say which page is where, and
//! mappings that the kernel merged are counted together.

use std::collections::BTreeMap;
use std::{fs, io};

use super::{CheckedBy, Placement, PlacementError};
use crate::plan::Extent;
use crate::policy::Policy;

/// One mapping: its first address, its page size, and its pages on each node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mapping {
    start: u64,
    page_bytes: u64,
    pages: BTreeMap<u32, u64>,
}

/// `7f2c40000000 bind:0 file=/memfd:name\040(deleted) huge dirty=32 N0=32 kernelpagesize_kB=2048`;
/// a name has no spaces in it (`seq_file_path` in fs/proc/task_mmu.c).
fn mapping(line: &str) -> Option<Mapping> {
    let mut words = line.split_ascii_whitespace();
    let start = u64::from_str_radix(words.next()?, 16).ok()?;
    let mut mapping = Mapping {
        start,
        page_bytes: 4096,
        pages: BTreeMap::new(),
    };
    for (key, value) in words.filter_map(|word| word.split_once('=')) {
        let Ok(value) = value.parse::<u64>() else {
            continue;
        };
        if key == "kernelpagesize_kB" {
            mapping.page_bytes = value << 10;
        } else if let Some(Ok(node)) = key.strip_prefix('N').map(str::parse) {
            mapping.pages.insert(node, value);
        }
    }
    Some(mapping)
}

/// The extents that lie in one mapping.
struct Group<'a> {
    mapping: Mapping,
    extents: Vec<&'a Extent>,
}

impl Group<'_> {
    /// Pages that are there, on nodes where they are planned or not.
    fn found(&self) -> u64 {
        self.mapping.pages.values().sum()
    }

    fn planned(&self) -> u64 {
        let extents = self.extents.iter();
        extents.map(|extent| extent.len().pages()).sum()
    }

    /// Pages on other nodes than planned, at least: what a mapping holds next to the extents does not
    /// count, because it is not known where that is.
    fn misplaced(&self) -> u64 {
        let mut planned: BTreeMap<u32, u64> = BTreeMap::new();
        for extent in &self.extents {
            let anywhere =
                extent.policy() == Some(Policy::Interleave) && !extent.backing().is_hugetlb();
            for (node, len) in extent.shares() {
                let pages = if anywhere { extent.len() } else { len };
                *planned.entry(node).or_default() += pages.pages();
            }
        }
        let beyond = self.mapping.pages.iter().map(|(node, found)| {
            let planned = planned.get(node).copied().unwrap_or(0);
            found.saturating_sub(planned)
        });
        let foreign = self.found().saturating_sub(self.planned());
        beyond.sum::<u64>().saturating_sub(foreign)
    }
}

pub(super) fn read() -> io::Result<String> {
    let text = fs::read("/proc/self/numa_maps")?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The pages of extents if every one of them is there, on a node where it is planned, and nothing else
/// is counted with them.
pub(super) fn all_as_planned(extents: &[(u64, &Extent)]) -> Option<u64> {
    let pages = extents.iter().map(|(_, extent)| extent.len().pages()).sum();
    if extents.is_empty() {
        return Some(0);
    }
    are_as_planned(&read().ok()?, extents, pages).then_some(pages)
}

fn are_as_planned(text: &str, extents: &[(u64, &Extent)], pages: u64) -> bool {
    let groups = groups(text, extents);
    let exact = |group: &Group<'_>| group.found() == group.planned() && group.misplaced() == 0;
    groups.iter().map(Group::planned).sum::<u64>() == pages && groups.iter().all(exact)
}

/// Counts the pages of extents, given with their host addresses, by what the file says.
pub(super) fn count(text: &str, extents: &[(u64, &Extent)]) -> Result<Placement, PlacementError> {
    let mut placement = Placement {
        by: CheckedBy::NumaMaps,
        ..Placement::default()
    };
    let groups = groups(text, extents);
    let all: u64 = extents.iter().map(|(_, extent)| extent.len().pages()).sum();
    placement.unchecked_pages = all - groups.iter().map(Group::planned).sum::<u64>();
    for group in groups {
        let (found, misplaced) = (group.found().min(group.planned()), group.misplaced());
        let absent = group.planned() - found;
        placement.checked_pages += found;
        placement.misplaced_pages += misplaced;
        let Some(first) = group.extents.first() else {
            continue;
        };
        if absent > 0 && first.backing().is_hugetlb() {
            return Err(PlacementError::CountedAbsent {
                absent,
                pages: group.planned(),
                page: first.page_size(),
                gpa: first.gpa(),
            });
        }
        placement.absent_pages += absent;
        if misplaced > 0 && group.extents.iter().any(|extent| extent.bound()) {
            return Err(PlacementError::CountedElsewhere {
                node: first.node(),
                misplaced,
                pages: group.planned(),
                gpa: first.gpa(),
                found: group.mapping.pages.keys().copied().collect(),
            });
        }
    }
    Ok(placement)
}

/// The mapping that each extent lies in is the last one that starts at or below it. Extents that are
/// in none, or in one of another page size, are left out.
fn groups<'a>(text: &str, extents: &[(u64, &'a Extent)]) -> Vec<Group<'a>> {
    let mappings: Vec<Mapping> = text.lines().filter_map(mapping).collect();
    let mut groups: BTreeMap<u64, Group<'a>> = BTreeMap::new();
    for (addr, extent) in extents {
        let above = mappings.partition_point(|mapping| mapping.start <= *addr);
        let Some(mapping) = above.checked_sub(1).and_then(|n| mappings.get(n)) else {
            continue;
        };
        if mapping.page_bytes != extent.page_size().bytes() {
            continue;
        }
        let group = groups.entry(mapping.start).or_insert_with(|| Group {
            mapping: mapping.clone(),
            extents: Vec::new(),
        });
        group.extents.push(extent);
    }
    groups.into_values().collect()
}

#[cfg(test)]
mod tests;
