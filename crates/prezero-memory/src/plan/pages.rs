//! Which pages a zone gets, and what is left of the pools for the next zone.

use std::collections::BTreeMap;

use prezero_host::{Host, IdSet, PageSize, Thp};

use super::apportion::apportion;
use super::{Backing, PlanError, Prealloc, Shortage};
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

/// What the zones planned so far leave.
#[derive(Debug)]
pub(crate) struct Pools<'a> {
    host: &'a Host,
    prealloc: Prealloc,
    used: BTreeMap<(PageSize, u32), u64>,
    used_ordinary: u64,
}

impl<'a> Pools<'a> {
    pub(crate) fn new(host: &'a Host, prealloc: Prealloc) -> Self {
        Self {
            host,
            prealloc,
            used: BTreeMap::new(),
            used_ordinary: 0,
        }
    }

    /// Chooses the pages of the next zone and takes them out of what is left.
    pub(crate) fn choose(&mut self, spec: &MemorySpec) -> Result<PageChoice, PlanError> {
        if let Some(node) = spec.host_numa_node {
            self.check_node(node)?;
        }
        match spec.hugepages {
            Hugepages::On => self.huge(spec),
            Hugepages::Off => self.ordinary(spec, None),
            Hugepages::Auto => match self.huge(spec) {
                // What was asked for in so many words stays an error.
                Err(error @ PlanError::NotWholePages { .. }) if spec.hugepage_size.is_some() => {
                    Err(error)
                }
                Err(error) => self.ordinary(spec, Some(error)),
                choice => choice,
            },
        }
    }

    fn check_node(&self, node: u32) -> Result<(), PlanError> {
        let nodes = &self.host.nodes;
        let valid: IdSet = self.usable_nodes().into_iter().collect();
        if !nodes.iter().any(|candidate| candidate.id == node) {
            return Err(PlanError::NoSuchNode { node, valid });
        }
        if nodes
            .iter()
            .any(|found| found.id == node && found.mem_total == Some(0))
        {
            return Err(PlanError::NodeWithoutMemory { node, valid });
        }
        let allowed = &self.host.allowed_nodes;
        if !allowed.is_empty() && !allowed.contains(node) {
            return Err(PlanError::NodeNotAllowed {
                node,
                allowed: allowed.clone(),
            });
        }
        Ok(())
    }

    fn huge(&mut self, spec: &MemorySpec) -> Result<PageChoice, PlanError> {
        let page = self.hugepage_size(spec)?;
        let needed = spec.bytes >> page.shift();
        let host_free = self.host_available(page);
        let by_node: Vec<(u32, u64)> = self
            .usable_nodes()
            .into_iter()
            .map(|node| (node, self.node_free(page, node).min(host_free)))
            .collect();
        let shares = match spec.host_numa_node {
            Some(node) => {
                let free = by_node
                    .iter()
                    .find(|(id, _)| *id == node)
                    .map_or(0, |pair| pair.1);
                if needed > free {
                    let other = by_node.iter().find(|(_, free)| *free >= needed);
                    return Err(self.short(page, Some(node), needed, free, other.copied()));
                }
                vec![(node, needed)]
            }
            None if needed > host_free => {
                // In a cpuset of one node it is that node's pool that has to grow.
                let only = match by_node.as_slice() {
                    [(node, free)] if self.host.nodes.len() > 1 && *free == host_free => {
                        Some(*node)
                    }
                    _ => None,
                };
                return Err(self.short(page, only, needed, host_free, None));
            }
            None => spread(needed, &by_node),
        };
        for (node, pages) in &shares {
            *self.used.entry((page, *node)).or_default() += pages;
        }
        Ok(PageChoice {
            page,
            backing: Backing::Memfd,
            shares,
            granule: page,
            instead_of: None,
        })
    }

