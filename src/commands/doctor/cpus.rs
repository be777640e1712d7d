//! The CPUs that populate memory.

use std::path::{Component, PathBuf};

use prezero_host::{CpuQuota, IdSet};

use super::Case;
use crate::report::doctor::Finding;

const NAME: &str = "cpus";

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let host = case.host;
    let online: IdSet = host.nodes.iter().flat_map(|node| &node.cpus).collect();
    let usable = online.intersection(&host.unasked_cpus());
    let message = format!(
        "{} of {} CPUs may be used ({usable})",
        usable.len(),
        online.len()
    );
    let mut found = vec![Finding::ok(NAME, message)];
    let isolated = online.intersection(&host.isolated_cpus);
    if !isolated.is_empty() {
        let message =
            format!("CPUs {isolated} are isolated: they are left alone where there are others");
        found.push(Finding::ok(NAME, message));
    }
    if !host.topology_known {
        found.push(Finding::warning(
            NAME,
            "This host does not show its NUMA topology: workers are not pinned",
            "sudo mount -t sysfs sysfs /sys",
        ));
    }
    found.extend(
        host.cpu_quota
            .as_ref()
            .and_then(|quota| tight(case, quota, usable.len())),
    );
    for node in &host.nodes {
        let id = node.id;
        let cpus = &node.cpus;
        if cpus.is_empty() {
            let message = format!("Node {id} has no CPUs: those of the nearest node populate it");
            found.push(Finding::ok(NAME, message));
        } else if cpus.intersection(&usable).is_empty() {
            found.push(Finding::warning(
                NAME,
                format!(
                    "None of node {id}'s CPUs ({cpus}) may be used: others populate it, more slowly"
                ),
                format!("sudo taskset -cp {online} $$; grep Cpus_allowed_list /proc/self/status"),
            ));
        }
    }
    found
}

/// A quota that leaves CPUs idle.
fn tight(case: &Case<'_>, quota: &CpuQuota, usable: usize) -> Option<Finding> {
    let CpuQuota {
        quota_us,
        period_us,
        cgroup,
    } = quota;
    if usize::try_from(quota.cpus()).is_ok_and(|cpus| cpus >= usable) {
        return None;
    }
    let plain = cgroup
        .components()
        .filter(|part| matches!(part, Component::Normal(_)));
    let below: PathBuf = plain.collect();
    let shown = cgroup.display();
    let fix = match case.root.join(below).join("cpu.max").exists() {
        true => format!("echo max | sudo tee {shown}/cpu.max"),
        false => format!("echo -1 | sudo tee {shown}/cpu.cfs_quota_us"),
    };
    Some(Finding::warning(
        NAME,
        format!(
            "The cgroup {shown} allows {quota_us} µs of CPU time in {period_us} µs: {} of {usable} CPUs populate",
            quota.cpus()
        ),
        fix,
    ))
}
