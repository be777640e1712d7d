//! The planning itself: zones to pages, pages to guest ranges, ranges to slots and extents.

use prezero_host::{Host, PageSize};

use super::availability::Available;
use super::pages::{PageChoice, bound_need};
use super::supply::Supply;
use super::workers::plan_workers;
use super::{ClearExtents, Extent, Plan, PlanError, PlanWarning, Prealloc, Request, SlotPlan};
use crate::layout::Layout;
use crate::limits::{LimitHit, LimitKind};
use crate::policy::Policy;
use crate::spec::{Hugepages, MemorySpec};

/// The first kernel with `MADV_POPULATE_WRITE` (madvise(2)).
const POPULATE_SINCE: (u32, u32) = (5, 14);

/// Plans `request` on `host`.
///
/// Pure: the same facts and request give the same plan, and no system call is made.
///
/// # Errors
///
/// Everything that the facts show to be impossible, with numbers and a fix ([`PlanError`]).
pub fn plan(host: &Host, request: &Request) -> Result<Plan, PlanError> {
    check_request(host, request)?;
    let bound = request.zones.iter();
    let bound = bound.filter_map(|zone| bound_need(zone, host));
    let mut available = Available::new(host)
        .with_bound(bound)
        .with_recycled(&request.recycled);
    let mut choices = Vec::with_capacity(request.zones.len());
    // Impossible layouts are refused before shortages: more pages would not help.
    let usual = || Layout::x86_64(&host.cpu);
    let space = request.layout.clone().unwrap_or_else(usual);
    let least: Vec<(u64, PageSize)> = request
        .zones
        .iter()
        .map(|zone| (PageSize::BASE.round_down(zone.bytes), PageSize::BASE))
        .collect();
    space.place(&least)?;
    for n in strictest_first(&request.zones) {
        let choice = PageChoice::of(&request.zones[n], request.prealloc, &mut available)?;
        choices.push((n, choice));
    }
    choices.sort_by_key(|(n, _)| *n);
    let choices: Vec<PageChoice> = choices.into_iter().map(|(_, choice)| choice).collect();
    let wanted: Vec<(u64, PageSize)> = request
        .zones
        .iter()
        .zip(&choices)
        .map(|(zone, choice)| (zone.bytes, choice.page))
        .collect();
    let ranges = space.place(&wanted)?;

    let mut slots = Vec::new();
    for (n, ((zone, choice), ranges)) in request.zones.iter().zip(&choices).zip(ranges).enumerate()
    {
        let mut supply = Supply::new(choice);
        for (gpa, len) in ranges {
            slots.push(SlotPlan {
                slot: request
                    .first_slot
                    .saturating_add(u32::try_from(slots.len()).unwrap_or(u32::MAX)),
                zone: n,
                gpa,
                len,
                align: choice.page.max(PageSize::HUGE_2M),
                dir: choice
                    .backing
                    .is_hugetlb()
                    .then(|| zone.path.clone())
                    .flatten(),
                extents: supply.fill(gpa, len),
            });
        }
    }
    let mut plan = Plan {
        bytes: request.zones.iter().map(|zone| zone.bytes).sum(),
        prealloc: request.prealloc,
        clear: request.clear,
        slots,
        workers: Vec::new(),
        warnings: Vec::new(),
    };
    let all = plan.bytes;
    if let Some(limit) = host.limits.address_space.filter(|limit| all > *limit) {
        return Err(PlanError::Limit(LimitHit {
            what: LimitKind::AddressSpace,
            file: "/proc/self/limits".into(),
            limit,
            usage: 0,
            needed: all,
        }));
    }
    if let Some(hit) = file_size_limit(host, &plan) {
        return without_large_files(host, request, hit);
    }
    let work = plan.work();
    if !work.is_empty() {
        plan.workers = plan_workers(host, &work, request.threads, request.cpus.as_ref());
    }
    plan.warnings = warnings(host, request, &plan, choices);
    Ok(plan)
}

/// RLIMIT_FSIZE holds for memfds too; past it the kernel sends SIGXFSZ.
fn file_size_limit(host: &Host, plan: &Plan) -> Option<LimitHit> {
    let limit = host.limits.file_size?;
    let needed = plan.largest_file();
    (needed > limit).then(|| LimitHit {
        what: LimitKind::FileSize,
        file: "/proc/self/limits".into(),
        limit,
        usage: 0,
        needed,
    })
}

