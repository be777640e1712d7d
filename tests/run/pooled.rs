//! A pool at the default place, and what reports say of guests on it.

use std::fs;
use std::path::PathBuf;

use prezero_memory::pool::{Pool, PoolRequest, State, Use};
use prezero_memory::{Control, Host, PageBytes, PageSize};
use prezero_testkit::{Hugepages, PrivateMount, skip};
use serde_json::Value;

use crate::command::Ran;
use crate::contract::{list, number, text};

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const PAGE: u64 = 2 * MIB;
pub(crate) const SEGMENT: u64 = 16 * MIB;

/// A mount of this thread, with a pool at the default place.
pub(crate) struct Pooled {
    pub(crate) pool: Pool,
    mount: PrivateMount,
    pub(crate) pages: Hugepages,
}

impl Pooled {
    pub(crate) fn new(segments: u64, pages: u64) -> Option<Self> {
        Self::on(Hugepages::take(PAGE, pages)?, segments, false)
    }

    pub(crate) fn on(pages: Hugepages, segments: u64, exchange_only: bool) -> Option<Self> {
        let mount = PrivateMount::hugetlbfs(PAGE)?;
        let host = Host::probe();
        let request = PoolRequest {
            bytes: segments * SEGMENT,
            segment: PageBytes::new(SEGMENT, PageSize::HUGE_2M).expect("whole pages"),
            nodes: vec![host.nodes[0].id],
            exchange_only,
        };
        let dir = mount.path().join("prezero");
        let made = Pool::create(&dir, &request, &host, None, &Control::default());
        let (pool, _) = made.expect("the pages are there");
        Some(Self { pool, mount, pages })
    }

    /// False, after a skip, where another mount of that page size comes first on this host.
    pub(crate) fn is_at_default_place(&self) -> bool {
        let host = Host::probe();
        let first = host.mount_for(PageSize::HUGE_2M);
        let is_first = first.is_some_and(|mount| mount.path == self.mount.path());
        if !is_first {
            skip("default place", "another mount of 2 MiB pages comes first");
        }
        is_first
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.mount.path().join("prezero")
    }

    /// (clean, dirty) segments that are free.
    pub(crate) fn free(&self) -> (usize, usize) {
        let status = self.pool.status().expect("a pool");
        let count = |state| {
            let all = status.segments.iter();
            all.filter(|segment| segment.name.state == state && segment.usage == Use::Free)
                .count()
        };
        (count(State::Clean), count(State::Dirty))
    }

    pub(crate) fn segments(&self) -> Vec<PathBuf> {
        let node = fs::read_dir(self.dir()).expect("a pool").next();
        let node = node.expect("one node").expect("readable").path();
        let names = fs::read_dir(node).expect("a node");
        names.map(|name| name.expect("readable").path()).collect()
    }
}

/// Regions as (backing, origin, cleared_by, MiB).
pub(crate) fn regions(report: &Value) -> Vec<(&str, &str, &str, u64)> {
    let regions = list(report, "regions").iter();
    regions
        .map(|region| {
            (
                text(region, "backing"),
                text(region, "origin"),
                text(region, "cleared_by"),
                number(region, "len") / MIB,
            )
        })
        .collect()
}

#[track_caller]
pub(crate) fn is_zero(ran: Ran, bytes: u64) -> Value {
    let report = ran.exits_with(0).json();
    assert_eq!(number(&report["guest"], "scanned_bytes"), bytes);
    assert_eq!(number(&report["guest"], "nonzero_bytes"), 0);
    report
}
