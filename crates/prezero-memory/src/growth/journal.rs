//! What a growth did to the pools, on file, so that it can be undone when its process cannot.
//!
//! ```text
//! prezero growth 1
//! intend 2097152 any +30 from 512
//! done 2097152 0=+16 1=+14
//! intend 2097152 0 -16 from 272
//! done 2097152 0=-16
//! ```
//!
//! Lines are only appended, each with one write(2). A change of a pool stands between the line that
//! announces it and the one that says what came of it on which node, so a process killed at any
//! point leaves a file that says what it has added, or at most has. The last line counts only once
//! it is complete.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process;

use prezero_host::PageSize;

use super::error::GrowError;

const VERSION: &str = "prezero growth 1";
const PREFIX: &str = "growth-";

/// The pages that a growth has added and not given back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Balance {
    shares: BTreeMap<(PageSize, Option<u32>), u64>,
    /// Announced changes of which nothing more is known.
    pub(super) pending: Vec<Pending>,
}

/// An announced change of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) page: PageSize,
    pub(super) node: Option<u32>,
    pub(super) pages: i64,
    /// Pages of the pool, or of the node's, before it.
    pub(super) from: u64,
}

impl Balance {
    /// Page size, node and pages, where there are any.
    pub(super) fn shares(&self) -> Vec<(PageSize, Option<u32>, u64)> {
        let shares = self.shares.iter().filter(|(_, pages)| **pages > 0);
        shares
            .map(|((page, node), pages)| (*page, *node, *pages))
            .collect()
    }

    fn intend(&mut self, change: Pending) {
        self.pending.push(change);
    }

    fn done(&mut self, page: PageSize, nodes: &[(Option<u32>, i64)]) {
        self.pending.pop();
        for (node, pages) in nodes {
            let share = self.shares.entry((page, *node)).or_default();
            *share = share.saturating_add_signed(*pages);
        }
    }

    /// Reads a journal; None if it is not one of this version. An empty one is a growth that has
    /// added nothing.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut balance = Self::default();
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut lines = complete.lines();
        if lines.next().is_some_and(|first| first != VERSION) {
            return None;
        }
        for line in lines {
            balance.apply(line)?;
        }
        Some(balance)
    }

    fn apply(&mut self, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        let verb = words.next()?;
        let page = PageSize::new(words.next()?.parse().ok()?)?;
        match verb {
            "intend" => {
                let node = match words.next()? {
                    "any" => None,
                    id => Some(id.parse().ok()?),
                };
                let pages = words.next()?.parse().ok()?;
                let from = words
                    .next()
                    .filter(|word| *word == "from")
                    .and(words.next())?;
                self.intend(Pending {
                    page,
                    node,
                    pages,
                    from: from.parse().ok()?,
                });
                words.next().is_none().then_some(())
            }
            "done" => {
                let change = |word: &str| {
                    let (node, pages) = word.split_once('=')?;
                    let node = match node {
                        "any" => None,
                        id => Some(id.parse().ok()?),
                    };
                    Some((node, pages.parse().ok()?))
                };
                let nodes: Vec<_> = words.map(change).collect::<Option<_>>()?;
                self.done(page, &nodes);
                Some(())
            }
            _ => None,
        }
    }
}

/// A journal that is being written; it is locked as long as this lives.
#[derive(Debug)]
pub(super) struct Journal {
    pub(super) path: PathBuf,
    file: File,
    balance: Balance,
}

impl Journal {
    /// A new one below the state directory.
    pub(super) fn create(state_dir: &Path) -> Result<Self, GrowError> {
        let (path, file) = create_new(state_dir)?;
        let balance = Balance::default();
        let mut journal = Self {
            path,
            file,
            balance,
        };
        match journal.begin() {
            Ok(()) => Ok(journal),
            Err(error) => journal.remove().and(Err(error)),
        }
    }

    fn begin(&mut self) -> Result<(), GrowError> {
        // From here on whoever looks for leftovers sees that the process lives. Before, the file is
        // empty.
        self.file
            .lock()
            .map_err(GrowError::file("lock", &self.path))?;
        // Not readable for others until it is locked: one who has it locked could keep this process
        // waiting.
        self.file
            .set_permissions(Permissions::from_mode(0o644))
            .map_err(GrowError::file("change the mode of", &self.path))?;
        self.append(VERSION)
    }

    pub(super) fn balance(&self) -> &Balance {
        &self.balance
    }

    /// Announces a change of a pool.
    pub(super) fn intend(&mut self, change: Pending) -> Result<(), GrowError> {
        self.balance.intend(change);
        let Pending {
            page,
            node,
            pages,
            from,
        } = change;
        let node = node.map_or("any".to_owned(), |node| node.to_string());
        self.append(&format!(
            "intend {} {node} {pages:+} from {from}",
            page.bytes()
        ))
    }

    /// What came of the last change announced.
    pub(super) fn done(&mut self, page: PageSize, nodes: &[(u32, i64)]) -> Result<(), GrowError> {
        let on: Vec<_> = nodes
            .iter()
            .map(|(node, pages)| (Some(*node), *pages))
            .collect();
        self.balance.done(page, &on);
        let mut line = format!("done {}", page.bytes());
        for (node, pages) in nodes {
            let _ = write!(line, " {node}={pages:+}");
        }
        self.append(&line)
    }

    fn append(&mut self, line: &str) -> Result<(), GrowError> {
        self.file
            .write_all(format!("{line}\n").as_bytes())
            .map_err(GrowError::file("write", &self.path))
    }

    /// Everything is given back.
    pub(super) fn remove(self) -> Result<(), GrowError> {
        fs::remove_file(&self.path).map_err(GrowError::file("remove", &self.path))
    }
}

/// The first free name. Another process may have had this one's number, and left a journal behind.
fn create_new(state_dir: &Path) -> Result<(PathBuf, File), GrowError> {
    let mut n = 0_u32;
    loop {
        let path = state_dir.join(format!("{PREFIX}{}-{n}", process::id()));
        let mut options = OpenOptions::new();
        match options.write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && n < u32::MAX => n += 1,
            Err(error) => return Err(GrowError::file("create", path)(error)),
        }
    }
}

/// The process in a journal's name; None for another file.
pub(super) fn pid_in(name: &str) -> Option<u32> {
    let (pid, n) = name.strip_prefix(PREFIX)?.split_once('-')?;
    n.parse::<u32>().ok()?;
    pid.parse().ok()
}

#[cfg(test)]
mod tests;
