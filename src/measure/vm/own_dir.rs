//! A directory that belongs to one process: locked as long as that lives, however it ends, so that the next
//! one knows what to remove.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::process::geteuid;
use rustix::rand::{GetRandomFlags, getrandom};

/// How its name begins; 16 digits follow that nobody can foresee.
const PREFIX: &str = "prezero-bench-";
const DIGITS: usize = 16;

/// How often it may be taken for that of a dead process, in the moment before it is locked.
const TRIES: usize = 16;

/// Gone with everything in it on drop.
#[derive(Debug)]
pub(super) struct OwnDir {
    path: PathBuf,
    /// An exclusive flock(2) on it: it ends with the process.
    _lock: File,
}

impl OwnDir {
    /// Makes one.
    pub(super) fn make(parent: &Path) -> io::Result<Self> {
        for _ in 0..TRIES {
            let mut random = [0; DIGITS / 2];
            getrandom(&mut random, GetRandomFlags::empty())?;
            let digits = format!("{:016x}", u64::from_ne_bytes(random));
            let path = parent.join(format!("{PREFIX}{digits}"));
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            match locked(&path) {
                Ok(Some(lock)) => return Ok(Self { path, _lock: lock }),
                Ok(None) => {}
                Err(error) => {
                    let _ = fs::remove_dir(&path);
                    return Err(error);
                }
            }
        }
        Err(io::Error::other("what is made there cannot be locked"))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for OwnDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Something that a process of this user that was killed has left, and what became of it.
pub(crate) type Dead = (PathBuf, io::Result<()>);

/// Removes what is dead in a directory.
pub(super) fn remove_dead(parent: &Path) -> Vec<Dead> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let named = entries.filter(|entry| is_name(&entry.file_name().to_string_lossy()));
    let removed = named.filter_map(|entry| {
        let path = entry.path();
        let _lock = locked(&path).ok().flatten()?;
        let removed = fs::remove_dir_all(&path);
        Some((path, removed))
    });
    removed.collect()
}

fn is_name(name: &str) -> bool {
    let digits = name.strip_prefix(PREFIX);
    digits.is_some_and(|digits| {
        digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// The lock of a directory of this user, if nobody has it and the directory is still there.
fn locked(path: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
    // A bit of a C int.
    #[allow(clippy::cast_possible_wrap)]
    options.read(true).custom_flags(flags.bits() as i32);
    let dir = match options.open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        dir => dir?,
    };
    let id = |data: fs::Metadata| (data.dev(), data.ino());
    let data = dir.metadata()?;
    if data.uid() != geteuid().as_raw() {
        return Ok(None);
    }
    match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    }
    let there = fs::symlink_metadata(path).ok().map(id);
    Ok((there == Some(id(data))).then_some(dir))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).expect("a directory").flatten();
        let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        let mut names: Vec<String> = entries.map(name).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn it_is_gone_on_drop_and_nobody_else_s_while_it_lives() {
        let dir = tempfile::tempdir().expect("a directory");
        let one = OwnDir::make(dir.path()).expect("it is ours");
        let two = OwnDir::make(dir.path()).expect("it is ours");
        assert_ne!(one.path(), two.path());
        let mode = fs::metadata(one.path()).expect("it is there").mode();
        assert_eq!(mode & 0o777, 0o700);
        fs::write(one.path().join("file"), "").expect("it is ours");
        assert!(remove_dead(dir.path()).is_empty());
        assert!(two.path().exists());
        drop((one, two));
        assert!(names(dir.path()).is_empty());
    }

    #[test]
    fn what_a_dead_process_left_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        let dead = at("prezero-bench-0123456789abcdef");
        fs::create_dir_all(dead.join("pool")).expect("it is ours");
        fs::write(dead.join("pool/segment"), "").expect("it is ours");
        let others = [
            "prezero-bench-0123456789abcde",
            "prezero-bench-notes",
            "prezero-bench-link456789abcdef",
        ];
        for other in others {
            fs::create_dir(at(other)).expect("it is ours");
        }
        let link = at("prezero-bench-fedcba9876543210");
        symlink(at("prezero-bench-notes"), &link).expect("it is ours");
        let removed = remove_dead(dir.path());
        assert!(matches!(&removed[..], [(path, Ok(()))] if *path == dead));
        assert!(others.iter().all(|other| at(other).exists()) && link.exists());
        assert!(remove_dead(&at("nowhere")).is_empty());
    }
}
