//! Other names for the paths that may say whose machine it is.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use crate::cgroup::CONTROLLERS;

/// Gives cgroups and mount points other names: every path component its own and always the same, so
/// that what lies below what stays visible.
#[derive(Debug, Default)]
pub(crate) struct Pseudonyms {
    groups: HashMap<OsString, String>,
    points: HashMap<OsString, String>,
}

impl Pseudonyms {
    /// A path of cgroups: every component becomes `c1`, `c2`, …
    pub(crate) fn group(&mut self, path: &Path) -> PathBuf {
        rename(path, |name| pseudonym(&mut self.groups, "c", name))
    }

    /// A mount point: components that machines have in common stay, others become `m1`, `m2`, …
    pub(crate) fn mount_point(&mut self, path: &Path) -> PathBuf {
        rename(path, |name| match name.to_str() {
            Some(name) if is_common(name) => name.into(),
            _ => pseudonym(&mut self.points, "m", name),
        })
    }
}

fn rename(path: &Path, mut name: impl FnMut(&OsStr) -> String) -> PathBuf {
    let component = |component| match component {
        Component::Normal(normal) => name(normal).into(),
        other => other.as_os_str().to_owned(),
    };
    path.components().map(component).collect()
}

fn pseudonym(names: &mut HashMap<OsString, String>, letter: &str, name: &OsStr) -> String {
    let next = names.len() + 1;
    names
        .entry(name.to_owned())
        .or_insert_with(|| format!("{letter}{next}"))
        .clone()
}

/// Names of directories on the way to hugetlbfs and cgroup mounts, and `hugepages-2M`, `huge_1GB`
/// and the like.
fn is_common(name: &str) -> bool {
    const DIRECTORIES: [&str; 13] = [
        "dev", "mnt", "run", "var", "lib", "sys", "fs", "cgroup", "unified", "cpuacct", "libvirt",
        "kvm", "qemu",
    ];
    const HUGE: [&str; 4] = ["hugepages", "hugetlbfs", "hugetlb", "huge"];
    let is_directory = |name| DIRECTORIES.contains(&name) || CONTROLLERS.contains(&name);
    let is_sized = |stem| name.strip_prefix(stem).is_some_and(is_size_suffix);
    name.split(',').all(is_directory) || HUGE.into_iter().any(is_sized)
}

fn is_size_suffix(suffix: &str) -> bool {
    let size = suffix.strip_prefix(['-', '_']).unwrap_or(suffix);
    let unit = size.trim_start_matches(|digit: char| digit.is_ascii_digit());
    let units = ["", "k", "m", "g", "kb", "mb", "gb"];
    let known = units.contains(&unit.to_ascii_lowercase().as_str());
    suffix.is_empty() || (known && unit.len() < size.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_same_component_has_the_same_name_everywhere() {
        let mut names = Pseudonyms::default();
        let mut group = |path: &str| names.group(Path::new(path)).display().to_string();
        assert_eq!(group("/machine.slice/alice.scope"), "/c1/c2");
        assert_eq!(group("/alice.scope/machine.slice/bob"), "/c2/c1/c3");
        assert_eq!((group("/"), group("/../c2")), ("/".into(), "/../c4".into()));
    }

    #[test]
    fn only_names_that_machines_have_in_common_stay() {
        let mut names = Pseudonyms::default();
        let mut point = |path: &str| names.mount_point(Path::new(path)).display().to_string();
        for common in [
            "/dev/hugepages",
            "/dev/hugepages1G",
            "/mnt/huge_1GB",
            "/run/hugepages/kvm",
            "/mnt/hugepages-2048kB",
            "/sys/fs/cgroup/cpu,cpuacct",
        ] {
            assert_eq!(point(common), common);
        }
        assert_eq!(point("/mnt/huge-alice/2M"), "/mnt/m1/m2");
        assert_eq!(point("/home/alice/hugepages/huge-"), "/m3/m4/hugepages/m5");
        assert_eq!(point("/m1/huge-alice"), "/m6/m1");
    }

    proptest! {
        #[test]
        fn different_paths_stay_different(
            first in "(/[mc][1-3]|/dev|/a|/b){0,4}",
            second in "(/[mc][1-3]|/dev|/a|/b){0,4}",
        ) {
            let (first, second) = (Path::new(&first), Path::new(&second));
            let mut names = Pseudonyms::default();
            let points = [first, second].map(|path| names.mount_point(path));
            prop_assert_eq!(first.starts_with(second), points[0].starts_with(&points[1]));
            let groups = [first, second].map(|path| names.group(path));
            prop_assert_eq!(first.starts_with(second), groups[0].starts_with(&groups[1]));
        }
    }
}
