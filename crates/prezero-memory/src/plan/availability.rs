//! What a host has left for the zones of a request: hugepages, ordinary memory, limits.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use prezero_host::{Host, HugetlbfsMount, IdSet, PageSize};

use super::{PlanError, Recycled, Shortage};
use crate::limits::{self, LimitHit, LimitKind};
use crate::policy::{NodeChoice, Policy};

/// What the zones planned so far leave.
#[derive(Debug)]
pub(crate) struct Available<'a> {
    pub(crate) host: &'a Host,
    used: BTreeMap<(PageSize, u32), u64>,
    /// Where zones that have pages of certain nodes and no others took theirs.
    strict: BTreeSet<(PageSize, u32)>,
    used_on_mounts: BTreeMap<PathBuf, u64>,
    used_ordinary: u64,
    /// Page size, node and pages of each zone that insists on one node.
    bound: Vec<(PageSize, u32, u64)>,
    /// Segments that no zone has, with their places in the request.
    recycled: Vec<(usize, Recycled)>,
}

impl<'a> Available<'a> {
    pub(crate) fn new(host: &'a Host) -> Self {
        Self {
            host,
            used: BTreeMap::new(),
            strict: BTreeSet::new(),
            used_on_mounts: BTreeMap::new(),
            used_ordinary: 0,
            bound: Vec::new(),
            recycled: Vec::new(),
        }
    }

    /// With segments of pools.
    pub(crate) fn with_recycled(self, recycled: &[Recycled]) -> Self {
        let recycled = recycled.iter().copied().enumerate().collect();
        Self { recycled, ..self }
    }

    /// Takes the segments of this page size that suit, on these nodes or any, each only if all of it fits
    /// into what is left of `bytes`.
    pub(crate) fn take_recycled(
        &mut self,
        page: PageSize,
        nodes: Option<&IdSet>,
        bytes: u64,
    ) -> Vec<(usize, Recycled)> {
        let usable: IdSet = self.nodes().into_iter().collect();
        let mut left = bytes;
        let mut taken = Vec::new();
        self.recycled.retain(|segment| {
            let (_, Recycled { len, node, .. }) = *segment;
            let suits = len.page_size() == page
                && len.bytes() > 0
                && len.bytes() <= left
                && usable.contains(node)
                && nodes.is_none_or(|nodes| nodes.contains(node));
            if suits {
                left -= len.bytes();
                taken.push(*segment);
            }
            !suits
        });
        taken
    }

    /// Told of all zones that insist on one node, so that a shortage can name their sum.
    pub(crate) fn with_bound(self, bound: impl Iterator<Item = (PageSize, u32, u64)>) -> Self {
        let bound = bound.collect();
        Self { bound, ..self }
    }

    /// Pages that all those zones need of a node, and how many zones they are.
    pub(crate) fn bound_needs(&self, page: PageSize, node: u32) -> (u64, usize) {
        let of_node = (self.bound.iter()).filter(|need| (need.0, need.1) == (page, node));
        of_node.fold((0, 0), |(pages, zones), need| {
            (pages.saturating_add(need.2), zones + 1)
        })
    }

    /// The nodes of a choice; all that may be used where it names none.
    pub(crate) fn chosen(&self, choice: &NodeChoice) -> IdSet {
        match choice.nodes.is_empty() {
            true => self.nodes().into_iter().collect(),
            false => choice.nodes.clone(),
        }
    }

    pub(crate) fn take(&mut self, page: PageSize, shares: &[(u32, u64)], policy: Option<Policy>) {
        let strict = policy.is_some_and(|policy| policy != Policy::Preferred);
        for (node, pages) in shares {
            *self.used.entry((page, *node)).or_default() += pages;
            if strict {
                self.strict.insert((page, *node));
            }
        }
    }

    /// Whether a zone planned so far has pages of this node that others cannot stand in for.
    pub(crate) fn is_strict(&self, page: PageSize, node: u32) -> bool {
        self.strict.contains(&(page, node))
    }

    pub(crate) fn take_on_mount(&mut self, mount: &HugetlbfsMount, bytes: u64) {
        let used = self.used_on_mounts.entry(mount.path.clone()).or_default();
        *used = used.saturating_add(bytes);
    }

    pub(crate) fn take_ordinary(&mut self, bytes: u64) {
        self.used_ordinary = self.used_ordinary.saturating_add(bytes);
    }

    /// Whether a zone may be on `node`.
    pub(crate) fn check_node(&self, node: u32) -> Result<(), PlanError> {
        let nodes = &self.host.nodes;
        let valid: IdSet = self.nodes().into_iter().collect();
        if !nodes.iter().any(|candidate| candidate.id == node) {
            return Err(PlanError::NoSuchNode { node, valid });
        }
        let found = self.host.node(node);
        if found.is_some_and(|found| found.mem_total == Some(0)) {
            return Err(PlanError::NodeWithoutMemory { node, valid });
        }
        let allowed = &self.host.allowed_nodes;
        if !allowed.is_empty() && !allowed.contains(node) {
            // Where several leave it out, a child may have no node that its parent has not.
            let mut sets = self.host.cpusets.iter().rev();
            let without = sets.find(|set| !set.mems.is_empty() && !set.mems.contains(node));
            return Err(PlanError::NodeNotAllowed {
                node,
                allowed: allowed.clone(),
                file: without.map(|set| set.file.clone()),
            });
        }
        Ok(())
    }

