//! The page that will be used next is cleared last, so that it is not pushed out of the cache again.

use prezero_host::PageSize;

use super::ClearRequest;
use crate::size::PageBytes;
use crate::work::{Target, large_first};

/// Splits targets so that the page of each address that will be used next is a target of its own at
/// the end, and names those addresses. Pages of 1 GiB and more are left alone unless asked for.
pub(super) fn pages_last(targets: &[Target], request: &ClearRequest) -> (Vec<Target>, Vec<usize>) {
    let (mut early, mut late, mut used_next) = (large_first(targets), Vec::new(), Vec::new());
    for &addr in &request.used_next {
        let Some(n) = early.iter().position(|target| holds(target, addr)) else {
            continue;
        };
        let page = early[n].len.page_size();
        if page >= PageSize::HUGE_1G && !request.used_next_in_gigantic {
            continue;
        }
        let target = early.remove(n);
        // Base pages are worked on 2 MiB at a time; so is the page that comes last.
        let unit = page.max(PageSize::HUGE_2M);
        let start = unit.round_down(addr).max(target.addr);
        let end = (unit.round_down(addr) + unit.bytes()).min(target.addr + target.len.bytes());
        early.extend(piece(&target, target.addr, start));
        early.extend(piece(&target, end, target.addr + target.len.bytes()));
        late.extend(piece(&target, start, end));
        used_next.extend(usize::try_from(addr).ok());
    }
    early.append(&mut late);
    (early, used_next)
}

fn holds(target: &Target, addr: u64) -> bool {
    addr.wrapping_sub(target.addr) < target.len.bytes()
}

/// The part of a target between two of its page boundaries, if it is not empty.
fn piece(target: &Target, start: u64, end: u64) -> Option<Target> {
    let len = PageBytes::new(end - start, target.len.page_size())?;
    (end > start).then_some(Target {
        addr: start,
        len,
        ..*target
    })
}