    /// The size asked for; else the host's default if it divides the zone, else the largest smaller
    /// one that does.
    fn hugepage_size(&self, spec: &MemorySpec) -> Result<PageSize, PlanError> {
        let offered: Vec<PageSize> = self.host.pools.iter().map(|pool| pool.page_size).collect();
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
        let default = self.host.default_hugepage_size.or(offered.first().copied());
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
        &mut self,
        spec: &MemorySpec,
        instead_of: Option<PlanError>,
    ) -> Result<PageChoice, PlanError> {
        let page = PageSize::BASE;
        whole_pages(spec, page)?;
        let backing = match self.host.thp {
            Thp::Always | Thp::Madvise => Backing::Thp,
            Thp::Never | Thp::Unavailable => Backing::Base,
        };
        if let (Prealloc::Eager, Some(free)) = (self.prealloc, self.host.mem_available) {
            let available = free.saturating_sub(self.used_ordinary);
            if spec.bytes > available {
                return Err(PlanError::ShortOfMemory {
                    needed: spec.bytes,
                    available,
                    instead_of: instead_of.map(Box::new),
                });
            }
        }
        self.used_ordinary = self.used_ordinary.saturating_add(spec.bytes);
        // Whole transparent hugepages stay on one node where the size allows it.
        let granule = match PageSize::HUGE_2M.is_aligned(spec.bytes) {
            true => PageSize::HUGE_2M,
            false => page,
        };
        let units = spec.bytes >> granule.shift();
        let shares = match spec.host_numa_node {
            Some(node) => vec![(node, units)],
            None => spread(units, &self.ordinary_free(granule)),
        };
        Ok(PageChoice {
            page,
            backing,
            shares,
            granule,
            instead_of,
        })
    }

    /// Nodes that have memory and that the process may use, in order; node 0 on hosts without nodes.
    fn usable_nodes(&self) -> Vec<u32> {
        let allowed = &self.host.allowed_nodes;
        let nodes: Vec<u32> = self
            .host
            .nodes
            .iter()
            .filter(|node| node.mem_total != Some(0))
            .map(|node| node.id)
            .filter(|id| allowed.is_empty() || allowed.contains(*id))
            .collect();
        if nodes.is_empty() { vec![0] } else { nodes }
    }

    fn host_available(&self, page: PageSize) -> u64 {
        let Some(pool) = self.host.pool(page) else {
            return 0;
        };
        let used: u64 = self
            .used
            .iter()
            .filter(|(key, _)| key.0 == page)
            .map(|(_, n)| n)
            .sum();
        // Pages outside the cpuset cannot be reserved, and surplus pages come only where the whole host
        // runs short (`hugetlb_acct_memory`, mm/hugetlb.c).
        let usable = self.usable_nodes().into_iter();
        let of_usable: Option<u64> = usable
            .map(|node| self.node_pool(page, node).map(|pool| pool.1))
            .sum();
        let unreserved = pool.free.saturating_sub(pool.reserved);
        let available = of_usable
            .filter(|free| *free < unreserved)
            .unwrap_or_else(|| pool.available());
        available.saturating_sub(used)
    }

    fn node_free(&self, page: PageSize, node: u32) -> u64 {
        let used = self.used.get(&(page, node)).copied().unwrap_or(0);
        self.node_pool(page, node).map_or_else(
            || self.host_available(page),
            |pool| pool.1.saturating_sub(used),
        )
    }

    /// Total and free pages of a node's pool, where the host shows it.
    fn node_pool(&self, page: PageSize, node: u32) -> Option<(u64, u64)> {
        let node = self
            .host
            .nodes
            .iter()
            .find(|candidate| candidate.id == node)?;
        let pool = node.pools.iter().find(|pool| pool.page_size == page)?;
        Some((pool.total, pool.free))
    }

    fn ordinary_free(&self, granule: PageSize) -> Vec<(u32, u64)> {
        let free = |id: u32| {
            let node = self.host.nodes.iter().find(|node| node.id == id);
            node.and_then(|node| node.mem_free).unwrap_or(0) >> granule.shift()
        };
        self.usable_nodes()
            .into_iter()
            .map(|id| (id, free(id)))
            .collect()
    }

    fn short(
        &self,
        page: PageSize,
        node: Option<u32>,
        needed: u64,
        available: u64,
        elsewhere: Option<(u32, u64)>,
    ) -> PlanError {
        let pool = self.host.pools.iter().find(|pool| pool.page_size == page);
        let of_host = pool.map_or(0, |pool| pool.total);
        let total = node
            .and_then(|node| self.node_pool(page, node))
            .map_or(of_host, |pool| pool.0);
        PlanError::Short(Shortage {
            page,
            node,
            needed,
            available,
            total,
            elsewhere,
        })
    }
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