    /// Nodes that have memory and that the process may use, in order; node 0 on hosts without nodes.
    pub(crate) fn nodes(&self) -> Vec<u32> {
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

    /// Hugepages that an unbound mapping may have.
    pub(crate) fn pages(&self, page: PageSize) -> u64 {
        let Some(pool) = self.host.pool(page) else {
            return 0;
        };
        // Pages outside the cpuset cannot be reserved, and surplus pages come only where the whole host
        // runs short (`hugetlb_acct_memory`, mm/hugetlb.c).
        let usable = self.nodes().into_iter();
        let of_usable: Option<u64> = usable
            .map(|node| self.node_pool(page, node).map(|pool| pool.1))
            .sum();
        let unreserved = pool.free.saturating_sub(pool.reserved);
        let available = of_usable
            .filter(|free| *free < unreserved)
            .unwrap_or_else(|| pool.available());
        available.saturating_sub(self.used(page))
    }

    /// Hugepages of one node: free there, and available on the host.
    pub(crate) fn pages_on(&self, page: PageSize, node: u32) -> u64 {
        // A host of one node can add surplus pages to it.
        if self.host.nodes.len() <= 1 {
            return self.pages(page);
        }
        self.free_on(page, node).min(self.pages(page))
    }

    /// Bytes of all hugepages taken so far.
    fn huge_bytes(&self) -> u64 {
        let bytes = self
            .used
            .iter()
            .map(|((page, _), pages)| pages.saturating_mul(page.bytes()));
        bytes.fold(0, u64::saturating_add)
    }

    fn used(&self, page: PageSize) -> u64 {
        let of_size = self.used.iter().filter(|(key, _)| key.0 == page);
        of_size.map(|(_, pages)| pages).sum()
    }

    /// Hugepages of a node that earlier zones took.
    pub(crate) fn used_on(&self, page: PageSize, node: u32) -> u64 {
        self.used.get(&(page, node)).copied().unwrap_or(0)
    }

    fn free_on(&self, page: PageSize, node: u32) -> u64 {
        let used = self.used_on(page, node);
        // A host without node directories has one pool.
        let free = self.node_pool(page, node).map_or_else(
            || self.host.pool(page).map_or(0, |pool| pool.free),
            |pool| pool.1,
        );
        free.saturating_sub(used)
    }

    /// Total and free pages of a node's pool, where the host shows it.
    fn node_pool(&self, page: PageSize, node: u32) -> Option<(u64, u64)> {
        let pool = self.host.node(node)?.pool(page)?;
        Some((pool.total, pool.free))
    }

    /// Pages in a node's pool, free or not; the host's where it does not show the node's.
    pub(crate) fn total_on(&self, page: PageSize, node: u32) -> u64 {
        let of_host = || self.host.pool(page).map_or(0, |pool| pool.total);
        let of_node = self.node_pool(page, node);
        of_node.map_or_else(of_host, |pool| pool.0)
    }

    /// Free ordinary memory of each usable node, in units of `granule`.
    pub(crate) fn ordinary_on_nodes(&self, granule: PageSize) -> Vec<(u32, u64)> {
        let free = |id: u32| {
            self.host
                .node(id)
                .and_then(|node| node.mem_free)
                .unwrap_or(0)
        };
        let nodes = self.nodes().into_iter();
        nodes.map(|id| (id, free(id) >> granule.shift())).collect()
    }

    /// Whether `bytes` of ordinary memory can be populated.
    pub(crate) fn check_ordinary(&self, bytes: u64) -> Result<(), PlanError> {
        if let Some(free) = self.host.mem_available {
            let available = free.saturating_sub(self.used_ordinary);
            if bytes > available {
                return Err(PlanError::ShortOfMemory {
                    needed: bytes,
                    available,
                    instead_of: None,
                });
            }
        }
        let needed = self.used_ordinary.saturating_add(bytes);
        let hit = limits::of_memory(self.host, needed)
            .or_else(|| limits::of_accounted(self.host, self.huge_bytes().saturating_add(needed)));
        hit.map_or(Ok(()), |hit| Err(PlanError::Limit(hit)))
    }

    /// The size of `mount`, if `bytes` more exceed it. What others have on it only the kernel knows.
    pub(crate) fn limit_on_mount(&self, mount: &HugetlbfsMount, bytes: u64) -> Option<LimitHit> {
        let used = self.used_on_mounts.get(&mount.path).copied().unwrap_or(0);
        let needed = used.saturating_add(bytes);
        let limit = mount.size_limit.filter(|limit| needed > *limit)?;
        Some(LimitHit {
            what: LimitKind::Mount,
            file: mount.path.clone(),
            limit,
            usage: 0,
            needed,
        })
    }

    /// The limit that `pages` more hugepages would exceed, if any.
    pub(crate) fn limit(&self, page: PageSize, pages: u64) -> Option<LimitHit> {
        let needed = (self.used(page).saturating_add(pages)).checked_mul(page.bytes())?;
        let kinds = [
            prezero_host::LimitKind::Usage,
            prezero_host::LimitKind::Reservation,
        ];
        limits::of_hugepages(self.host, page, needed, &kinds).or_else(|| {
            let more = pages.checked_mul(page.bytes())?;
            let all = self.huge_bytes().saturating_add(self.used_ordinary);
            limits::of_accounted(self.host, all.saturating_add(more))
        })
    }

    pub(crate) fn short(
        &self,
        page: PageSize,
        node: Option<u32>,
        needed: u64,
        available: u64,
    ) -> Shortage {
        let of_host = || self.host.pool(page).map_or(0, |pool| pool.total);
        Shortage {
            page,
            node,
            needed,
            zones: 1,
            available,
            total: node.map_or_else(of_host, |node| self.total_on(page, node)),
            elsewhere: None,
            choices: Vec::new(),
            memory: self.host.mem_available,
        }
    }
}
