//! Raising the pools until nothing is missing, and lowering them by what was added.

use prezero_host::{Host, PageSize};

use super::error::GrowError;
use super::journal::{Journal, Pending};
use super::kernel::{Effort, Kernel, persistent};
use super::missing::{bytes, missing, spared};
use super::{Grown, PoolNeed};
use crate::control::Control;

/// Adds what is missing. The caller has the host's lock; on an error the journal knows what was
/// added by then.
pub(super) fn raise(
    kernel: &dyn Kernel,
    needs: &[PoolNeed],
    control: &Control<'_>,
    journal: &mut Journal,
) -> Result<Vec<Grown>, GrowError> {
    let mut host = kernel.facts();
    let before = host.clone();
    let asked = missing(&host, needs)?;
    spared(&host, &asked)?;
    let mut left = asked.clone();
    let mut effort = Effort::Allocate;
    loop {
        // A write ends early on a signal of any kind (set_max_huge_pages in the kernel's
        // mm/hugetlb.c), and adds nothing to the free pages as long as it makes surplus pages
        // persistent: again, as long as that helps.
        while !left.is_empty() && spared(&host, &left).is_ok() {
            for want in &left {
                if let Some(by) = control.stopped_by() {
                    let doing = "growing the hugepage pools".to_owned();
                    return Err(GrowError::Stopped { by, doing });
                }
                host = add(kernel, &host, want, journal)?;
            }
            let now = missing(&host, needs)?;
            let helped = bytes(&now) < bytes(&left);
            left = now;
            if !helped {
                break;
            }
        }
        effort = match effort {
            _ if left.is_empty() => break,
            Effort::Allocate => Effort::Compact,
            Effort::Compact => Effort::DropCaches,
            Effort::DropCaches => break,
        };
        kernel.make_room(effort);
        host = kernel.facts();
        left = missing(&host, needs)?;
    }
    result(&before, &asked, &left, effort)
}

fn result(
    before: &Host,
    asked: &[PoolNeed],
    left: &[PoolNeed],
    effort: Effort,
) -> Result<Vec<Grown>, GrowError> {
    let rest = |of: &PoolNeed| {
        let same = left
            .iter()
            .find(|need| (need.page, need.node) == (of.page, of.node));
        same.map_or(0, |need| need.pages)
    };
    let grown = |of: &PoolNeed, asked: u64| Grown {
        page: of.page,
        node: of.node,
        asked,
        got: asked.saturating_sub(rest(of)),
        compacted: effort >= Effort::Compact,
        dropped_caches: effort >= Effort::DropCaches,
    };
    let Some(short) = left.first() else {
        return Ok(asked.iter().map(|need| grown(need, need.pages)).collect());
    };
    // A pool that lacked nothing at first is short when somebody else took its pages meanwhile.
    let first = asked
        .iter()
        .find(|need| (need.page, need.node) == (short.page, short.node));
    let asked = first.map_or(short.pages, |need| need.pages);
    Err(GrowError::Short {
        grown: grown(short, asked),
        total: total(before, short.page, short.node),
    })
}

/// The pages of a pool, surplus ones included.
pub(super) fn total(host: &Host, page: PageSize, node: Option<u32>) -> u64 {
    let total = match node {
        None => host.pool(page).map(|pool| pool.total),
        Some(id) => host
            .node(id)
            .and_then(|node| node.pool(page))
            .map(|pool| pool.total),
    };
    total.unwrap_or(0)
}

/// One write, and the facts after it. Surplus pages become persistent before any page is added,
/// hence the whole total.
fn add(
    kernel: &dyn Kernel,
    host: &Host,
    want: &PoolNeed,
    journal: &mut Journal,
) -> Result<Host, GrowError> {
    let target = total(host, want.page, want.node).saturating_add(want.pages);
    let before = persistent(host, want.page);
    let mut most = target.saturating_sub(match want.node {
        None => before.iter().map(|(_, pages)| pages).sum(),
        Some(id) => on(&before, id),
    });
    journal.intend(Pending {
        page: want.page,
        node: want.node,
        pages: signed(most),
        from: target.saturating_sub(most),
    })?;
    let written = kernel.set(want.page, want.node, target);
    let host = kernel.facts();
    let mut added = Vec::new();
    for (node, after) in persistent(&host, want.page) {
        if want.node.is_some_and(|wanted| wanted != node) {
            continue;
        }
        // What an operator adds meanwhile is not ours: no more than was asked for.
        let pages = after.saturating_sub(on(&before, node)).min(most);
        most -= pages;
        if pages > 0 {
            added.push((node, signed(pages)));
        }
    }
    journal.done(want.page, &added)?;
    written?;
    Ok(host)
}

fn on(nodes: &[(u32, u64)], id: u32) -> u64 {
    let node = nodes.iter().find(|(node, _)| *node == id);
    node.map_or(0, |(_, pages)| *pages)
}

/// Takes away what the journal says was added, from the sizes that the pools have now. The caller
/// has the host's lock.
///
/// Every pool is tried; the first error is returned.
pub(super) fn lower(kernel: &dyn Kernel, journal: &mut Journal) -> Result<(), GrowError> {
    let mut result = Ok(());
    for (page, node, pages) in journal.balance().shares() {
        // Only a dead growth's journal is without the node.
        if let Some(node) = node {
            result = result.and(give_back(kernel, page, node, pages, journal));
        }
    }
    result
}

fn give_back(
    kernel: &dyn Kernel,
    page: PageSize,
    node: u32,
    pages: u64,
    journal: &mut Journal,
) -> Result<(), GrowError> {
    let now = persistent(&kernel.facts(), page);
    let Some((_, now)) = now.into_iter().find(|(id, _)| *id == node) else {
        let node = Some(node);
        return Err(GrowError::NoPool { page, node });
    };
    // A journal that cannot be written (no space left) is no reason to keep the pages.
    let _ = journal.intend(Pending {
        page,
        node: Some(node),
        pages: -signed(pages),
        from: now,
    });
    kernel.set(page, Some(node), now.saturating_sub(pages))?;
    let _ = journal.done(page, &[(node, -signed(pages))]);
    Ok(())
}

fn signed(pages: u64) -> i64 {
    i64::try_from(pages).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
