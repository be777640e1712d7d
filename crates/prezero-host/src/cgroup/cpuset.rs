//! Which memory nodes control groups leave to this process.

use std::path::PathBuf;

use super::{Cgroups, read};
use crate::id_set::IdSet;
use crate::root::Root;

/// The memory nodes that this process's cgroup or one of its parents allows (`cpuset.mems`).
///
/// Which nodes remain after all of them is [`Host::allowed_nodes`](crate::Host::allowed_nodes).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpuset {
    /// The file, on the machine described: allowing another node means writing there.
    pub file: PathBuf,
    /// The nodes; none where version 2 leaves it to the parent.
    pub mems: IdSet,
}

/// This process's group first.
pub(crate) fn cpusets(root: &mut Root, cgroups: &Cgroups<'_>) -> Vec<Cpuset> {
    let groups = cgroups.groups(root, "cpuset").into_iter();
    let files = groups.map(|group| group.dir.join("cpuset.mems"));
    files
        .filter_map(|file| {
            let mems = read(root, &file, |text| text.parse().ok())?;
            Some(Cpuset { file, mems })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::Host;
    use crate::root::with_files;

    fn found(files: &[(&str, &str)]) -> Vec<(String, String)> {
        let host = Host::read(with_files(files).path());
        let cpusets = host.cpusets.iter();
        cpusets
            .map(|set| (set.file.display().to_string(), set.mems.to_string()))
            .collect()
    }

    #[test]
    fn a_group_that_leaves_it_to_its_parent_allows_no_node_itself() {
        let files = [
            ("proc/self/cgroup", "0::/a/b\n"),
            (
                "proc/self/mountinfo",
                "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            ),
            ("sys/fs/cgroup/a/b/cpuset.mems", "\n"),
            ("sys/fs/cgroup/a/cpuset.mems", "0,2-3\n"),
        ];
        let expected = [("a/b", ""), ("a", "0,2-3")].map(|(group, mems)| {
            let file = format!("/sys/fs/cgroup/{group}/cpuset.mems");
            (file, mems.to_owned())
        });
        assert_eq!(found(&files), expected);
    }

    #[test]
    fn version_1_has_a_hierarchy_of_its_own() {
        let files = [
            ("proc/self/cgroup", "7:cpuset:/vm\n4:cpu:/other\n"),
            (
                "proc/self/mountinfo",
                "30 23 0:26 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n",
            ),
            ("sys/fs/cgroup/cpuset/vm/cpuset.mems", "1\n"),
            ("sys/fs/cgroup/cpuset/cpuset.mems", "0-1\n"),
        ];
        let nodes: Vec<String> = found(&files).into_iter().map(|(_, mems)| mems).collect();
        assert_eq!(nodes, ["1", "0-1"]);
    }
}
