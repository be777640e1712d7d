//! Where a measurement takes place: hugepages, a mount of its own, and the pools that are made on it.

use std::path::PathBuf;

use prezero_memory::pool::{Pool, PoolRequest, TakeRequest};
use prezero_memory::{
    ByteSize, Control, GuestRam, Host, PageBytes, PageSize, Prealloc, Recycled, Request, Workers,
    plan,
};
use prezero_testkit::{Hugepages, PrivateMount};

use crate::peers::Result;

/// What dirty memory holds.
const STAIN: u8 = 0xa5;

/// Hugepages that nobody else uses meanwhile. The mount goes before they are counted.
pub(crate) struct Ground {
    mount: PrivateMount,
    _pages: Hugepages,
    page: PageSize,
}

impl Ground {
    /// None, after a skip, where the machine has no such pages, or mounting is refused.
    pub(crate) fn take(page: PageSize, bytes: u64) -> Option<Self> {
        let pages = Hugepages::take(page.bytes(), bytes >> page.shift())?;
        let mount = PrivateMount::hugetlbfs(page.bytes())?;
        Some(Self {
            mount,
            _pages: pages,
            page,
        })
    }

    /// The directory of the pool.
    pub(crate) fn dir(&self) -> PathBuf {
        self.mount.path().join("pool")
    }

    /// What `--memory` is to be for guests on these pages.
    pub(crate) fn memory(&self, bytes: u64) -> String {
        let page = ByteSize(self.page.bytes()).to_spec();
        format!("size={bytes},hugepages=on,hugepage_size={page}")
    }

    /// A pool of clean segments.
    pub(crate) fn pool(&self, bytes: u64, segment: u64) -> Result<Pool> {
        let request = PoolRequest {
            bytes,
            segment: PageBytes::new(segment, self.page).ok_or("segments are whole pages")?,
            nodes: Vec::new(),
            exchange_only: false,
        };
        let (host, control) = (Host::probe(), Control::default());
        let (pool, _) = Pool::create(&self.dir(), &request, &host, None, &control)?;
        Ok(pool)
    }

    /// Makes all segments of the pool dirty, and fills them with a byte that is not zero.
    pub(crate) fn stain(&self, pool: &Pool) -> Result<()> {
        let leases = pool.take(&TakeRequest {
            max_bytes: u64::MAX,
            ..TakeRequest::default()
        })?;
        let recycled = leases.iter().map(|lease| Recycled {
            len: lease.len(),
            node: lease.node(),
            origin: lease.origin(),
        });
        let bytes = leases.iter().map(|lease| lease.len().bytes()).sum();
        let request = Request {
            zones: vec![self.memory(bytes).parse()?],
            prealloc: Prealloc::Eager,
            recycled: recycled.collect(),
            ..Request::default()
        };
        let plan = plan(&Host::probe(), &request)?;
        let workers = Workers::start(plan.workers())?;
        let control = Control::default();
        let ram = GuestRam::reserve_with(&plan, leases.into_iter().map(Some).collect())?;
        let (ram, _) = ram
            .populate(&workers, &control)
            .map_err(|failed| failed.error)?;
        let stained = ram.stain(&workers, STAIN, &control);
        stained.map(drop).map_err(|failed| failed.error)?;
        Ok(())
    }
}
