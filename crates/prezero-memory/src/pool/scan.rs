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

/// A segment, as it was a moment ago.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub(super) dir: Arc<NodeDir>,
    pub(super) name: SegmentName,
    pub(super) inode: u64,
    /// Dirty, and pages of it are missing: there is nothing that it can be used for until they are back.
    pub(super) torn: bool,
}

impl Listed {
    pub(super) fn path(&self) -> PathBuf {
        self.dir.path.join(self.name.to_string())
    }

    pub(super) fn problem(&self, kind: ProblemKind) -> Problem {
        let path = self.path();
        Problem { path, kind }
    }
}

/// All segments, by node and name, and what else is there.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Whole ones, and those that somebody has and has given pages of back: a guest's balloon, an exchange.
    pub(super) segments: Vec<Listed>,
    /// Torn ones that nobody has: they are among the problems, too.
    pub(super) torn: Vec<Listed>,
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
        let (mut scan, mut torn) = (Scan::default(), Vec::new());
        let (dirs, problems) = self.node_dirs()?;
        scan.problems = problems;
        for dir in dirs {
            let dir = Arc::new(dir);
            let found = names(dir.fd.as_fd()).map_err(PoolError::io("read", &dir.path))?;
            for name in found {
                self.note(&mut scan, &mut torn, &dir, &name);
            }
        }
        if !torn.is_empty() {
            let locked = self.locked_inodes();
            scan.add_torn(torn, |listed| locked.contains(&listed.inode));
        }
        scan.refuse_shared_ids();
        Ok(scan)
    }

    fn note(
        &self,
        scan: &mut Scan,
        torn: &mut Vec<(Listed, ProblemKind)>,
        dir: &Arc<NodeDir>,
        file_name: &str,
    ) {
        let unusable = |kind| Problem {
            path: dir.path.join(file_name),
            kind,
        };
        let (facts, name) = match (
            dir.facts(file_name),
            SegmentName::parse(file_name, self.owned.page),
        ) {
            // Not UTF-8, and shown as it can be: nothing is found by that.
            (Ok(None), None) if file_name.contains(char::REPLACEMENT_CHARACTER) => {
                return scan.problems.push(unusable(ProblemKind::UnknownName));
            }
            // Renamed or removed since it was listed.
            (Ok(None), _) => return,
            (Err(errno), _) => {
                let errno = errno.raw_os_error();
                return scan
                    .problems
                    .push(unusable(ProblemKind::Unreadable { errno }));
            }
            (Ok(_), None) => return scan.problems.push(unusable(ProblemKind::UnknownName)),
            (Ok(Some(facts)), Some(name)) => (facts, name),
        };
        let mut listed = Listed {
            dir: Arc::clone(dir),
            name,
            inode: facts.st_ino,
            torn: false,
        };
        match self.owned.check_segment(name, &facts) {
            Ok(()) => scan.segments.push(listed),
            Err(kind) if kind.is_torn(name.state) => {
                listed.torn = true;
                torn.push((listed, kind));
            }
            Err(kind) => {
                if kind.is_incomplete() {
                    scan.incomplete.push((dir.node, name));
                }
                scan.problems.push(unusable(kind));
            }
        }
    }
}

impl Scan {
    /// A segment that somebody has is leased, whatever its holder does to its pages.
    fn add_torn(&mut self, torn: Vec<(Listed, ProblemKind)>, is_leased: impl Fn(&Listed) -> bool) {
        for (listed, kind) in torn {
            if is_leased(&listed) {
                let torn = false;
                self.segments.push(Listed { torn, ..listed });
                continue;
            }
            self.incomplete.push((listed.dir.node, listed.name));
            self.problems.push(listed.problem(kind));
            self.torn.push(listed);
        }
    }

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
