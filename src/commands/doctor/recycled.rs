//! Pools of recycled pages: what they have, and what a run would take from them.

use std::path::{Path, PathBuf};

use prezero_host::{Host, PageSize};
use prezero_memory::pool::{Pool, PoolError, Status};
use prezero_memory::{ByteSize, Request};

use super::super::pool_place::default_dir;
use super::super::segments::{foresee, is_dir, may_have_segments, pool_for};
use crate::failure::Failure;
use crate::report::doctor::{Finding, RecycledPool};

pub(super) const NAME: &str = "pool";

/// What was found of the pools that `--pool` means.
#[derive(Default)]
pub(super) struct Recycled {
    pub(super) findings: Vec<Finding>,
    pub(super) pools: Vec<RecycledPool>,
}

/// Looks at them, and tells the request of the segments that a run would find.
pub(super) fn look(choice: &Path, host: &Host, request: &mut Request) -> Recycled {
    let named = match choice.to_str() {
        Some("none") => return Recycled::default(),
        Some("auto") => None,
        _ => Some(choice),
    };
    let used = pool_for(choice, host, request, &mut |_| ()).ok().flatten();
    let needed = request.zones.is_empty() || may_have_segments(request);
    let mut found = Recycled::default();
    let dirs = named.map_or_else(|| default_dirs(host), |dir| vec![dir.to_owned()]);
    for dir in dirs {
        let is_used = used.as_ref().is_some_and(|pool| pool.path() == dir);
        let seen = Pool::open(&dir).and_then(|pool| pool.status());
        let foreseen = match &seen {
            Ok(status) if is_used => foresee(status, request, &mut |_| ()),
            _ => Ok(()),
        };
        match seen {
            Ok(status) => found.add(&status),
            // What a run ends with; one at the default place it leaves alone where it cannot be opened.
            Err(error) if is_used || (named.is_some() && needed) => {
                found.fail(error.into(), &dir);
            }
            Err(error) => found.findings.push(unusable(error, &dir)),
        }
        if let Err(failure) = foreseen {
            found.fail(failure, &dir);
        }
    }
    if found.findings.is_empty() {
        found.findings.extend(none(host));
    }
    found
}

impl Recycled {
    fn add(&mut self, status: &Status) {
        let dir = status.path.display();
        self.findings.push(Finding::ok(NAME, describe(status)));
        let bad = status
            .totals
            .iter()
            .map(|total| total.retired + total.incomplete)
            .sum::<u64>();
        if bad > 0 {
            let message = format!("{dir} has {bad} segments that are retired or have lost pages");
            let fix = format!("prezero pool status {dir}");
            self.findings.push(Finding::warning(NAME, message, fix));
        }
        // Those that have lost pages are counted already.
        let others = status.problems.iter();
        for problem in others.filter(|problem| !problem.kind.is_incomplete()) {
            let fix = problem
                .fix()
                .unwrap_or_else(|| format!("ls -la {}", problem.path.display()));
            self.findings
                .push(Finding::warning(NAME, problem.to_string(), fix));
        }
        self.pools.push(status.into());
    }

    fn fail(&mut self, failure: Failure, dir: &Path) {
        let otherwise = format!("prezero pool status {}", dir.display());
        self.findings
            .push(Finding::problem(NAME, failure, &otherwise));
    }
}

/// The pools that there are at the default places, one for each page size.
fn default_dirs(host: &Host) -> Vec<PathBuf> {
    let dirs = host.pools.iter();
    let dirs = dirs.filter_map(|pool| default_dir(host, pool.page_size));
    dirs.filter(|dir| is_dir(dir)).collect()
}

fn unusable(error: PoolError, dir: &Path) -> Finding {
    let failure = Failure::from(error);
    let fix = failure.fix;
    let fix = fix.unwrap_or_else(|| format!("ls -la {}", dir.display()));
    let message = format!("The pool is not used: {}", failure.message);
    Finding::warning(NAME, message, fix)
}

/// Nothing is said where there is no mount for one: memory needs none.
fn none(host: &Host) -> Option<Finding> {
    let page = host.default_hugepage_size.unwrap_or(PageSize::HUGE_2M);
    let dir = default_dir(host, page)?;
    let message = format!(
        "There is none at {}, and none is needed (prezero pool create makes one)",
        dir.display()
    );
    Some(Finding::ok(NAME, message))
}

/// "DIR: node 0: 2 GiB clean, 1 GiB dirty, 1 GiB leased; node 1: …".
fn describe(status: &Status) -> String {
    let mut nodes: Vec<u32> = status.totals.iter().map(|total| total.node).collect();
    nodes.dedup();
    let nodes = nodes.into_iter().map(|node| {
        let totals = status.totals.iter().filter(|total| total.node == node);
        let [mut clean, mut dirty, mut leased] = [0_u64; 3];
        for total in totals {
            clean += total.clean * total.bytes;
            dirty += total.dirty * total.bytes;
            leased += total.leased * total.bytes;
        }
        let [clean, dirty, leased] = [clean, dirty, leased].map(ByteSize);
        format!("node {node}: {clean} clean, {dirty} dirty, {leased} leased")
    });
    let nodes: Vec<String> = nodes.collect();
    let (dir, page) = (status.path.display(), status.page_size);
    match nodes.is_empty() {
        true => format!("{dir}, on pages of {page}: no segments"),
        false => format!("{dir}, on pages of {page}: {}", nodes.join("; ")),
    }
}
