//! The directories of a pool: opened without following links, and only if nobody else can change them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use prezero_host::{Host, PageSize};
use rustix::fs::{CWD, Dir, Mode, OFlags, fchmod, fstat, mkdirat, openat};
use rustix::io::Errno;

use super::Pool;
use super::error::PoolError;
use super::exchange_only::MARKER;
use super::problem::{Owned, Problem, ProblemKind};
use crate::sys;

/// The directory of one node's segments.
#[derive(Debug)]
pub(super) struct NodeDir {
    pub(super) node: u32,
    pub(super) path: PathBuf,
    pub(super) fd: OwnedFd,
}

/// `node` and the node's number, as sysfs writes it.
pub(super) fn node_name(node: u32) -> String {
    format!("node{node}")
}

pub(super) fn node_of(name: &str) -> Option<u32> {
    let node = name.strip_prefix("node")?.parse().ok()?;
    (node_name(node) == name).then_some(node)
}

/// Whether this host has a node (Documentation/ABI/stable/sysfs-devices-node). A kernel that knows of none has
/// what others call node 0.
pub(super) fn host_has_node(node: u32) -> bool {
    let nodes = Path::new("/sys/devices/system/node");
    match nodes.is_dir() {
        true => nodes.join(node_name(node)).is_dir(),
        false => node == 0,
    }
}

/// A pool with the name of a node's directory would be one that was taken for it: `DIR/node0` instead of `DIR`.
fn refuse_node_directory(path: &Path) -> Result<(), PoolError> {
    let name = path.file_name().and_then(|name| name.to_str());
    match name.and_then(node_of) {
        Some(_) => Err(PoolError::NodeDirectory(path.to_owned())),
        None => Ok(()),
    }
}

pub(super) fn directory_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// The page size of a hugetlbfs mount, or `None` for another file system.
pub(super) fn hugetlbfs_page(fd: BorrowedFd<'_>) -> io::Result<Option<PageSize>> {
    let mount = sys::statfs(fd)?;
    let page = u64::try_from(mount.f_bsize).ok().and_then(PageSize::new);
    Ok(page.filter(|_| mount.f_type == libc::HUGETLBFS_MAGIC))
}

/// Opens a pool's directory, and says what its files must be like.
pub(super) fn open(path: &Path) -> Result<(OwnedFd, Owned), PoolError> {
    refuse_node_directory(path)?;
    let opened = openat(CWD, path, directory_flags(), Mode::empty());
    let dir = opened.map_err(|errno| match errno {
        Errno::NOENT => PoolError::Missing(path.to_owned()),
        _ => PoolError::io("open", path)(errno.into()),
    })?;
    let failed = PoolError::io("look at", path);
    let page = hugetlbfs_page(dir.as_fd()).map_err(&failed)?;
    let facts = fstat(&dir).map_err(|errno| failed(errno.into()))?;
    let owned = Owned {
        device: facts.st_dev,
        user: sys::user(),
        page: page.ok_or_else(|| PoolError::not_hugetlbfs(path, &Host::probe()))?,
    };
    owned.check_directory(&facts).map_err(|kind| {
        let path = path.to_owned();
        PoolError::Untrusted(Problem { path, kind })
    })?;
    Ok((dir, owned))
}

/// Makes a pool's directory if it is missing: on a hugetlbfs mount of `page`, or not at all.
pub(super) fn make(path: &Path, page: PageSize, host: &Host) -> Result<(), PoolError> {
    refuse_node_directory(path)?;
    let name = path.file_name();
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // The parent may be a link: it is the operator's word where the pool is to be.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat(CWD, parent, flags, Mode::empty());
    let Some((name, parent_dir)) = name.zip(opened.ok()) else {
        return match path.exists() {
            // A mount point's root, for instance.
            true => Ok(()),
            false => Err(PoolError::not_hugetlbfs(path, host)),
        };
    };
    if openat(
        &parent_dir,
        name,
        directory_flags() | OFlags::PATH,
        Mode::empty(),
    )
    .is_ok()
    {
        return Ok(());
    }
    let failed = PoolError::io("create", path);
    match hugetlbfs_page(parent_dir.as_fd()).map_err(&failed)? {
        Some(found) if found == page => {}
        Some(found) => {
            return Err(PoolError::PageSize {
                path: path.to_owned(),
                page: found,
                asked: page,
            });
        }
        None => return Err(PoolError::not_hugetlbfs(path, host)),
    }
    make_at(parent_dir.as_fd(), &name.to_string_lossy()).map_err(failed)
}

/// mkdirat(2) with mode 0700, whatever the umask; one that is there already is left as it is.
fn make_at(parent: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    match mkdirat(parent, name, Mode::RWXU) {
        Ok(()) => {
            let made = openat(parent, name, directory_flags(), Mode::empty())?;
            Ok(fchmod(made, Mode::RWXU)?)
        }
        Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

impl Pool {
    /// Opens a node's directory, made if it is missing.
    pub(super) fn make_node_dir(&self, node: u32) -> Result<NodeDir, PoolError> {
        let name = node_name(node);
        let path = self.path.join(&name);
        make_at(self.dir.as_fd(), &name).map_err(PoolError::io("create", &path))?;
        self.open_node_dir(node)
            .map_err(|kind| PoolError::Untrusted(Problem { path, kind }))
    }

    fn open_node_dir(&self, node: u32) -> Result<NodeDir, ProblemKind> {
        let name = node_name(node);
        let unreadable = |errno: Errno| ProblemKind::Unreadable {
            errno: errno.raw_os_error(),
        };
        let fd = openat(&self.dir, &*name, directory_flags(), Mode::empty());
        let fd = fd.map_err(|errno| match errno {
            Errno::NOTDIR | Errno::LOOP => ProblemKind::UnknownName,
            _ => unreadable(errno),
        })?;
        self.owned
            .check_directory(&fstat(&fd).map_err(unreadable)?)?;
        // Made on another host, or by hand: nothing says where its pages are.
        if !(self.has_node)(node) {
            return Err(ProblemKind::NoSuchNode { node });
        }
        let path = self.path.join(name);
        Ok(NodeDir { node, path, fd })
    }

    /// The directories of all nodes, lowest first, and what else is there.
    pub(super) fn node_dirs(&self) -> Result<(Vec<NodeDir>, Vec<Problem>), PoolError> {
        let (mut dirs, mut problems) = (Vec::new(), Vec::new());
        let mut found = names(self.dir.as_fd()).map_err(PoolError::io("read", &self.path))?;
        found.retain(|name| name != MARKER);
        for name in found {
            let opened = match node_of(&name) {
                Some(node) => self.open_node_dir(node),
                None => Err(ProblemKind::UnknownName),
            };
            match opened {
                Ok(dir) => dirs.push(dir),
                Err(kind) => problems.push(Problem {
                    path: self.path.join(name),
                    kind,
                }),
            }
        }
        dirs.sort_by_key(|dir| dir.node);
        Ok((dirs, problems))
    }
}

/// The names in a directory, without `.` and `..`. What is not UTF-8 is no name of ours, shown as it can be.
pub(super) fn names(dir: BorrowedFd<'_>) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_one_spelling() {
        assert_eq!(node_of("node12"), Some(12));
        for odd in ["node", "node01", "node+1", "Node1", "node1 ", "nod1"] {
            assert_eq!(node_of(odd), None, "{odd}");
        }
    }
}
