//! Cutting work into chunks.

use prezero_host::PageSize;
use proptest::prelude::*;

use super::queue::chunk_len;
use super::*;

const MIB: u64 = 1 << 20;

/// The parts that workers of equal speed take, one chunk in turn.
fn parts(queue: &Queue, workers: usize) -> Vec<u64> {
    let mut parts = vec![0; workers];
    for n in 0.. {
        match queue.claim() {
            Some(chunk) => parts[n % workers] += chunk.len,
            None => break,
        }
    }
    parts
}

#[test]
fn a_few_pages_are_shared_evenly_among_many_workers() {
    // 160 pages over 64 threads were once split as 63 × 2 + 34.
    let page = PageSize::HUGE_2M;
    let targets = [Target {
        addr: 0,
        len: PageBytes::from_pages(160, page).unwrap(),
        node: 0,
        origin: Origin::Fresh,
    }];
    let parts = parts(&Queue::new(0, &targets, 64, 0), 64);
    assert_eq!(parts.iter().sum::<u64>(), 320 * MIB);
    let (least, most) = (parts.iter().min().unwrap(), parts.iter().max().unwrap());
    assert!(most - least <= page.bytes(), "{parts:?}");
}

#[test]
fn chunks_are_whole_pages_of_at_most_32_mib() {
    assert_eq!(chunk_len(16 << 30, PageSize::HUGE_2M, 2, 0), 32 * MIB);
    assert_eq!(chunk_len(64 * MIB, PageSize::HUGE_2M, 2, 0), 4 * MIB);
    assert_eq!(chunk_len(2 * MIB, PageSize::HUGE_2M, 64, 0), 2 * MIB);
    assert_eq!(chunk_len(4 << 30, PageSize::HUGE_1G, 2, 0), 1 << 30);
    assert_eq!(chunk_len(4096, PageSize::BASE, 1, 0), 2 * MIB);
}

#[test]
fn what_is_asked_for_at_once_is_claimed_at_once() {
    // Otherwise each of two workers would get eight of 4 MiB.
    let chunk = |page, least| chunk_len(64 * MIB, page, 2, least);
    assert_eq!(chunk(PageSize::HUGE_2M, 32 * MIB), 32 * MIB);
    assert_eq!(chunk(PageSize::HUGE_2M, 1 << 30), 1 << 30);
    assert_eq!(chunk(PageSize::HUGE_2M, 4096), 4 * MIB);
    assert_eq!(chunk(PageSize::HUGE_2M, 5 * MIB), 6 * MIB);
    assert_eq!(chunk(PageSize::HUGE_1G, 32 * MIB), 1 << 30);
    assert_eq!(chunk(PageSize::HUGE_2M, u64::MAX), u64::MAX);
}

proptest! {
    #[test]
    fn chunks_cover_each_target_exactly_once(
        sizes in prop::collection::vec((1_u64..200, prop::bool::weighted(0.2)), 1..6),
        workers in 1_u64..70,
    ) {
        let mut addr = 0;
        let targets: Vec<Target> = sizes.iter().map(|&(pages, gigantic)| {
            let page = if gigantic { PageSize::HUGE_1G } else { PageSize::HUGE_2M };
            let len = PageBytes::from_pages(if gigantic { pages % 4 + 1 } else { pages }, page).unwrap();
            let start = page.round_up(addr).unwrap();
            addr = start + len.bytes();
            Target { addr: start, len, node: 0, origin: Origin::Fresh }
        }).collect();
        let queue = Queue::new(0, &targets, workers, 0);
        let mut chunks: Vec<(u64, u64)> = Vec::new();
        while let Some(Chunk { target, addr, len }) = queue.claim() {
            let page = target.len.page_size();
            prop_assert!(page.is_aligned(addr) && page.is_aligned(len) && len > 0);
            prop_assert!(len <= 32 << 20 || len == page.bytes());
            chunks.push((addr, len));
        }
        chunks.sort_unstable();
        let mut covered: Vec<(u64, u64)> = Vec::new();
        for (addr, len) in chunks {
            match covered.last_mut() {
                Some(last) if last.0 + last.1 == addr => last.1 += len,
                Some(last) => { prop_assert!(last.0 + last.1 < addr); covered.push((addr, len)); }
                None => covered.push((addr, len)),
            }
        }
        let mut wanted: Vec<(u64, u64)> = Vec::new();
        for target in &targets {
            match wanted.last_mut() {
                Some(last) if last.0 + last.1 == target.addr => last.1 += target.len.bytes(),
                _ => wanted.push((target.addr, target.len.bytes())),
            }
        }
        prop_assert_eq!(covered, wanted);
    }
}
