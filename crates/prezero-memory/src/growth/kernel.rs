//! The kernel's files: how many pages the pools have, and how many they shall have.

use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use prezero_host::{Host, PageSize};

use super::error::GrowError;

/// How much the kernel is asked to do for pages that it does not find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Effort {
    /// What it does by itself.
    Allocate,
    /// Move pages together first.
    Compact,
    /// Forget the clean page cache first, then compact.
    DropCaches,
}

/// What growing needs of a kernel.
pub(super) trait Kernel: fmt::Debug {
    /// The counters, and the memory that is left.
    fn facts(&self) -> Host;
    /// Sets the size of a pool, without the surplus pages, to `pages`. Getting fewer is not an
    /// error.
    fn set(&self, page: PageSize, node: Option<u32>, pages: u64) -> Result<(), GrowError>;
    /// Makes room for large pages.
    fn make_room(&self, effort: Effort);
}

/// The kernel behind `/proc` and `/sys` below a root directory.
#[derive(Clone, Debug)]
pub(super) struct Sysfs {
    root: PathBuf,
}

impl Sysfs {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.into() }
    }

    /// The directory of a pool. A kernel without NUMA has no directories of nodes, and one node.
    pub(super) fn pool(&self, page: PageSize, node: Option<u32>) -> PathBuf {
        let size = format!("hugepages-{}kB", page.bytes() >> 10);
        let nodes = self.root.join("sys/devices/system/node");
        match node {
            Some(node) if nodes.is_dir() => nodes.join(format!("node{node}/hugepages/{size}")),
            _ => self.root.join("sys/kernel/mm/hugepages").join(size),
        }
    }
}

impl Kernel for Sysfs {
    fn facts(&self) -> Host {
        Host::read(&self.root)
    }

    fn set(&self, page: PageSize, node: Option<u32>, pages: u64) -> Result<(), GrowError> {
        let path = self.pool(page, node).join("nr_hugepages");
        // Without O_CREAT and O_TRUNC, which sysfs ignores and a wrong path would not.
        OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|mut file| file.write_all(pages.to_string().as_bytes()))
            .map_err(GrowError::file("write", path))
    }

    /// Best effort: a kernel may lack the files (Documentation/admin-guide/sysctl/vm.rst).
    fn make_room(&self, effort: Effort) {
        let trigger = |file: &str| {
            let path = self.root.join("proc/sys/vm").join(file);
            if let Ok(mut file) = OpenOptions::new().write(true).open(path) {
                let _ = file.write_all(b"1");
            }
        };
        if effort >= Effort::DropCaches {
            trigger("drop_caches");
        }
        if effort >= Effort::Compact {
            trigger("compact_memory");
        }
    }
}

/// The persistent pages of each node: `nr_hugepages` counts the surplus ones too, but what is
/// written to it does not.
pub(super) fn persistent(host: &Host, page: PageSize) -> Vec<(u32, u64)> {
    let of_node = |node: &prezero_host::Node| {
        let pool = node.pool(page)?;
        Some((node.id, pool.total.saturating_sub(pool.surplus)))
    };
    host.nodes.iter().filter_map(of_node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const HOST: &str = "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
    const NODE: &str = "sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages";

    /// What the files hold after setting the pool of the host to 5 and that of node 1 to 6.
    fn written(files: &[&str]) -> Vec<String> {
        let root = tempfile::tempdir().expect("temporary directory");
        for file in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().expect("below the root")).expect("created");
            fs::write(path, "0").expect("written");
        }
        let kernel = Sysfs::new(root.path());
        for (node, pages) in [(None, 5), (Some(1), 6)] {
            kernel
                .set(PageSize::HUGE_2M, node, pages)
                .expect("it is there");
        }
        let elsewhere = kernel.set(PageSize::HUGE_1G, None, 1);
        elsewhere.expect_err("there is no such pool, and none is made");
        let read = |file| fs::read_to_string(root.path().join(file)).expect("readable");
        files.iter().map(read).collect()
    }

    #[test]
    fn a_node_s_pool_has_a_file_of_its_own_where_there_are_nodes() {
        assert_eq!(written(&[HOST, NODE]), ["5", "6"]);
        assert_eq!(written(&[HOST]), ["6"]);
    }
}
