//! A directory that belongs to one process: locked as long as that lives, however it ends, so that the next
//! one knows what to remove. It has files, directories without anything in them, and at most a pool.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use prezero_memory::pool::Pool;
use rustix::fs::{
    AtFlags, Dir, FlockOperation, OFlags, StatxAttributes, StatxFlags, flock, statx, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::printable::printable;

/// How its name begins; 16 digits follow that nobody can foresee.
const PREFIX: &str = "prezero-bench-";
const DIGITS: usize = 16;

/// How often it may be taken for that of a dead process, in the moment before it is locked.
const TRIES: usize = 16;

/// What a pool in it is called.
const POOL: &str = "pool";

/// What else may be in it: where hugetlbfs is mounted, and what Cloud Hypervisor is started with.
const OTHERS: [&str; 3] = ["pages", "kernel", "events"];

/// Gone with what is its own on drop.
#[derive(Debug)]
pub(super) struct OwnDir {
    path: PathBuf,
    /// An exclusive flock(2) on it: it ends with the process.
    lock: File,
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
                Ok(Some(lock)) => return Ok(Self { path, lock }),
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
        let _ = remove(&self.lock, &self.path);
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
        let dir = locked(&path).ok().flatten()?;
        let removed = remove(&dir, &path);
        Some((path, removed))
    });
    removed.collect()
}

/// Removes an open directory with what belongs there: another may have its path by now. Segments that somebody has
/// leased stay, and so does what is in a directory in it, or mounted there: it is not from here.
fn remove(dir: &File, path: &Path) -> Result<(), String> {
    if is_mount(dir, POOL) {
        return Err(format!(
            "something is mounted at {}",
            path.join(POOL).display()
        ));
    }
    let by_fd = format!("/proc/self/fd/{}", dir.as_raw_fd());
    let by_name = |text: String| text.replace(&by_fd, &path.display().to_string());
    if let Ok(pool) = Pool::open(&Path::new(&by_fd).join(POOL)) {
        let destroyed = pool.destroy().map_err(|error| by_name(error.to_string()))?;
        if let Some((segment, holders)) = destroyed.drained.busy.first() {
            let by = match holders.first() {
                Some(holder) => holder.to_string(),
                None => "another process".to_owned(),
            };
            let segment = by_name(segment.display().to_string());
            return Err(format!("{segment} is in use by {by}"));
        }
    }
    let said = |errno: Errno| format!("{}: {errno}", path.display());
    for entry in Dir::read_from(dir).map_err(said)? {
        let entry = entry.map_err(said)?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if !name
            .to_str()
            .is_ok_and(|name| name == POOL || OTHERS.contains(&name))
        {
            let name = printable(&name.to_string_lossy());
            return Err(format!(
                "{} is not from a bench vm",
                path.join(name).display()
            ));
        }
        let removed = match unlinkat(dir, name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => unlinkat(dir, name, AtFlags::REMOVEDIR),
            removed => removed,
        };
        let name = name.to_string_lossy();
        removed.map_err(|errno| format!("{}: {errno}", path.join(&*name).display()))?;
    }
    // A directory has no other handle to be removed by. It goes only if it is empty.
    match is_at(dir, path) {
        true => fs::remove_dir(path).map_err(|error| format!("{}: {error}", path.display())),
        false => Err(format!("{} is another directory by now", path.display())),
    }
}

/// Whether the open directory is the one with this path.
fn is_at(dir: &File, path: &Path) -> bool {
    let id = |data: fs::Metadata| (data.dev(), data.ino());
    let there = fs::symlink_metadata(path).map(id);
    dir.metadata()
        .map(id)
        .ok()
        .is_some_and(|id| there.is_ok_and(|there| there == id))
}

fn is_name(name: &str) -> bool {
    let digits = name.strip_prefix(PREFIX);
    digits.is_some_and(|digits| {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        digits.len() == DIGITS && digits.bytes().all(is_digit)
    })
}

/// Whether something is mounted there, at the directory itself or at a name in it (statx(2), from Linux 5.8 on; no
/// before).
fn is_mount(dir: &File, name: &str) -> bool {
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
    let facts = statx(dir, name, flags, StatxFlags::empty());
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
    let data = dir.metadata()?;
    if data.uid() != geteuid().as_raw() || is_mount(&dir, "") {
        return Ok(None);
    }
    match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    }
    Ok(is_at(&dir, path).then_some(dir))
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
        fs::write(one.path().join("kernel"), "").expect("it is ours");
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
        fs::remove_dir_all(dead.join("pages")).expect("it is ours");
        fs::write(dead.join("thesis"), "").expect("it is ours");
        let removed = remove_dead([dir.path()]);
        let why = removed[0].1.as_ref().expect_err("it stays");
        assert!(why.ends_with("thesis is not from a bench vm"), "{why}");
        assert!(dead.join("thesis").exists());
    }

    #[test]
    fn another_directory_that_has_taken_its_path_stays() {
        let parent = tempfile::tempdir().expect("a directory");
        let path = parent.path().join("prezero-bench-0123456789abcdef");
        let moved = parent.path().join("moved");
        for dir in [&path, &moved] {
            fs::create_dir(dir).expect("it is ours");
        }
        fs::write(path.join("kernel"), "").expect("it is ours");
        let dir = locked(&path).expect("it is ours").expect("nobody has it");
        fs::rename(&path, parent.path().join("old")).expect("it is ours");
        fs::write(moved.join("mine"), "").expect("it is ours");
        symlink(&moved, &path).expect("it is ours");
        let why = remove(&dir, &path).expect_err("it is elsewhere");
        assert!(why.contains("another directory"), "{why}");
        assert!(moved.join("mine").exists());
        assert!(names(&parent.path().join("old")).is_empty());
    }
}
