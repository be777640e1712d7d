//! Which pages a zone gets.

use std::path::Path;

use prezero_host::{Host, HugetlbfsMount, PageSize, Thp};

use super::availability::Available;
use super::nodes::{share, spread};
use super::{Backing, PlanError, PlanWarning, Prealloc, Recycled};
use crate::policy::{NodeChoice, Policy};
use crate::spec::{Hugepages, MemorySpec};

/// The pages of one zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageChoice {
    pub(crate) page: PageSize,
    pub(crate) backing: Backing,
    /// (node, pages of `granule`), in node order.
    pub(crate) shares: Vec<(u32, u64)>,
    /// Segments of pools, with their places in the request; what they lack comes from `shares`.
    pub(crate) recycled: Vec<(usize, Recycled)>,
    /// What was asked for, with every node named.
    pub(crate) nodes: Option<NodeChoice>,
    /// The unit in which the zone is shared out among nodes.
    pub(crate) granule: PageSize,
    /// Why it is not hugepages, for `hugepages=auto`.
    pub(crate) instead_of: Option<PlanError>,
}

impl PageChoice {
    /// Chooses the pages of the next zone and takes them out of what is available.
    pub(crate) fn of(
        spec: &MemorySpec,
        prealloc: Prealloc,
        available: &mut Available<'_>,
    ) -> Result<Self, PlanError> {
        for node in spec.nodes.iter().flat_map(|choice| &choice.nodes) {
            available.check_node(node)?;
        }
        let fallback = match spec.hugepages {
            Hugepages::On => return huge(spec, available),
            Hugepages::Off => None,
            Hugepages::Auto => match huge(spec, available) {
                Err(error) if error.would_help_elsewhere(spec) => Some(error),
                result => return result,
            },
        };
        ordinary(spec, prealloc, available, fallback)
    }

    /// Whether the preferred nodes have less than it takes.
    pub(crate) fn overflow(&self) -> Option<PlanWarning> {
        let choice = self.nodes.as_ref();
        let choice = choice.filter(|choice| choice.policy == Policy::Preferred)?;
        let beyond = || {
            let shares = self.shares.iter();
            shares.filter(|(node, _)| !choice.nodes.contains(*node))
        };
        let on = beyond().map(|(node, _)| *node).collect();
        let count: u64 = beyond().map(|(_, pages)| pages).sum();
        (count > 0).then(|| PlanWarning::Overflow {
            preferred: choice.nodes.clone(),
            page: self.granule,
            pages: self.shares.iter().map(|(_, pages)| pages).sum(),
            beyond: count,
            on,
        })
    }
}

/// The choice with every node named, for what it is passed to.
fn named(spec: &MemorySpec, available: &Available<'_>) -> Option<NodeChoice> {
    spec.nodes.as_ref().map(|choice| NodeChoice {
        policy: choice.policy,
        nodes: available.chosen(choice),
    })
}

fn huge(spec: &MemorySpec, available: &mut Available<'_>) -> Result<PageChoice, PlanError> {
    let mount = spec
        .path
        .as_deref()
        .map(|path| mount_at(path, available.host))
        .transpose()?;
    let page = match mount {
        Some(mount) => mount_page_size(spec, mount, available.host)?,
        None => hugepage_size(spec, available.host)?,
    };
    let recycled = recycled(spec, page, available);
    let bytes: u64 = recycled
        .iter()
        .map(|(_, segment)| segment.len.bytes())
        .sum();
    let needed = (spec.bytes - bytes) >> page.shift();
    let shares = match needed {
        0 => Vec::new(),
        needed => share(spec, page, needed, available)?,
    };
    if let Some(hit) = available.limit(page, needed) {
        return Err(PlanError::Limit(hit));
    }
    if let Some(mount) = mount {
        if let Some(hit) = available.limit_on_mount(mount, spec.bytes) {
            return Err(PlanError::Limit(hit));
        }
        available.take_on_mount(mount, spec.bytes);
    }
    available.take(
        page,
        &shares,
        spec.nodes.as_ref().map(|choice| choice.policy),
    );
    Ok(PageChoice {
        page,
        backing: if mount.is_some() {
            Backing::Hugetlbfs
        } else {
            Backing::Memfd
        },
        shares,
        recycled,
        nodes: named(spec, available),
        granule: page,
        instead_of: None,
    })
}

/// The segments that a zone gets. One with a path of its own is not for pools, and interleaved memory
/// is not in segments.
fn recycled(
    spec: &MemorySpec,
    page: PageSize,
    available: &mut Available<'_>,
) -> Vec<(usize, Recycled)> {
    let choice = spec.nodes.as_ref();
    let interleaved = choice.is_some_and(|choice| choice.policy == Policy::Interleave);
    if spec.path.is_some() || interleaved {
        return Vec::new();
    }
    let nodes = choice.map(|choice| available.chosen(choice));
    available.take_recycled(page, nodes.as_ref(), spec.bytes)
}

