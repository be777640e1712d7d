//! A directory that belongs to one process: locked as long as that lives, however it ends, so that the next
//! one knows what to remove. It has files, directories without anything in them, and at most a pool.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use prezero_memory::pool::Pool;
use rustix::fs::{AtFlags, FlockOperation, OFlags, StatxAttributes, StatxFlags, flock, statx};
use rustix::process::geteuid;
use rustix::rand::{GetRandomFlags, getrandom};

/// How its name begins; 16 digits follow that nobody can foresee.
const PREFIX: &str = "prezero-bench-";
const DIGITS: usize = 16;

/// How often it may be taken for that of a dead process, in the moment before it is locked.
const TRIES: usize = 16;

/// What a pool in it is called.
const POOL: &str = "pool";

/// Gone with what is its own on drop.
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

    /// Where a pool may be made, which is removed with it.
    pub(super) fn pool(&self) -> PathBuf {
        self.path.join(POOL)
    }
}

impl Drop for OwnDir {
    fn drop(&mut self) {
        // What stays the next one removes, or says why it cannot.
        let _ = remove(&self.path);
    }
}

/// Something that a process of this user that was killed has left, and why it is still there if it is.
pub(crate) type Dead = (PathBuf, Result<(), String>);

/// Removes what is dead in these directories.
pub(super) fn remove_dead<'a>(parents: impl IntoIterator<Item = &'a Path>) -> Vec<Dead> {
    // One directory may be known by several paths.
    let mut seen = BTreeSet::new();
    let parents = parents.into_iter().filter(|parent| {
        let data = fs::metadata(parent);
        data.is_ok_and(|data| seen.insert((data.dev(), data.ino())))
    });
    let entries = parents.filter_map(|parent| fs::read_dir(parent).ok());
    let entries = entries.flatten().flatten();
    let named = entries.filter(|entry| is_name(&entry.file_name().to_string_lossy()));
    let removed = named.filter_map(|entry| {
        let path = entry.path();
        let _lock = locked(&path).ok().flatten()?;
        let removed = remove(&path);
        Some((path, removed))
    });
    removed.collect()
}

/// Removes a directory with what belongs there. Segments that somebody has leased stay, and so does what is below
/// another directory or mounted there: it is not from here.
fn remove(path: &Path) -> Result<(), String> {
    let said = |path: &Path| {
        let path = path.display().to_string();
        move |error: io::Error| format!("{path}: {error}")
    };
    if let Ok(pool) = Pool::open(&path.join(POOL)) {
        let destroyed = pool.destroy().map_err(|error| error.to_string())?;
        if let Some((segment, holders)) = destroyed.drained.busy.first() {
            let by = match holders.first() {
                Some(holder) => holder.to_string(),
                None => "another process".to_owned(),
            };
            return Err(format!("{} is in use by {by}", segment.display()));
        }
    }
    for entry in fs::read_dir(path).map_err(said(path))? {
        let entry = entry.map_err(said(path))?;
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let path = entry.path();
        let removed = match is_dir {
            true => fs::remove_dir(&path),
            false => fs::remove_file(&path),
        };
        removed.map_err(said(&path))?;
    }
    fs::remove_dir(path).map_err(said(path))
}

fn is_name(name: &str) -> bool {
    let digits = name.strip_prefix(PREFIX);
    digits.is_some_and(|digits| {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        digits.len() == DIGITS && digits.bytes().all(is_digit)
    })
}

/// Whether something is mounted there (statx(2), from Linux 5.8 on; no before).
fn is_mount(dir: &File) -> bool {
    let facts = statx(dir, "", AtFlags::EMPTY_PATH, StatxFlags::empty());
    facts.is_ok_and(|facts| facts.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
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
    if data.uid() != geteuid().as_raw() || is_mount(&dir) {
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
        assert!(remove_dead([dir.path()]).is_empty());
        assert!(two.path().exists());
        drop((one, two));
        assert!(names(dir.path()).is_empty());
    }

    #[test]
    fn what_a_dead_process_left_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        let dead = at("prezero-bench-0123456789abcdef");
        fs::create_dir_all(dead.join("pages")).expect("it is ours");
        fs::create_dir_all(dead.join("pool")).expect("it is ours");
        fs::write(dead.join("kernel"), "").expect("it is ours");
        let others = [
            "prezero-bench-0123456789abcde",
            "prezero-bench-notes",
            "prezero-bench-link456789abcdef",
            "prezero-bench-0123456789ABCDEF",
        ];
        for other in others {
            fs::create_dir(at(other)).expect("it is ours");
        }
        let link = at("prezero-bench-fedcba9876543210");
        symlink(at("prezero-bench-notes"), &link).expect("it is ours");
        let removed = remove_dead([dir.path(), &dir.path().join(".")]);
        assert!(
            matches!(&removed[..], [(path, Ok(()))] if *path == dead),
            "{removed:?}"
        );
        assert!(others.iter().all(|other| at(other).exists()) && link.exists());
        assert!(remove_dead([&*at("nowhere")]).is_empty());
    }

    #[test]
    fn what_it_did_not_make_stays_and_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let dead = dir.path().join("prezero-bench-0123456789abcdef");
        fs::create_dir_all(dead.join("pages/mine")).expect("it is ours");
        let removed = remove_dead([dir.path()]);
        let [(path, Err(why))] = &removed[..] else {
            panic!("{removed:?}");
        };
        assert!(*path == dead && why.contains("pages: "), "{why}");
        assert!(dead.join("pages/mine").exists());
    }
}
