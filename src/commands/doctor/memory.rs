//! What was asked for, as `plan` sees it.

use prezero_host::{Host, PageSize};
use prezero_memory::{GuestRam, Plan, PlanWarning};

use super::Case;
use crate::report::doctor::Finding;
use crate::report::facts::Region;

pub(super) const NAME: &str = "memory";

/// Nothing where nothing was asked for.
pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    match &case.planned {
        None => Vec::new(),
        Some(Ok(plan)) => fits(case.host, plan),
        Some(Err(failure)) => {
            let failure = crate::failure::Failure {
                class: failure.class,
                message: failure.message.clone(),
                fix: failure.fix.clone(),
            };
            vec![Finding::problem(NAME, failure, "prezero plan --help")]
        }
    }
}

fn fits(host: &Host, plan: &Plan) -> Vec<Finding> {
    let regions: Vec<String> = Region::joined(&Region::of(plan))
        .iter()
        .map(Region::describe)
        .collect();
    let mut found = vec![Finding::ok(NAME, regions.join("; "))];
    for warning in plan.warnings() {
        let (message, fix) = match warning {
            PlanWarning::Ordinary { shortage } => (
                format!("Using ordinary memory instead of hugepages: {shortage}"),
                shortage.fix().unwrap_or_else(|| "hugepages=off".to_owned()),
            ),
            PlanWarning::ThreadsRaised { planned, .. } => {
                (warning.to_string(), format!("--threads {planned}"))
            }
            PlanWarning::Overflow { page, .. } => (warning.to_string(), free_of_nodes(*page)),
            PlanWarning::RemoteWorkers { .. } => (warning.to_string(), node_with_cpus(host)),
            PlanWarning::BoundOnTouch { .. } => (warning.to_string(), "--prealloc".to_owned()),
            PlanWarning::Unpinned => (
                warning.to_string(),
                "sudo mount -t sysfs sysfs /sys".to_owned(),
            ),
            _ => (warning.to_string(), "prezero plan --help".to_owned()),
        };
        found.push(Finding::warning(NAME, message, fix));
    }
    found
}

/// What each node has.
fn free_of_nodes(page: PageSize) -> String {
    let kib = page.bytes() / 1024;
    match page > PageSize::BASE {
        true => format!(
            "grep . /sys/devices/system/node/node*/hugepages/hugepages-{kib}kB/free_hugepages"
        ),
        false => "grep MemFree /sys/devices/system/node/node*/meminfo".to_owned(),
    }
}

/// Whether the files that were planned can be made, by trying.
pub(super) fn paths(case: &Case<'_>) -> Vec<Finding> {
    const NAME: &str = "path";
    let Some(plan) = case
        .plan()
        .filter(|plan| plan.slots().iter().any(|slot| slot.dir().is_some()))
    else {
        return Vec::new();
    };
    vec![match GuestRam::try_paths(plan) {
        Ok(()) => Finding::ok(NAME, "Files can be made where path= says"),
        Err(error) => Finding::problem(NAME, error.into(), "prezero plan --help"),
    }]
}

/// Whether the policies that were planned are allowed, by trying.
pub(super) fn policies(case: &Case<'_>) -> Vec<Finding> {
    const NAME: &str = "policy";
    let asked = |plan: &&Plan| {
        let mut fresh = plan.extents().filter(|extent| extent.segment().is_none());
        fresh.any(|extent| extent.policy().is_some())
    };
    let Some(plan) = case.plan().filter(asked) else {
        return Vec::new();
    };
    vec![match GuestRam::try_policies(plan) {
        Ok(()) => Finding::ok(NAME, "Memory policies are allowed"),
        Err(error) => Finding::problem(NAME, error.into(), "prezero plan --help"),
    }]
}

/// Where memory is populated by CPUs of its own node.
fn node_with_cpus(host: &Host) -> String {
    let mut nodes = host.nodes.iter();
    let usable = nodes.find(|node| {
        let has_memory = node.mem_total != Some(0) && host.allowed_nodes.contains(node.id);
        has_memory && !node.cpus.intersection(&host.allowed_cpus).is_empty()
    });
    match usable {
        Some(node) => format!("host_numa_node={}", node.id),
        None => "grep Cpus_allowed_list /proc/self/status".to_owned(),
    }
}

/// Files that are there and were not understood: a fact is missing.
pub(super) fn unread_files(host: &Host) -> Vec<Finding> {
    let problems = host.problems.iter();
    let found = problems.map(|problem| {
        let fix = format!("sudo cat {}", problem.path.display());
        Finding::warning("files", problem.to_string(), fix)
    });
    found.collect()
}