/// The hugetlbfs mount that holds `path`. Anything else, an ordinary directory above all, is refused.
fn mount_at<'a>(path: &Path, host: &'a Host) -> Result<&'a HugetlbfsMount, PlanError> {
    let mount = host.mount_of(path).ok_or_else(|| PlanError::NotHugetlbfs {
        path: path.to_owned(),
        mounts: host.mounts.iter().map(|mount| mount.path.clone()).collect(),
    })?;
    if mount.read_only {
        return Err(PlanError::ReadOnlyMount(mount.path.clone()));
    }
    Ok(mount)
}

/// The mount decides the page size; another one asked for is a contradiction.
fn mount_page_size(
    spec: &MemorySpec,
    mount: &HugetlbfsMount,
    host: &Host,
) -> Result<PageSize, PlanError> {
    let page = mount
        .page_size
        .or(host.default_hugepage_size)
        .ok_or(PlanError::NoHugepages)?;
    if let Some(asked) = spec.hugepage_size.filter(|asked| *asked != page) {
        return Err(PlanError::MountPageSize {
            path: mount.path.clone(),
            page,
            asked,
        });
    }
    whole_pages(spec, page)?;
    Ok(page)
}

/// Pages that a zone insists on from one node only.
pub(crate) fn bound_need(spec: &MemorySpec, host: &Host) -> Option<(PageSize, u32, u64)> {
    let node = spec.nodes.as_ref()?.only_node()?;
    if spec.hugepages != Hugepages::On {
        return None;
    }
    let page = match spec.path.as_deref() {
        Some(path) => mount_page_size(spec, mount_at(path, host).ok()?, host),
        None => hugepage_size(spec, host),
    };
    let page = page.ok()?;
    Some((page, node, spec.bytes >> page.shift()))
}

/// The size asked for; else the host's default if it divides the zone, else the largest smaller
/// one that does.
fn hugepage_size(spec: &MemorySpec, host: &Host) -> Result<PageSize, PlanError> {
    let offered: Vec<PageSize> = host.pools.iter().map(|pool| pool.page_size).collect();
    if let Some(page) = spec.hugepage_size {
        if !offered.contains(&page) {
            let names: Vec<String> = offered.iter().map(PageSize::to_string).collect();
            return Err(PlanError::PageSizeMissing {
                page,
                offered: names.join(" and "),
            });
        }
        whole_pages(spec, page)?;
        return Ok(page);
    }
    let default = host.default_hugepage_size.or(offered.first().copied());
    let default = default.ok_or(PlanError::NoHugepages)?;
    let mut candidates = offered;
    candidates.retain(|page| *page <= default);
    let fits = candidates
        .iter()
        .rev()
        .find(|page| page.is_aligned(spec.bytes));
    match fits {
        Some(page) => Ok(*page),
        None => Err(
            whole_pages(spec, candidates.first().copied().unwrap_or(default))
                .err()
                .unwrap_or(PlanError::NoHugepages),
        ),
    }
}

fn ordinary(
    spec: &MemorySpec,
    prealloc: Prealloc,
    available: &mut Available<'_>,
    instead_of: Option<PlanError>,
) -> Result<PageChoice, PlanError> {
    let page = PageSize::BASE;
    whole_pages(spec, page)?;
    let backing = match available.host.thp {
        Thp::Always | Thp::Madvise => Backing::Thp,
        Thp::Never | Thp::Unavailable => Backing::Base,
    };
    if prealloc == Prealloc::Eager
        && let Err(error) = available.check_ordinary(spec.bytes)
    {
        return Err(error.after(instead_of));
    }
    available.take_ordinary(spec.bytes);
    // Whole transparent hugepages stay on one node where the size allows it.
    let granule = match PageSize::HUGE_2M.is_aligned(spec.bytes) {
        true => PageSize::HUGE_2M,
        false => page,
    };
    let units = spec.bytes >> granule.shift();
    let nodes = named(spec, available);
    let mut free = available.ordinary_on_nodes(granule);
    if let Some(choice) = &nodes {
        free.retain(|(node, _)| choice.nodes.contains(*node));
    }
    // No node is called full: what it counts as free may be far too low.
    let shares = spread(units, &free);
    Ok(PageChoice {
        page,
        backing,
        shares,
        recycled: Vec::new(),
        nodes,
        granule,
        instead_of,
    })
}

fn whole_pages(spec: &MemorySpec, page: PageSize) -> Result<(), PlanError> {
    if page.is_aligned(spec.bytes) {
        return Ok(());
    }
    Err(PlanError::NotWholePages {
        what: spec.to_string(),
        page,
        below: Some(page.round_down(spec.bytes)).filter(|bytes| *bytes > 0),
        above: page.round_up(spec.bytes),
    })
}
