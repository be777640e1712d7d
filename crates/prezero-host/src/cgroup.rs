//! The control groups of this process, and the limits that they set.

use std::cmp::Reverse;
use std::path::{Component, Path, PathBuf};

use crate::mountinfo::{Mount, unescape};
use crate::pseudonyms::Pseudonyms;
use crate::root::Root;

mod charges;
mod cpuset;
mod limits;
mod quota;
mod throttling;

pub use charges::HugetlbCharge;
pub use cpuset::Cpuset;
pub use limits::{HugetlbLimit, LimitKind, MemoryLimit};
pub use quota::CpuQuota;
pub use throttling::{CpuThrottling, Throttled};

pub(crate) use cpuset::cpusets;
pub(crate) use limits::{hugetlb_limits, memory_limits};
pub(crate) use quota::cpu_quota;

/// The controllers whose files are read.
pub(crate) const CONTROLLERS: [&str; 4] = ["cpu", "cpuset", "hugetlb", "memory"];

/// The option of a cgroup2 mount under which memory limits count hugetlb pages too.
pub(crate) const COUNTS_HUGETLB: &str = "memory_hugetlb_accounting";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// This process's cgroup or one of its parents, as a directory of the described machine.
#[derive(Debug)]
struct Group {
    version: Version,
    dir: PathBuf,
    counts_hugetlb: bool,
}

/// A line of `/proc/self/cgroup` (cgroups(7)).
#[derive(Debug, Clone, Copy)]
struct Membership<'a> {
    version: Version,
    id: &'a str,
    controllers: &'a str,
    group: &'a str,
}

/// What `/proc/self/cgroup` says, and the mounts that show the groups it names.
#[derive(Debug)]
pub(crate) struct Cgroups<'a> {
    memberships: Vec<Membership<'a>>,
    mounts: &'a [Mount<'a>],
}

impl<'a> Cgroups<'a> {
    pub(crate) fn new(text: &'a str, mounts: &'a [Mount<'a>]) -> Self {
        Self {
            memberships: text.lines().filter_map(membership).collect(),
            mounts,
        }
    }

    /// The lines that matter, with the groups under the names that a recording gives them.
    pub(crate) fn recorded(&self, names: &mut Pseudonyms) -> String {
        let line = |membership: &Membership<'_>| {
            let controllers: Vec<_> = used(membership.controllers).collect();
            if membership.version == Version::V1 && controllers.is_empty() {
                return None;
            }
            let group = names.group(Path::new(membership.group));
            let (id, controllers) = (membership.id, controllers.join(","));
            Some(format!("{id}:{controllers}:{}\n", group.display()))
        };
        self.memberships.iter().filter_map(line).collect()
    }

    /// The process's group in every hierarchy that can have the controller, each with its parents,
    /// nearest first. Under systemd's hybrid mode that may be one of version 1 and one of version 2,
    /// and only the files in them tell which one has the controller.
    fn groups(&self, root: &mut Root, controller: &str) -> Vec<Group> {
        let mut groups = Vec::new();
        for membership in &self.memberships {
            let version = membership.version;
            if version == Version::V1
                && !used(membership.controllers).any(|name| name == controller)
            {
                continue;
            }
            let shown = self.mounts.iter().filter_map(|mount| {
                let below = below_mount(Path::new(membership.group), &unescape(mount.root))?;
                is_hierarchy(mount, version, controller).then_some((mount, below))
            });
            // Of several mounts the one that shows the most parents counts, so that none counts twice.
            let most = shown.min_by_key(|(_, below)| Reverse(below.components().count()));
            let Some((mount, below)) = most else {
                continue;
            };
            let point = unescape(mount.point);
            for group in below.ancestors() {
                root.moved_when_recorded(&point, group);
                groups.push(Group {
                    version,
                    dir: join(&point, group),
                    counts_hugetlb: version == Version::V2
                        && mount.has_super_option(COUNTS_HUGETLB),
                });
            }
        }
        groups
    }
}

/// `4:cpu,cpuacct:/group` (version 1) or `0::/group` (version 2).
fn membership(line: &str) -> Option<Membership<'_>> {
    let mut fields = line.splitn(3, ':');
    let (id, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
    let version = match (id, controllers) {
        ("0", "") => Version::V2,
        _ => Version::V1,
    };
    Some(Membership {
        version,
        id,
        controllers,
        group,
    })
}

fn used(controllers: &str) -> impl Iterator<Item = &str> {
    controllers
        .split(',')
        .filter(|name| CONTROLLERS.contains(name))
}

fn is_hierarchy(mount: &Mount<'_>, version: Version, controller: &str) -> bool {
    match version {
        Version::V1 => mount.fs_type == "cgroup" && mount.has_super_option(controller),
        Version::V2 => mount.fs_type == "cgroup2",
    }
}

/// The group's path below the mount point, or `None` for a group that the mount does not show: a
/// container may have only its own group mounted, and a group outside the cgroup namespace starts
/// with `/..` (cgroup_namespaces(7)).
fn below_mount(group: &Path, mount_root: &Path) -> Option<PathBuf> {
    let below = group.strip_prefix(mount_root).ok()?;
    let plain = below
        .components()
        .all(|component| matches!(component, Component::Normal(_)));
    plain.then(|| below.to_owned())
}

/// Collecting drops the slash that joining an empty path leaves at the end.
pub(crate) fn join(point: &Path, group: &Path) -> PathBuf {
    point.join(group).components().collect()
}

/// What a file of a group says, or `None` after noting a problem if the file is there.
fn read<T>(root: &mut Root, path: &Path, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let text = root.text(path)?;
    root.understand(path, &text, parse)
}
