//! Which pages a zone gets.

use std::path::Path;

use prezero_host::{Host, HugetlbfsMount, PageSize, Thp};

use super::apportion::apportion;
use super::availability::Available;
use super::{Backing, PlanError, Prealloc};
use crate::spec::{Hugepages, MemorySpec};

/// The pages of one zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageChoice {
    pub(crate) page: PageSize,
    pub(crate) backing: Backing,
    /// (node, pages of `granule`), in node order.
    pub(crate) shares: Vec<(u32, u64)>,
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
        if let Some(node) = spec.host_numa_node {
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
    let needed = spec.bytes >> page.shift();
    let by_node: Vec<(u32, u64)> = available
        .nodes()
        .into_iter()
        .map(|node| (node, available.pages_on(page, node)))
        .collect();
    let shares = match spec.host_numa_node {
        Some(node) => {
            let free = by_node
                .iter()
                .find(|(id, _)| *id == node)
                .map_or(0, |pair| pair.1);
            if needed > free {
                let other = by_node.iter().find(|(_, free)| *free >= needed);
                return Err(PlanError::Short(available.short(
                    page,
                    Some(node),
                    needed,
                    free,
                    other.copied(),
                )));
            }
            vec![(node, needed)]
        }
        None => {
            let free = available.pages(page);
            if needed > free {
                // In a cpuset of one node it is that node's pool that has to grow.
                let only = match by_node.as_slice() {
                    [(node, on_node)] if available.host.nodes.len() > 1 && *on_node == free => {
                        Some(*node)
                    }
                    _ => None,
                };
                let short = available.short(page, only, needed, free, None);
                return Err(PlanError::Short(short));
            }
            spread(needed, &by_node)
        }
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
    available.take(page, &shares);
    Ok(PageChoice {
        page,
        backing: if mount.is_some() {
            Backing::Hugetlbfs
        } else {
            Backing::Memfd
        },
        shares,
        granule: page,
        instead_of: None,
    })
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
    let shares = match spec.host_numa_node {
        Some(node) => vec![(node, units)],
        None => spread(units, &available.ordinary_on_nodes(granule)),
    };
    Ok(PageChoice {
        page,
        backing,
        shares,
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

/// Memory nobody bound follows the free pages: the node with the most if all of it fits there, else
/// every node in proportion to what it has free.
fn spread(needed: u64, free: &[(u32, u64)]) -> Vec<(u32, u64)> {
    let most = free.iter().rev().max_by_key(|(_, pages)| *pages);
    if let Some((node, pages)) = most
        && *pages >= needed
    {
        return vec![(*node, needed)];
    }
    let weights: Vec<u64> = free.iter().map(|(_, pages)| *pages).collect();
    let shares = apportion(needed, &weights);
    let shares = free
        .iter()
        .zip(shares)
        .map(|((node, _), share)| (*node, share));
    shares.filter(|(_, share)| *share > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::spread;

    #[test]
    fn memory_stays_on_one_node_where_it_fits() {
        assert_eq!(spread(100, &[(0, 150), (1, 200)]), [(1, 100)]);
        assert_eq!(spread(100, &[(0, 200), (1, 200)]), [(0, 100)]);
    }

    #[test]
    fn memory_that_fits_nowhere_whole_follows_the_free_pages() {
        assert_eq!(spread(300, &[(0, 300), (2, 100)]), [(0, 300)]);
        assert_eq!(spread(400, &[(0, 300), (2, 100)]), [(0, 300), (2, 100)]);
        assert_eq!(spread(200, &[(0, 150), (1, 150)]), [(0, 100), (1, 100)]);
        assert_eq!(spread(200, &[(0, 199), (1, 0), (3, 1)]), [(0, 199), (3, 1)]);
    }
}
