//! Where a measurement keeps its things: a directory of its own, and a hugetlbfs mount for its pool.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use prezero_host::{Host, PageSize};
use prezero_memory::{ByteSize, Class};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount,
};

use super::sys;
use crate::failure::Failure;

/// Gone with everything in it on drop; what it has mounted, and the pages below it, also if this process
/// is killed.
#[derive(Debug)]
pub(crate) struct Place {
    /// For small files.
    dir: PathBuf,
    /// Where the pool is made. It is not there yet.
    pool: PathBuf,
    mounted: Option<PathBuf>,
}

impl Place {
    /// The pool will be in `on`, a directory on a hugetlbfs mount. Without one hugetlbfs is mounted where
    /// only this process and its children see it; it has to have one thread then.
    pub(crate) fn make(on: Option<&Path>, page: PageSize) -> Result<Self, Failure> {
        let name = format!("prezero-bench-{}", std::process::id());
        let dir = std::env::temp_dir().join(&name);
        let made = fs::DirBuilder::new().mode(0o700).create(&dir);
        made.map_err(|error| Failure {
            class: Class::Host,
            message: format!("Cannot make {}: {error}", dir.display()),
            fix: Some("TMPDIR=DIR prezero bench vm …".to_owned()),
        })?;
        // From here on drop removes it.
        let mut place = Self {
            dir,
            pool: PathBuf::new(),
            mounted: None,
        };
        place.pool = match on {
            Some(on) => on.join(&name),
            None => {
                let point = place.dir.join("pages");
                mount_for_this_process(&point, page).map_err(|error| refused(&error, page))?;
                place.mounted = Some(point.clone());
                point.join("pool")
            }
        };
        Ok(place)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn pool(&self) -> &Path {
        &self.pool
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What fails here is gone with the last process that has the mount.
        if let Some(point) = &self.mounted {
            let _ = unmount(point, UnmountFlags::DETACH);
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A user namespace would not help those who may not mount: hugetlbfs is not for them (it has no
/// `FS_USERNS_MOUNT` in the kernel's fs/hugetlbfs/inode.c).
fn mount_for_this_process(point: &Path, page: PageSize) -> io::Result<()> {
    fs::create_dir(point)?;
    sys::unshare_mounts()?;
    // Shared mounts would hand what is mounted here on to everybody.
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private)?;
    let options = CString::new(format!("pagesize={},mode=0700", page.bytes()))?;
    let flags = MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::NOSUID;
    mount("none", point, "hugetlbfs", flags, &*options)?;
    Ok(())
}

fn refused(error: &io::Error, page: PageSize) -> Failure {
    let fix = match Host::probe().mount_for(page) {
        Some(mount) => format!("--pool {}, or as root", mount.path.display()),
        None => {
            let size = ByteSize(page.bytes()).to_spec();
            format!(
                "run it as root, or: sudo mount -t hugetlbfs -o pagesize={size},uid=$(id -u) none DIR, and --pool DIR"
            )
        }
    };
    Failure {
        class: Class::Host,
        message: format!(
            "Recycled memory needs a hugetlbfs mount with pages of {page}, and mounting one for this process alone was refused: {error}"
        ),
        fix: Some(fix),
    }
}
