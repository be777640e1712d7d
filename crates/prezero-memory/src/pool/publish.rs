//! A segment in the making: a file without a name, which gets one when all of it is there.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use prezero_host::Host;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, fchmod, fstat, ftruncate, linkat, openat};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use super::Pool;
use super::directory::NodeDir;
use super::error::PoolError;
use super::mapped::{Elsewhere, Mapped};
use super::name::{SegmentName, State};
use super::problem::Problem;
use crate::limits::{LimitHit, LimitKind};
use crate::plan::Origin;
use crate::size::PageBytes;
use crate::sys;
use crate::work::Target;

/// How often a new id is drawn when the last one is taken. Once is more than anybody will see.
const DRAWS: usize = 8;

/// Fresh pages that are mapped, and promised by the kernel, and not yet there. Gone on drop.
#[derive(Debug)]
pub(super) struct Fresh {
    dir: Arc<NodeDir>,
    len: PageBytes,
    mapped: Mapped,
    file: OwnedFd,
}

/// What became of a populated segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Published {
    Clean(SegmentName),
    /// Not published: a page is on another node.
    Elsewhere(Elsewhere),
}

/// Whether a segment can be made at all without the kernel's signal for files that are too long.
pub(super) fn check_file_size(needed: u64) -> Result<(), PoolError> {
    let limit = sys::file_size_limit();
    match needed > limit {
        false => Ok(()),
        true => Err(PoolError::Limit(LimitHit {
            what: LimitKind::FileSize,
            file: "/proc/self/limits".into(),
            limit,
            usage: 0,
            needed,
        })),
    }
}

impl Fresh {
    /// open(2), `O_TMPFILE`, and the mapping that reserves the pages: on a host of several nodes, of the
    /// directory's node.
    pub(super) fn reserve(
        dir: &Arc<NodeDir>,
        len: PageBytes,
        host: &Host,
    ) -> Result<Self, PoolError> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let made = openat(&dir.fd, c".", flags, Mode::RUSR | Mode::WUSR);
        let made = made.and_then(|file| {
            // Whatever the umask.
            fchmod(&file, Mode::RUSR | Mode::WUSR)?;
            ftruncate(&file, len.bytes()).map(|()| file)
        });
        let file =
            made.map_err(|errno| PoolError::io("create a file in", &dir.path)(errno.into()))?;
        // One node's pages are all there are: no call that a container might refuse.
        let bound = host.nodes.len() > 1;
        let mapped = Mapped::new(file.as_fd(), 0, len, dir.node, bound);
        let mapped = mapped.map_err(|(step, source)| {
            PoolError::of_mapping(&dir.path, dir.node, len, step, source)
        })?;
        Ok(Self {
            dir: Arc::clone(dir),
            len,
            mapped,
            file,
        })
    }

    pub(super) fn node(&self) -> u32 {
        self.dir.node
    }

    pub(super) fn target(&self) -> Target {
        self.mapped.target(Origin::Fresh)
    }

    /// Unmaps it and names it clean, if every page is there and on its node.
    pub(super) fn publish(self, pool: &Pool) -> Result<Published, PoolError> {
        // Where asking is refused, the binding has to do.
        if let Ok(Some(elsewhere)) = self.mapped.elsewhere() {
            return Ok(Published::Elsewhere(elsewhere));
        }
        drop(self.mapped);
        let failed = PoolError::io("name a segment in", &self.dir.path);
        // Its name says of the other files what this one cannot be: linked, foreign, elsewhere.
        let facts = fstat(&self.file).map_err(|errno| failed(errno.into()))?;
        for _ in 0..DRAWS {
            let mut id = [0; 8];
            getrandom(&mut id, GetRandomFlags::empty()).map_err(|errno| failed(errno.into()))?;
            let name = SegmentName {
                bytes: self.len.bytes(),
                id: u64::from_ne_bytes(id),
                state: State::Clean,
            };
            let mut named = facts;
            named.st_nlink = 1;
            pool.owned.check_segment(name, &named).map_err(|kind| {
                let path = self.dir.path.join(name.to_string());
                PoolError::Untrusted(Problem { path, kind })
            })?;
            // linkat(2) without CAP_DAC_READ_SEARCH, as open(2) shows it for O_TMPFILE.
            let itself = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            match linkat(
                CWD,
                itself,
                &self.dir.fd,
                name.to_string(),
                AtFlags::SYMLINK_FOLLOW,
            ) {
                Ok(()) => return Ok(Published::Clean(name)),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(failed(errno.into())),
            }
        }
        Err(failed(Errno::EXIST.into()))
    }
}
