//! What is in a pool's directories right now.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{AtFlags, Stat, statat};
use rustix::io::Errno;
use std::os::fd::AsFd;

use super::Pool;
use super::directory::{NodeDir, names};
use super::error::PoolError;
use super::name::SegmentName;
use super::problem::{Problem, ProblemKind};

/// A whole segment, as it was a moment ago.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub(super) dir: Arc<NodeDir>,
    pub(super) name: SegmentName,
    pub(super) inode: u64,
}

impl Listed {
    pub(super) fn path(&self) -> PathBuf {
        self.dir.path.join(self.name.to_string())
    }
}

/// All segments, by node and name, and what else is there.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) segments: Vec<Listed>,
    pub(super) problems: Vec<Problem>,
    /// Those of the problems that are segments of ours, with their nodes.
    pub(super) incomplete: Vec<(u32, SegmentName)>,
}

impl NodeDir {
    /// fstatat(2) of a name, links not followed; `None` if there is none.
    pub(super) fn facts(&self, name: &str) -> Result<Option<Stat>, Errno> {
        match statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(facts) => Ok(Some(facts)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

impl Pool {
    /// Looks at everything, and opens nothing: an open descriptor would make others think that the
    /// segment is in use.
    pub(super) fn scan(&self) -> Result<Scan, PoolError> {
        let mut scan = Scan::default();
        let (dirs, problems) = self.node_dirs()?;
        scan.problems = problems;
        for dir in dirs {
            let dir = Arc::new(dir);
            let found = names(dir.fd.as_fd()).map_err(PoolError::io("read", &dir.path))?;
            for name in found {
                self.note(&mut scan, &dir, &name);
            }
        }
        scan.refuse_shared_ids();
        Ok(scan)
    }

    fn note(&self, scan: &mut Scan, dir: &Arc<NodeDir>, file_name: &str) {
        let parsed = SegmentName::parse(file_name, self.owned.page);
        let checked = match (dir.facts(file_name), parsed) {
            // Renamed or removed since it was listed.
            (Ok(None), _) => return,
            (Err(errno), _) => Err(ProblemKind::Unreadable {
                errno: errno.raw_os_error(),
            }),
            (Ok(_), None) => Err(ProblemKind::UnknownName),
            (Ok(Some(facts)), Some(name)) => {
                let checked = self.owned.check_segment(name, &facts);
                checked.map(|()| Listed {
                    dir: Arc::clone(dir),
                    name,
                    inode: facts.st_ino,
                })
            }
        };
        match checked {
            Ok(listed) => scan.segments.push(listed),
            Err(kind) => {
                if kind.is_incomplete() {
                    scan.incomplete.extend(parsed.map(|name| (dir.node, name)));
                }
                scan.problems.push(Problem {
                    path: dir.path.join(file_name),
                    kind,
                });
            }
        }
    }
}

impl Scan {
    /// Takes out segments that share an id. One that was renamed while its directory was read has been
    /// seen under two names, of which one is gone.
    fn refuse_shared_ids(&mut self) {
        let mut by_id: BTreeMap<u64, Vec<Listed>> = BTreeMap::new();
        for listed in self.segments.drain(..) {
            by_id.entry(listed.name.id).or_default().push(listed);
        }
        for mut same in by_id.into_values() {
            if same.len() > 1 {
                same.retain(|listed| {
                    let facts = listed.dir.facts(&listed.name.to_string());
                    facts.is_ok_and(|facts| facts.is_some_and(|f| f.st_ino == listed.inode))
                });
            }
            if let [one] = &*same {
                self.segments.push(one.clone());
                continue;
            }
            for (n, listed) in same.iter().enumerate() {
                let other = &same[(n + 1) % same.len()];
                self.problems.push(Problem {
                    path: listed.path(),
                    kind: ProblemKind::SameId {
                        other: other.path(),
                    },
                });
            }
        }
        self.segments
            .sort_by_key(|listed| (listed.dir.node, listed.name));
    }
}
