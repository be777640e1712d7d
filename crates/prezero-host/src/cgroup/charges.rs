//! Who pays for hugepages: the cgroups that they are charged to.

use std::fs;
use std::path::{Path, PathBuf};

use super::limits::size_in_names;
use super::{Cgroups, Group, Version};
use crate::mountinfo;
use crate::page_size::PageSize;
use crate::root::Root;

/// Hugepages of one size that a cgroup pays for itself: what its children pay for is not counted.
///
/// A page is charged to the cgroup of the process that faulted it in, and stays so as long as it is in a
/// file, whoever maps it then. The charges of a cgroup that is removed go to its parent
/// (`hugetlb_cgroup_css_offline` in the kernel's `mm/hugetlb_cgroup.c`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HugetlbCharge {
    /// The cgroup's directory.
    pub cgroup: PathBuf,
    /// Bytes.
    pub bytes: u64,
}

impl HugetlbCharge {
    /// The charges of all cgroups that can be seen on the machine whose `/proc` and `/sys` are in `root`,
    /// by path; those without any are left out. Pages of the root cgroup are counted by nobody.
    #[must_use]
    pub fn all(root: &Path, page_size: PageSize) -> Vec<Self> {
        let mut charges = Vec::new();
        for group in hierarchies(root) {
            walk(
                root,
                &group.dir,
                &file_name(&group, page_size),
                &mut charges,
            );
        }
        charges.sort_by(|a, b| a.cgroup.cmp(&b.cgroup));
        charges
    }

    /// The cgroup that pays for the hugepages of this size that this process takes: its own, or the
    /// nearest parent with the controller. None where that is the root cgroup, or cannot be seen.
    #[must_use]
    pub fn payer(root: &Path, page_size: PageSize) -> Option<PathBuf> {
        let mut host = Root::new(root);
        let groups = own_groups(&mut host);
        let counts = |group: &Group| {
            host.join(group.dir.join(file_name(group, page_size)))
                .exists()
        };
        groups.into_iter().find(counts).map(|group| group.dir)
    }
}

/// This process's groups that may have the controller, each with its parents, nearest first.
fn own_groups(root: &mut Root) -> Vec<Group> {
    let own = root.own_directory();
    let read = |root: &mut Root, name| root.unrecorded_text(format!("{own}/{name}"));
    let cgroup = read(root, "cgroup").unwrap_or_default();
    let mountinfo = read(root, "mountinfo").unwrap_or_default();
    let (mounts, _) = mountinfo::parse(&mountinfo);
    Cgroups::new(&cgroup, &mounts).groups(root, "hugetlb")
}

/// The topmost group that can be seen of each hierarchy.
fn hierarchies(root: &Path) -> Vec<Group> {
    let groups = own_groups(&mut Root::new(root));
    let is_top = |group: &&Group| {
        let mut others = groups.iter();
        !others.any(|other| other.dir != group.dir && group.dir.starts_with(&other.dir))
    };
    let tops: Vec<PathBuf> = groups
        .iter()
        .filter(is_top)
        .map(|g| g.dir.clone())
        .collect();
    let mut groups = groups;
    groups.retain(|group| tops.contains(&group.dir));
    groups
}

fn file_name(group: &Group, page_size: PageSize) -> String {
    let usage = match group.version {
        Version::V1 => "usage_in_bytes",
        Version::V2 => "current",
    };
    format!("hugetlb.{}.{usage}", size_in_names(page_size))
}

/// Adds the charges of a group and of all below it, and returns what they are together.
fn walk(root: &Path, group: &Path, file: &str, charges: &mut Vec<HugetlbCharge>) -> Option<u64> {
    // An absolute path would replace the root.
    let dir = root.join(group.strip_prefix("/").unwrap_or(group));
    let text = fs::read_to_string(dir.join(file)).ok();
    let own: Option<u64> = text.and_then(|text| text.trim().parse().ok());
    // The file says what the group and its children have: without any, none of them needs a look.
    if own == Some(0) {
        return own;
    }
    let mut below = 0;
    for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
        // A group without the controller has no children with it, but the topmost has no such file.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let child = group.join(entry.file_name());
            below += walk(root, &child, file, charges).unwrap_or(0);
        }
    }
    // Read one after the other, the figures need not add up.
    let bytes = own?.saturating_sub(below);
    if bytes > 0 {
        let cgroup = group.to_owned();
        charges.push(HugetlbCharge { cgroup, bytes });
    }
    own
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::with_files;

    const MOUNT: (&str, &str) = (
        "proc/self/mountinfo",
        "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    );

    fn charge(cgroup: &str, bytes: u64) -> HugetlbCharge {
        HugetlbCharge {
            cgroup: cgroup.into(),
            bytes,
        }
    }

    #[test]
    fn each_group_is_charged_for_what_its_children_are_not() {
        let dir = with_files(&[
            ("proc/self/cgroup", "0::/a/b\n"),
            MOUNT,
            ("sys/fs/cgroup/a/hugetlb.2MB.current", "10\n"),
            ("sys/fs/cgroup/a/hugetlb.1GB.current", "1000\n"),
            ("sys/fs/cgroup/a/b/hugetlb.2MB.current", "4\n"),
            ("sys/fs/cgroup/a/b/c/hugetlb.2MB.current", "4\n"),
            ("sys/fs/cgroup/d/hugetlb.2MB.current", "0\n"),
            ("sys/fs/cgroup/e/no", ""),
        ]);
        let found = HugetlbCharge::all(dir.path(), PageSize::HUGE_2M);
        let a = "/sys/fs/cgroup/a";
        assert_eq!(found, [charge(a, 6), charge(&format!("{a}/b/c"), 4)]);
        let found = HugetlbCharge::all(dir.path(), PageSize::HUGE_1G);
        assert_eq!(found, [charge(a, 1000)]);
    }

    #[test]
    fn the_nearest_group_with_the_controller_pays() {
        let files = [
            ("proc/self/cgroup", "0::/a/b\n"),
            MOUNT,
            ("sys/fs/cgroup/a/hugetlb.2MB.current", "0\n"),
            ("sys/fs/cgroup/a/b/cgroup.procs", ""),
        ];
        let dir = with_files(&files);
        let payer = |size| HugetlbCharge::payer(dir.path(), size);
        assert_eq!(payer(PageSize::HUGE_2M), Some("/sys/fs/cgroup/a".into()));
        assert_eq!(payer(PageSize::HUGE_1G), None);
    }

    #[test]
    fn version_1_has_another_file() {
        let dir = with_files(&[
            ("proc/self/cgroup", "5:hugetlb:/x\n0::/y\n"),
            (
                "proc/self/mountinfo",
                "30 23 0:26 / /sys/fs/cgroup/hugetlb rw - cgroup cgroup rw,hugetlb\n",
            ),
            (
                "sys/fs/cgroup/hugetlb/x/hugetlb.2MB.usage_in_bytes",
                "2097152\n",
            ),
            (
                "sys/fs/cgroup/hugetlb/hugetlb.2MB.usage_in_bytes",
                "6291456\n",
            ),
        ]);
        let top = "/sys/fs/cgroup/hugetlb";
        let found = HugetlbCharge::all(dir.path(), PageSize::HUGE_2M);
        assert_eq!(
            found,
            [charge(top, 4 << 20), charge(&format!("{top}/x"), 2 << 20)]
        );
        let payer = HugetlbCharge::payer(dir.path(), PageSize::HUGE_2M);
        assert_eq!(payer, Some(Path::new(top).join("x")));
    }
}
