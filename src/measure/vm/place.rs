//! Where a measurement keeps its things: a directory of its own, and a hugetlbfs mount for its pool.

use std::ffi::CString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use prezero_host::{Host, PageSize};
use prezero_memory::{ByteSize, Class};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount,
};

use super::own_dir::{Dead, OwnDir, remove_dead};
use super::sys;
use crate::failure::Failure;

/// Gone with everything in it on drop; what it has mounted, and the pages below it, also if this process
/// is killed. What is left of the rest then, the next measurement removes.
#[derive(Debug)]
pub(crate) struct Place {
    mounted: Option<PathBuf>,
    /// For small files.
    dir: OwnDir,
    /// On a mount of others.
    _on: Option<OwnDir>,
    pool: Result<PathBuf, String>,
}

impl Place {
    /// The pool will be in `on`, a directory on a hugetlbfs mount. Without one hugetlbfs is mounted where
    /// only this process and its children see it; it has to have one thread then. Who may not mount has
    /// no pool.
    pub(crate) fn make(on: Option<&Path>, page: PageSize) -> Result<Self, Failure> {
        let temporary = temporary();
        let not_there = |error: io::Error| not_made(&error, &temporary, "export TMPDIR=/var/tmp");
        let dir = OwnDir::make(&temporary).map_err(not_there)?;
        // From here on drop removes it.
        let mut place = Self {
            mounted: None,
            dir,
            _on: None,
            pool: Err(String::new()),
        };
        if let Some(on) = on {
            let own = OwnDir::make(on).map_err(|error| not_made(&error, on, &fix(page)))?;
            fits(on, page)?;
            place.pool = Ok(own.pool());
            place._on = Some(own);
            return Ok(place);
        }
        let point = place.dir.path().join("pages");
        fs::create_dir(&point).map_err(not_there)?;
        place.pool = match mount_for_this_process(&point, page) {
            Ok(()) => {
                let pool = point.join("pool");
                place.mounted = Some(point);
                Ok(pool)
            }
            Err(error) if is_refusal(&error) => Err(refused(&error, page)),
            Err(error) => {
                return Err(Failure {
                    class: Class::Host,
                    message: refused(&error, page),
                    fix: Some(fix(page)),
                });
            }
        };
        Ok(place)
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Where the pool is made, which is not there yet; or why there can be none.
    pub(crate) fn pool(&self) -> Result<&Path, &str> {
        self.pool.as_deref().map_err(String::as_str)
    }

    /// Removes what measurements of this user that were killed have left: in the directory for temporary
    /// files, on the mounts of hugetlbfs, and in `on`.
    pub(crate) fn remove_dead(on: Option<&Path>, host: &Host) -> Vec<Dead> {
        let mounts = host.mounts.iter().map(|mount| mount.path.as_path());
        let mut parents: Vec<&Path> = mounts.chain(on).collect();
        let temporary = temporary();
        parents.push(&temporary);
        remove_dead(parents)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What fails here is gone with the last process that has the mount.
        if let Some(point) = &self.mounted {
            let _ = unmount(point, UnmountFlags::DETACH);
        }
    }
}

/// The directory for temporary files. An empty name for it, which nobody means, would be the current one.
fn temporary() -> PathBuf {
    let named = std::env::temp_dir();
    match named.as_os_str().is_empty() {
        true => "/tmp".into(),
        false => named,
    }
}

/// Whether a pool with such pages can be there.
fn fits(on: &Path, page: PageSize) -> Result<(), Failure> {
    /// `HUGETLBFS_MAGIC`, statfs(2).
    const MAGIC: u32 = 0x9584_58f6;
    let facts = rustix::fs::statfs(on);
    // The fields have as many bits as a word of the architecture; a block is a page, of which there is no negative size.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let facts = facts.map(|facts| (facts.f_type as u32, facts.f_bsize as u64));
    let (message, fix) = match facts {
        Ok((MAGIC, bytes)) if bytes != page.bytes() => (
            format!(
                "{} has pages of {}, the machines have pages of {page}",
                on.display(),
                ByteSize(bytes)
            ),
            format!("--page {}, or {}", ByteSize(bytes).to_spec(), fix(page)),
        ),
        Ok((MAGIC, _)) | Err(_) => return Ok(()),
        Ok(_) => (
            format!(
                "{} is not on a hugetlbfs mount, which a pool has to be",
                on.display()
            ),
            fix(page),
        ),
    };
    Err(Failure {
        class: Class::Usage,
        message,
        fix: Some(fix),
    })
}

/// A user namespace would not help those who may not mount: hugetlbfs is not for them (it has no
/// `FS_USERNS_MOUNT` in the kernel's fs/hugetlbfs/inode.c).
fn mount_for_this_process(point: &Path, page: PageSize) -> io::Result<()> {
    sys::unshare_mounts()?;
    // Shared mounts would hand what is mounted here on to everybody.
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private)?;
    let options = CString::new(format!("pagesize={},mode=0700", page.bytes()))?;
    let flags = MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::NOSUID;
    mount("none", point, "hugetlbfs", flags, &*options)?;
    Ok(())
}

/// Whether it is a right that is missing; a seccomp filter may say that there is no such call.
fn is_refusal(error: &io::Error) -> bool {
    let kinds = [ErrorKind::PermissionDenied, ErrorKind::Unsupported];
    kinds.contains(&error.kind())
}

fn refused(error: &io::Error, page: PageSize) -> String {
    format!(
        "Recycled memory needs a hugetlbfs mount with pages of {page}, and mounting one for this process alone was refused: {error}"
    )
}

/// What makes a place for a pool.
pub(crate) fn fix(page: PageSize) -> String {
    match Host::probe().mount_for(page) {
        Some(mount) => format!("--pool {}, or as root", mount.path.display()),
        None => {
            let size = ByteSize(page.bytes()).to_spec();
            format!(
                "run it as root, or: sudo mount -t hugetlbfs -o pagesize={size},uid=$(id -u) none DIR, and --pool DIR"
            )
        }
    }
}

fn not_made(error: &io::Error, parent: &Path, fix: &str) -> Failure {
    Failure {
        class: Class::Host,
        message: format!("Cannot make a directory in {}: {error}", parent.display()),
        fix: Some(fix.to_owned()),
    }
}
