//! Whatever the host and the request, a plan can be carried out, and a refusal is true.

#[path = "planning/generate.rs"]
mod generate;
#[path = "planning/layout.rs"]
mod layout;
#[path = "planning/limits.rs"]
mod limits;
#[path = "planning/refusal.rs"]
mod refusal;
#[path = "planning/workforce.rs"]
mod workforce;

use std::collections::BTreeMap;

use prezero_memory::{Backing, Extent, Host, Plan, PlanError, PlanWarning, Policy, Request, plan};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{TestCaseError, TestRunner};

use generate::host_and_request;

/// Runs `check` on every plan that is made.
fn planned(
    host: &Host,
    request: &Request,
    check: impl FnOnce(&Plan) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    plan(host, request).map_or(Ok(()), |plan| check(&plan))
}

/// Runs `check` on every refusal.
fn refused(
    host: &Host,
    request: &Request,
    check: impl FnOnce(&PlanError) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    plan(host, request)
        .err()
        .map_or(Ok(()), |error| check(&error))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn slots_have_a_place_in_the_guests_address_space((host, request) in host_and_request()) {
        planned(&host, &request, |plan| layout::slots_have_a_place(&host, plan))?;
    }

    #[test]
    fn extents_fill_their_slots_in_whole_pages((host, request) in host_and_request()) {
        planned(&host, &request, layout::extents_fill_their_slots)?;
    }

    #[test]
    fn zones_are_made_of_what_was_asked_for((host, request) in host_and_request()) {
        planned(&host, &request, |plan| layout::zones_are_as_asked(&host, &request, plan))?;
    }

    #[test]
    fn memory_is_on_nodes_that_the_process_may_use((host, request) in host_and_request()) {
        planned(&host, &request, |plan| layout::nodes_are_usable(&host, plan))?;
    }

    #[test]
    fn no_plan_takes_hugepages_that_are_not_there((host, request) in host_and_request()) {
        planned(&host, &request, |plan| layout::hugepages_are_there(&host, plan))?;
    }

    #[test]
    fn no_plan_is_above_a_limit((host, request) in host_and_request()) {
        planned(&host, &request, |plan| limits::limits_are_kept(&host, plan))?;
    }

    #[test]
    fn workers_are_where_memory_is((host, request) in host_and_request()) {
        planned(&host, &request, |plan| workforce::workers_are_where_memory_is(&request, plan))?;
    }

    #[test]
    fn workers_are_on_cpus_that_they_may_use((host, request) in host_and_request()) {
        planned(&host, &request, |plan| workforce::workers_are_on_usable_cpus(&host, &request, plan))?;
    }

    #[test]
    fn the_number_of_workers_is_bounded((host, request) in host_and_request()) {
        planned(&host, &request, |plan| workforce::worker_count_is_bounded(&host, &request, plan))?;
    }

    #[test]
    fn the_numbers_of_a_refusal_are_true((host, request) in host_and_request()) {
        refused(&host, &request, |error| refusal::numbers_are_true(&host, &request, error))?;
    }

    #[test]
    fn the_advice_of_a_refusal_leads_on((host, request) in host_and_request()) {
        refused(&host, &request, |error| refusal::advice_leads_on(&host, &request, error))?;
    }

    /// Zones that name their page size, and nodes that are there, leave nothing to choose but the nodes of the other
    /// zones: then "short" means that no choice would do.
    #[test]
    fn short_is_only_what_no_choice_of_nodes_could_help((host, request) in host_and_request()) {
        let request = refusal::only_hugepages(&host, request);
        refused(&host, &request, |error| refusal::shortage_is_unavoidable(&host, &request, error))?;
    }

    #[test]
    fn the_same_facts_make_the_same_plan((host, request) in host_and_request()) {
        prop_assert_eq!(plan(&host, &request), plan(&host.clone(), &request.clone()));
    }
}

/// The properties above say nothing about a kind of plan or refusal that is never drawn.
#[test]
fn the_generator_reaches_every_kind_of_plan_and_refusal() {
    let mut runner = TestRunner::deterministic();
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..3000 {
        let (host, request) = host_and_request().new_tree(&mut runner).unwrap().current();
        for kind in kinds(&plan(&host, &request)) {
            *seen.entry(kind).or_default() += 1;
        }
    }
    for (kind, least) in [
        ("plan", 250),
        ("memfd", 90),
        ("thp", 90),
        ("base", 90),
        ("several nodes", 50),
        ("bind to several", 5),
        ("preferred", 20),
        ("overflow", 4),
        ("interleave", 20),
        ("several slots", 150),
        ("remote", 25),
        ("unpinned", 10),
        ("fallback", 80),
        ("threads raised", 3),
        ("hugetlbfs", 10),
        ("Limit", 25),
        ("NotHugetlbfs", 30),
        ("ReadOnlyMount", 5),
        ("MountPageSize", 10),
        ("DuplicateId", 5),
        ("Nothing", 10),
        ("NotWholePages", 50),
        ("Layout", 50),
        ("PageSizeMissing", 40),
        ("NoHugepages", 50),
        ("Short", 50),
        ("ShortNodes", 20),
        ("ShortOfMemory", 30),
        ("NoSuchNode", 30),
        ("NodeWithoutMemory", 10),
        ("NodeNotAllowed", 20),
        ("KernelTooOld", 5),
        ("NoCpu", 20),
        ("NoThreads", 10),
    ] {
        let count = seen.get(kind).copied().unwrap_or(0);
        assert!(
            count >= least,
            "{kind}: {count} of at least {least}; {seen:?}"
        );
    }
}

fn kinds(planned: &Result<Plan, PlanError>) -> Vec<String> {
    let plan = match planned {
        Ok(plan) => plan,
        Err(error) => {
            let debug = format!("{error:?}");
            let name = debug.split([' ', '(', '{']).next().unwrap_or_default();
            return vec![name.to_owned()];
        }
    };
    let mut nodes: Vec<u32> = plan.extents().map(|extent| extent.node()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let has = |backing| plan.extents().any(|extent| extent.backing() == backing);
    let of_policy = |policy| move |extent: &&Extent| extent.policy() == Some(policy);
    let of = |policy| plan.extents().filter(of_policy(policy));
    let mut bound: Vec<u32> = of(Policy::Bind).map(Extent::node).collect();
    bound.dedup();
    let warned = |of: fn(&PlanWarning) -> bool| plan.warnings().iter().any(of);
    [
        ("plan", true),
        ("memfd", has(Backing::Memfd)),
        ("hugetlbfs", has(Backing::Hugetlbfs)),
        ("thp", has(Backing::Thp)),
        ("base", has(Backing::Base)),
        ("several nodes", nodes.len() > 1),
        ("bind to several", bound.len() > 1),
        ("preferred", of(Policy::Preferred).count() > 0),
        (
            "overflow",
            warned(|w| matches!(w, PlanWarning::Overflow { .. })),
        ),
        ("interleave", of(Policy::Interleave).count() > 0),
        ("several slots", plan.slots().len() > 1),
        (
            "remote",
            warned(|w| matches!(w, PlanWarning::RemoteWorkers { .. })),
        ),
        ("unpinned", warned(|w| matches!(w, PlanWarning::Unpinned))),
        (
            "fallback",
            warned(|w| matches!(w, PlanWarning::Ordinary { .. })),
        ),
        (
            "threads raised",
            warned(|w| matches!(w, PlanWarning::ThreadsRaised { .. })),
        ),
    ]
    .into_iter()
    .filter(|(_, seen)| *seen)
    .map(|(kind, _)| kind.to_owned())
    .collect()
}
