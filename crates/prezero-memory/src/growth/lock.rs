//! One lock for everybody on the host who changes the pools through prezero.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::error::GrowError;
use crate::control::Control;

/// The lock file's name below the state directory.
pub(super) const NAME: &str = "growth.lock";

const RETRY: Duration = Duration::from_millis(10);

/// The lock, until it is dropped. It is flock(2), so it also ends with its process.
#[derive(Debug)]
pub(super) struct HostLock {
    _file: File,
}

impl HostLock {
    /// Waits for the lock, `patience` at most; the state directory is made where it is missing.
    pub(super) fn acquire(
        state_dir: &Path,
        patience: Duration,
        control: &Control<'_>,
    ) -> Result<Self, GrowError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(state_dir)
            .map_err(GrowError::file("create", state_dir))?;
        let path = state_dir.join(NAME);
        // Whoever may open a file may lock it, reading is enough: so nobody but its owner may.
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(GrowError::file("open", &path))?;
        let start = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { _file: file }),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => {
                    return Err(GrowError::file("lock", &path)(error));
                }
            }
            let waited = start.elapsed();
            if let Some(by) = control.stopped_by() {
                let who =
                    holder(&file).map_or(String::new(), |pid| format!(", held by process {pid}"));
                let doing = format!("waiting for {}{who}", path.display());
                return Err(GrowError::Stopped { by, doing });
            }
            if waited >= patience {
                return Err(busy(path, waited, &file));
            }
            thread::sleep(RETRY.min(patience - waited));
        }
    }
}

fn busy(lock: PathBuf, waited: Duration, file: &File) -> GrowError {
    let holder = holder(file);
    GrowError::Busy {
        lock,
        waited,
        holder,
    }
}

/// The process that locked the file, as far as this PID namespace sees it.
fn holder(file: &File) -> Option<u32> {
    let of = file.metadata().ok()?;
    let (major, minor) = (libc::major(of.dev()), libc::minor(of.dev()));
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    holder_in(&locks, &format!("{major:02x}:{minor:02x}:{}", of.ino()))
}

/// Lines are `1: FLOCK  ADVISORY  WRITE 31632 fe:00:10011365 0 EOF` (proc_locks(5)); those that
/// wait have `->` second.
fn holder_in(locks: &str, file: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        if words.next()? != "FLOCK" {
            return None;
        }
        let (pid, of) = (words.nth(2)?, words.next()?);
        (of == file).then(|| pid.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Class;
    use crate::control::Cancel;
    use std::process;

    /// A tmpfs, as /run is: elsewhere /proc/locks may name another device than stat(2) does.
    fn tmpfs() -> tempfile::TempDir {
        let dir = tempfile::tempdir_in("/dev/shm");
        dir.or_else(|_| tempfile::tempdir())
            .expect("temporary directory")
    }

    const SHORT: Duration = Duration::from_millis(60);

    #[test]
    fn a_second_lock_waits_and_then_names_the_holder() {
        let dir = tmpfs();
        let control = Control::default();
        let held = HostLock::acquire(dir.path(), SHORT, &control).expect("free");
        let start = Instant::now();
        let error = HostLock::acquire(dir.path(), SHORT, &control).expect_err("held");
        assert!(start.elapsed() >= SHORT);
        assert_eq!(error.class(), Class::Shortage);
        assert!(
            error.to_string().contains(&format!(
                "growth.lock is still locked after 0 s, by process {}",
                process::id()
            )),
            "{error}"
        );
        assert!(
            error
                .fix()
                .is_some_and(|fix| fix.contains(&process::id().to_string()))
        );
        drop(held);
        HostLock::acquire(dir.path(), SHORT, &control).expect("free again");
    }

    #[test]
    fn waiting_ends_with_the_caller_s_patience() {
        let dir = tmpfs();
        let _held = HostLock::acquire(dir.path(), SHORT, &Control::default()).expect("free");
        let cancel = Cancel::new();
        cancel.cancel();
        let cancelled = Control {
            cancel: Some(&cancel),
            ..Control::default()
        };
        let late = Control {
            deadline: Some(Instant::now()),
            ..Control::default()
        };
        for (control, how) in [(cancelled, "Cancelled"), (late, "Deadline passed")] {
            let error =
                HostLock::acquire(dir.path(), Duration::from_secs(30), &control).expect_err("held");
            assert_eq!(error.class(), Class::Stopped);
            let text = error.to_string();
            assert!(
                text.starts_with(&format!("{how} while waiting for ")),
                "{text}"
            );
            assert!(
                text.ends_with(&format!("held by process {}", process::id())),
                "{text}"
            );
        }
    }

    #[test]
    fn only_its_owner_can_open_the_lock_file() {
        let dir = tmpfs();
        let state = dir.path().join("made/on the way");
        let _held = HostLock::acquire(&state, SHORT, &Control::default()).expect("free");
        let mode = state.join(NAME).metadata().expect("there").mode();
        assert_eq!(mode & 0o077, 0, "{mode:o}");
    }

    #[test]
    fn a_waiting_process_is_not_the_holder() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 fe:00:42 0 EOF\n2: FLOCK  ADVISORY  WRITE 8 fe:00:421 0 EOF\n3: -> FLOCK  ADVISORY  WRITE 9 fe:00:42 0 EOF\n4: FLOCK  ADVISORY  WRITE 10 fe:00:42 0 EOF\n";
        assert_eq!(holder_in(locks, "fe:00:42"), Some(10));
        assert_eq!(holder_in(locks, "fe:01:42"), None);
        assert_eq!(holder_in("1:\n\nx FLOCK\n", "fe:00:42"), None);
    }
}
