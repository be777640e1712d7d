//! A cgroup v2 group with limits on hugepages (Documentation/admin-guide/cgroup-v2.rst, HugeTLB).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// A group below the root of the hierarchy, removed on drop, and the controller switched off again if it was off.
#[derive(Debug)]
pub(crate) struct Group {
    dir: PathBuf,
    switched_on: Option<PathBuf>,
}

impl Group {
    /// Fails where there is no such hierarchy, controller or permission.
    pub(crate) fn new() -> io::Result<Self> {
        let root = hierarchy()?;
        let has = |file: &str| -> io::Result<bool> {
            let names = fs::read_to_string(root.join(file))?;
            Ok(names.split_whitespace().any(|name| name == "hugetlb"))
        };
        if !has("cgroup.controllers")? {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "no hugetlb controller",
            ));
        }
        let control = root.join("cgroup.subtree_control");
        let dir = root.join(format!("prezero-memory-{}", std::process::id()));
        let was_on = has("cgroup.subtree_control")?;
        fs::create_dir(&dir)?;
        let mut group = Self {
            dir,
            switched_on: None,
        };
        if !was_on {
            fs::write(&control, "+hugetlb")?;
            group.switched_on = Some(control);
        }
        Ok(group)
    }

    /// A group below this one, which hands its controller on.
    pub(crate) fn inner(&self) -> Self {
        self.set("cgroup.subtree_control", "+hugetlb");
        let dir = self.dir.join("inner");
        fs::create_dir(&dir).expect("a new group");
        Self {
            dir,
            switched_on: None,
        }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn set(&self, file: &str, value: &str) {
        let path = self.dir.join(file);
        fs::write(&path, value).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    }

    pub(crate) fn get(&self, file: &str) -> String {
        let path = self.dir.join(file);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        text.trim().to_owned()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that has just ended may still be in it.
        for _ in 0..200 {
            match fs::remove_dir(&self.dir) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    thread::sleep(Duration::from_millis(5));
                }
                _ => break,
            }
        }
        if let Some(control) = &self.switched_on {
            let _ = fs::write(control, "-hugetlb");
        }
    }
}

fn hierarchy() -> io::Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let mount = mounts
        .lines()
        .find(|line| line.contains(" - cgroup2 "))
        .and_then(|line| line.split_whitespace().nth(4));
    let missing = || io::Error::new(io::ErrorKind::NotFound, "no cgroup2 mount");
    mount.map(PathBuf::from).ok_or_else(missing)
}
