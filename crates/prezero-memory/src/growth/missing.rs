//! How many pages are missing, and whether the host can spare them.

use std::collections::BTreeMap;

use prezero_host::{Host, PageSize};

use super::PoolNeed;
use super::error::GrowError;

/// What the rest of the host keeps at least, in bytes.
const KEPT: u64 = 256 << 20;

/// And at least this part of what is available.
const KEPT_SHARE: u64 = 32;

/// The needs that are not met, with the pages missing; one entry per pool, ordered by page size and
/// node.
///
/// Available is what is free and not reserved; surplus pages that the kernel might add under
/// overcommit do not count, because it might not. A node's pages serve the needs of the whole host
/// too, and reservations are known for the whole host only: what they leave missing is added
/// host-wide where such a need exists, else on the lowest node.
pub(super) fn missing(host: &Host, needs: &[PoolNeed]) -> Result<Vec<PoolNeed>, GrowError> {
    let mut pools: BTreeMap<PageSize, BTreeMap<Option<u32>, u64>> = BTreeMap::new();
    for need in needs.iter().filter(|need| need.pages > 0) {
        let pages = pools
            .entry(need.page)
            .or_default()
            .entry(need.node)
            .or_default();
        *pages = pages.saturating_add(need.pages);
    }
    let mut missing = Vec::new();
    for (page, needed) in pools {
        let absent = |node| GrowError::NoPool { page, node };
        let pool = host.pool(page).ok_or_else(|| absent(None))?;
        let total = needed
            .values()
            .fold(0_u64, |sum, pages| sum.saturating_add(*pages));
        let mut met = pool.free.saturating_sub(pool.reserved);
        let mut of_page = Vec::new();
        for (node, pages) in needed {
            let mut short = 0;
            if let Some(id) = node {
                let on_node = host.node(id).and_then(|node| node.pool(page));
                short = pages.saturating_sub(on_node.ok_or_else(|| absent(node))?.free);
                met = met.saturating_add(short);
            }
            of_page.push(PoolNeed {
                page,
                node,
                pages: short,
            });
        }
        if let Some(first) = of_page.first_mut() {
            first.pages = first.pages.saturating_add(total.saturating_sub(met));
        }
        missing.extend(of_page.into_iter().filter(|need| need.pages > 0));
    }
    Ok(missing)
}

/// The sum in bytes.
pub(super) fn bytes(needs: &[PoolNeed]) -> u64 {
    needs.iter().fold(0, |sum, need| {
        sum.saturating_add(need.pages.saturating_mul(need.page.bytes()))
    })
}

/// Refuses to add what would drive the rest of the host into reclaim or the out-of-memory killer:
/// 256 MiB, and 1/32 of MemAvailable where that is more, stay.
pub(super) fn spared(host: &Host, missing: &[PoolNeed]) -> Result<(), GrowError> {
    let Some(available) = host.mem_available else {
        return Ok(());
    };
    let needed = bytes(missing);
    let kept = KEPT.max(available / KEPT_SHARE);
    if needed == 0 || needed <= available.saturating_sub(kept) {
        return Ok(());
    }
    Err(GrowError::Memory {
        needed,
        available,
        kept,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::growth::model::host;
    use proptest::prelude::*;

    const PAGE: PageSize = PageSize::HUGE_2M;

    fn need(node: impl Into<Option<u32>>, pages: u64) -> PoolNeed {
        PoolNeed {
            page: PAGE,
            node: node.into(),
            pages,
        }
    }

    /// What is missing on a host with these free pages per node, and so many reserved.
    fn found(free: &[u64], reserved: u64, needs: &[PoolNeed]) -> Vec<(Option<u32>, u64)> {
        let missing = missing(&host(free, reserved), needs).expect("pools exist");
        missing.iter().map(|need| (need.node, need.pages)).collect()
    }

    #[test]
    fn reserved_pages_are_not_available() {
        assert_eq!(found(&[10], 0, &[need(None, 10)]), []);
        assert_eq!(found(&[10], 4, &[need(None, 10)]), [(None, 4)]);
        assert_eq!(found(&[10], 4, &[need(0, 10)]), [(Some(0), 4)]);
        assert_eq!(found(&[10], 4, &[need(0, 0)]), []);
    }

    #[test]
    fn a_node_needs_pages_of_its_own() {
        assert_eq!(found(&[10, 90], 0, &[need(0, 30)]), [(Some(0), 20)]);
        assert_eq!(
            found(&[10, 90], 0, &[need(1, 30), need(0, 11)]),
            [(Some(0), 1)]
        );
        assert_eq!(found(&[10, 90], 95, &[need(0, 30)]), [(Some(0), 25)]);
    }

    #[test]
    fn pages_of_a_node_are_not_counted_twice() {
        assert_eq!(
            found(&[50, 50], 0, &[need(0, 50), need(None, 60)]),
            [(None, 10)]
        );
        assert_eq!(
            found(&[50, 50], 0, &[need(0, 30), need(0, 30)]),
            [(Some(0), 10)]
        );
    }

    #[test]
    fn a_pool_that_is_not_there_is_refused() {
        let host = host(&[10], 0);
        let error = missing(&host, &[need(3, 1)]).expect_err("one node");
        assert!(
            matches!(error, GrowError::NoPool { node: Some(3), .. }),
            "{error}"
        );
        let page = PageSize::new(64 << 10).expect("a page size");
        let error = missing(
            &host,
            &[PoolNeed {
                page,
                node: None,
                pages: 1,
            }],
        )
        .expect_err("2 MiB only");
        assert_eq!(
            error.to_string(),
            "This host has no pool of 64 KiB hugepages"
        );
    }

    #[test]
    fn the_rest_of_the_host_keeps_256_mib_or_a_32nd() {
        let mut host = host(&[0], 0);
        for (available, most) in [(1_u64 << 30, 384), (64 << 30, 62 * 512)] {
            host.mem_available = Some(available);
            spared(&host, &[need(None, most)]).expect("just enough");
            let error = spared(&host, &[need(None, most + 1)]).expect_err("one too many");
            assert!(
                matches!(error, GrowError::Memory { needed, .. } if needed == (most + 1) << 21)
            );
            assert_eq!(error.class(), crate::Class::Shortage);
            assert!(
                error
                    .fix()
                    .is_some_and(|fix| fix.starts_with("a --memory smaller by 2M, ")),
                "{error}"
            );
        }
        host.mem_available = Some(0);
        spared(&host, &[]).expect("nothing to add");
        spared(&host, &[need(None, u64::MAX)]).expect_err("more than there are bytes");
    }

    proptest! {
        #[test]
        fn adding_what_is_missing_leaves_nothing_missing(
            free in prop::collection::vec(0_u64..100, 3),
            reserved in 0_u64..=100,
            needs in prop::collection::vec((prop::option::of(0_u32..3), 0_u64..100), 0..6),
        ) {
            let mut free = free;
            let reserved = free.iter().sum::<u64>() * reserved / 100;
            let needs: Vec<PoolNeed> = needs.into_iter().map(|(node, pages)| need(node, pages)).collect();
            for short in missing(&host(&free, reserved), &needs).expect("pools exist") {
                prop_assert!(short.pages > 0);
                free[short.node.unwrap_or(2) as usize] += short.pages;
            }
            prop_assert_eq!(missing(&host(&free, reserved), &needs).expect("pools exist"), []);
        }
    }
}
