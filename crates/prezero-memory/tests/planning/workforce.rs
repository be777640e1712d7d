//! What every plan's workers keep to.

use std::collections::{BTreeMap, BTreeSet};

use prezero_memory::{Host, IdSet, PageSize, Plan, PlanWarning, Prealloc, Request, WorkerPlan};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

type Checked = Result<(), TestCaseError>;

/// Workers are there for exactly the nodes that have memory to populate.
pub(crate) fn workers_are_where_memory_is(request: &Request, plan: &Plan) -> Checked {
    let with_memory: BTreeSet<u32> = plan
        .extents()
        .flat_map(|extent| extent.shares().map(|(node, _)| node))
        .collect();
    let with_workers: BTreeSet<u32> = plan.workers().iter().map(WorkerPlan::node).collect();
    prop_assert_eq!(plan.prealloc(), request.prealloc);
    match request.prealloc {
        Prealloc::Off => prop_assert!(plan.workers().is_empty()),
        Prealloc::Eager => prop_assert_eq!(with_memory, with_workers),
    }
    Ok(())
}

/// The CPUs of a node that the process and the caller's list allow.
fn usable_cpus(host: &Host, request: &Request, node: u32) -> IdSet {
    let own = host.node(node).map(|node| &node.cpus);
    let cpus = own
        .map(|own| own.intersection(&host.allowed_cpus))
        .unwrap_or_default();
    let isolated = &host.isolated_cpus;
    match &request.cpus {
        Some(list) => cpus.intersection(list),
        // Isolated CPUs are for those who name them, or who may use no others.
        None if host.allowed_cpus.iter().all(|cpu| isolated.contains(cpu)) => cpus,
        None => cpus.iter().filter(|cpu| !isolated.contains(*cpu)).collect(),
    }
}

/// A worker is pinned to a usable CPU of its node, or, where there is none, of the nearest node that has one.
pub(crate) fn workers_are_on_usable_cpus(host: &Host, request: &Request, plan: &Plan) -> Checked {
    for worker in plan.workers() {
        let own = usable_cpus(host, request, worker.node());
        let lenders = host.nodes.iter();
        let lenders = lenders.filter(|node| !usable_cpus(host, request, node.id).is_empty());
        let distance = |id| host.node(worker.node()).and_then(|node| node.distance(id));
        let nearest = lenders.clone().map(|node| distance(node.id)).min();
        prop_assert_eq!(worker.remote(), own.is_empty() && nearest.is_some());
        let Some(cpu) = worker.cpu() else {
            prop_assert!(!host.topology_known || nearest.is_none(), "{:?}", worker);
            continue;
        };
        prop_assert!(host.topology_known && host.allowed_cpus.contains(cpu));
        prop_assert!(request.cpus.as_ref().is_none_or(|list| list.contains(cpu)));
        if worker.remote() {
            let mut of = lenders.filter(|node| node.cpus.contains(cpu));
            let lender = of.next().map(|node| distance(node.id));
            prop_assert_eq!(lender, nearest, "{:?}", worker);
        } else {
            prop_assert!(own.contains(cpu), "{:?}", worker);
        }
        let warned = PlanWarning::RemoteWorkers {
            node: worker.node(),
        };
        prop_assert_eq!(plan.warnings().contains(&warned), worker.remote());
    }
    Ok(())
}

/// The number of workers follows the threads asked for, else the CPUs and the CPU quota, and the pages.
pub(crate) fn worker_count_is_bounded(host: &Host, request: &Request, plan: &Plan) -> Checked {
    let mut workers: BTreeMap<u32, Vec<Option<u32>>> = BTreeMap::new();
    for worker in plan.workers() {
        workers.entry(worker.node()).or_default().push(worker.cpu());
    }
    let count = plan.workers().len();
    match (request.threads, &host.cpu_quota) {
        (Some(threads), _) => prop_assert!(count <= threads.max(workers.len())),
        (None, Some(quota)) => prop_assert!(count as u64 <= quota.cpus().max(workers.len() as u64)),
        (None, None) => {}
    }
    for (node, cpus) in &workers {
        // Ordinary memory is populated 2 MiB at a time at least.
        let mut pieces = 0;
        let shares = plan.extents().flat_map(|extent| extent.shares());
        for (_, len) in shares.filter(|(of, _)| of == node) {
            let piece = len.page_size().max(PageSize::HUGE_2M);
            pieces += len.bytes().div_ceil(piece.bytes());
        }
        prop_assert!(
            cpus.len() as u64 <= pieces,
            "{} workers on {} pieces",
            cpus.len(),
            pieces
        );
        if request.threads.is_none() && host.topology_known {
            let distinct: BTreeSet<_> = cpus.iter().collect();
            prop_assert_eq!(
                distinct.len(),
                cpus.len(),
                "two workers of node {} on one CPU",
                node
            );
        }
        // Nothing holds a worker back: then every usable CPU has one.
        let own = usable_cpus(host, request, *node).len() as u64;
        if request.threads.is_none() && host.cpu_quota.is_none() && own > 0 {
            prop_assert_eq!(cpus.len() as u64, own.min(pieces), "node {}", node);
        }
    }
    Ok(())
}
