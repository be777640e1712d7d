//! A copy of a machine's files: no more of them than is read here, and nothing that tells whose
//! machine it is.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::cgroup;
use crate::host::Host;
use crate::pseudonyms::Pseudonyms;
use crate::root::{Root, plain};

impl Host {
    /// Copies the files of the machine whose `/proc` and `/sys` are in `root` (`/` is the running
    /// one) into the directory `into`, so that [`Host::read`] of the copy gives the same facts, to be
    /// sent in a bug report or kept as a test. Returns the files, relative to `into`, in order.
    ///
    /// Of every file only the lines and words that are read here are copied. Cgroups are called `c1`,
    /// `c2` and so on, and so are (`m1`, `m2`) the directories on the way to a mount unless many
    /// machines have them, such as `/dev/hugepages`; the facts of the copy differ in these names.
    /// What identifies the kind of machine stays: CPU model, kernel release, amounts of memory.
    /// A file that could not be read is not in the copy, and its problem is not either.
    ///
    /// # Errors
    ///
    /// `NotADirectory` if `root` is none, `DirectoryNotEmpty` if `into` has anything in it, and
    /// whatever the system says when a directory or a file cannot be made. In the last case `into`
    /// keeps the files that were written before.
    pub fn record(root: &Path, into: &Path) -> io::Result<Vec<PathBuf>> {
        if !root.is_dir() {
            return Err(ErrorKind::NotADirectory.into());
        }
        fs::create_dir_all(into)?;
        if fs::read_dir(into)?.next().is_some() {
            return Err(ErrorKind::DirectoryNotEmpty.into());
        }
        let mut root = Root::recording(root);
        let _ = Self::read_below(&mut root);
        root.into_recording().write(into)
    }
}

/// What was read, by its path in the copy.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    pub(crate) names: Pseudonyms,
    /// The text of a file; `None` is a directory that matters even if nothing is in it.
    entries: BTreeMap<PathBuf, Option<String>>,
    /// Where the files of a cgroup's directory go.
    cgroups: HashMap<PathBuf, PathBuf>,
}

impl Recording {
    pub(crate) fn file(&mut self, path: &Path, text: &str) {
        let path = plain(path);
        let moved = path.parent().and_then(|dir| self.cgroups.get(dir));
        let path = match (moved, path.file_name()) {
            (Some(dir), Some(name)) => dir.join(name),
            _ => path,
        };
        self.entries.insert(path, Some(text.into()));
    }

    pub(crate) fn directory(&mut self, path: &str) {
        self.entries.insert(plain(Path::new(path)), None);
    }

    pub(crate) fn cgroup(&mut self, point: &Path, group: &Path) {
        let renamed = cgroup::join(&self.names.mount_point(point), &self.names.group(group));
        self.cgroups
            .insert(plain(&cgroup::join(point, group)), plain(&renamed));
    }

    fn write(&self, into: &Path) -> io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for (path, text) in &self.entries {
            let target = into.join(path);
            let Some(text) = text else {
                fs::create_dir_all(target)?;
                continue;
            };
            if let Some(dir) = target.parent() {
                fs::create_dir_all(dir)?;
            }
            let mut file = File::create_new(target)?;
            file.write_all(text.as_bytes())?;
            // Whatever the umask is: a recording is there to be passed on.
            file.set_permissions(Permissions::from_mode(0o644))?;
            files.push(path.clone());
        }
        Ok(files)
    }
}