/// The plan with ordinary memory where hugepages were not insisted on.
fn without_large_files(host: &Host, request: &Request, hit: LimitHit) -> Result<Plan, PlanError> {
    let mut request = request.clone();
    let auto = |zone: &&mut MemorySpec| zone.hugepages == Hugepages::Auto;
    if request.zones.iter_mut().filter(auto).count() == 0 {
        return Err(PlanError::Limit(hit));
    }
    for zone in request.zones.iter_mut().filter(auto) {
        zone.hugepages = Hugepages::Off;
        zone.hugepage_size = None;
        zone.path = None;
    }
    let planned = plan(host, &request);
    let mut plan = planned.map_err(|error| error.after(Some(PlanError::Limit(hit.clone()))))?;
    let error = Box::new(PlanError::Limit(hit));
    plan.warnings
        .insert(0, PlanWarning::Ordinary { shortage: error });
    Ok(plan)
}

fn check_request(host: &Host, request: &Request) -> Result<(), PlanError> {
    if request.zones.is_empty() || request.zones.iter().any(|zone| zone.bytes == 0) {
        return Err(PlanError::Nothing);
    }
    let ids = |zone: &MemorySpec| {
        request
            .zones
            .iter()
            .filter(|other| other.id == zone.id)
            .count()
    };
    let twice = request
        .zones
        .iter()
        .find(|zone| zone.id.is_some() && ids(zone) > 1);
    if let Some(id) = twice.and_then(|zone| zone.id.clone()) {
        return Err(PlanError::DuplicateId(id));
    }
    if request.threads == Some(0) {
        return Err(PlanError::NoThreads);
    }
    if request.clear == ClearExtents::All && request.prealloc == Prealloc::Off {
        return Err(PlanError::ClearUnpopulated);
    }
    if let Some(cpus) = &request.cpus
        && cpus.intersection(&host.allowed_cpus).is_empty()
    {
        return Err(PlanError::NoCpu {
            asked: cpus.clone(),
            allowed: host.allowed_cpus.clone(),
        });
    }
    let too_old = host
        .kernel
        .version()
        .is_some_and(|version| version < POPULATE_SINCE);
    if request.prealloc == Prealloc::Eager && too_old {
        return Err(PlanError::KernelTooOld {
            release: host.kernel.release.clone(),
        });
    }
    Ok(())
}

/// The order in which zones choose: pages that one cannot do without must not go to another that can.
fn strictest_first(zones: &[MemorySpec]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..zones.len()).collect();
    order.sort_by_key(|&n| {
        let zone = &zones[n];
        (
            zone.hugepages != Hugepages::On,
            zone.nodes.as_ref().map_or(4, |choice| match choice.policy {
                Policy::Bind if choice.only_node().is_some() => 0,
                Policy::Interleave => 1,
                Policy::Bind => 2,
                Policy::Preferred => 3,
            }),
        )
    });
    order
}

fn warnings(
    host: &Host,
    request: &Request,
    plan: &Plan,
    choices: Vec<PageChoice>,
) -> Vec<PlanWarning> {
    let mut warnings: Vec<PlanWarning> = Vec::new();
    for choice in choices {
        warnings.extend(choice.overflow());
        let fallback = choice.instead_of.map(Box::new);
        warnings.extend(fallback.map(|shortage| PlanWarning::Ordinary { shortage }));
    }
    if let Some(asked) = request.threads.filter(|asked| *asked < plan.workers.len()) {
        warnings.push(PlanWarning::ThreadsRaised {
            asked,
            planned: plan.workers.len(),
        });
    }
    if plan.prealloc == Prealloc::Off {
        // The pages of a segment are there already.
        let bound = plan.extents().filter(|extent| {
            extent.bound() && extent.backing().is_hugetlb() && extent.segment().is_none()
        });
        let mut nodes: Vec<u32> = bound.map(Extent::node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        warnings.extend(
            nodes
                .into_iter()
                .map(|node| PlanWarning::BoundOnTouch { node }),
        );
    }
    let mut remote: Vec<u32> = plan
        .workers
        .iter()
        .filter(|worker| worker.remote())
        .map(|worker| worker.node())
        .collect();
    remote.dedup();
    warnings.extend(
        remote
            .into_iter()
            .map(|node| PlanWarning::RemoteWorkers { node }),
    );
    if !host.topology_known && !plan.workers.is_empty() {
        warnings.push(PlanWarning::Unpinned);
    }
    warnings
}
