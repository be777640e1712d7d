//! One lock for the whole machine: hugepage counters are shared by every process on it.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use crate::sys;

/// Not below `TMPDIR`: two processes with different settings of it share the same hugepages.
const PATH: &str = "/tmp/prezero-tests.lock";
const PATIENCE: Duration = Duration::from_secs(600);
const RETRY: Duration = Duration::from_millis(10);

/// The thread of this process that holds the lock, so that taking it twice is an error and not a wait of ten minutes.
static HOLDER: Mutex<Option<ThreadId>> = Mutex::new(None);

/// Excludes every other test and measurement that reserves or counts hugepages, in this process and in others.
///
/// It is `flock(2)` on a file of its own open file description, so it ends with the process, however that ends, and
/// works between threads as well. Anybody may take it, root or not.
#[derive(Debug)]
pub struct MachineLock {
    _file: File,
}

impl MachineLock {
    /// Waits up to ten minutes for the lock.
    ///
    /// # Panics
    ///
    /// When the ten minutes are over, when the calling thread has the lock already, and when the lock file cannot be opened.
    #[must_use = "the lock is released when the guard is dropped"]
    #[track_caller]
    pub fn acquire() -> Self {
        Self::acquire_within(PATIENCE).unwrap_or_else(|| {
            panic!(
                "{PATH} was held by others for {PATIENCE:?}; who holds it: lslocks | grep {PATH}"
            )
        })
    }

    /// Waits up to `patience` for the lock; None when the time is over.
    ///
    /// # Panics
    ///
    /// When the calling thread has the lock already, and when the lock file cannot be opened.
    #[must_use = "the lock is released when the guard is dropped"]
    #[track_caller]
    pub fn acquire_within(patience: Duration) -> Option<Self> {
        assert!(
            *holder() != Some(thread::current().id()),
            "This thread holds {PATH} already: use one guard at a time"
        );
        let file = open(Path::new(PATH)).unwrap_or_else(|error| panic!("{PATH}: {error}"));
        let deadline = Instant::now() + patience;
        loop {
            match sys::try_lock_exclusive(&file) {
                Ok(true) => break,
                Ok(false) if Instant::now() >= deadline => return None,
                Ok(false) => thread::sleep(RETRY),
                Err(error) => panic!("Cannot lock {PATH}: {error}"),
            }
        }
        *holder() = Some(thread::current().id());
        Some(Self { _file: file })
    }
}

impl Drop for MachineLock {
    fn drop(&mut self) {
        // Before the file is closed: after that, the holder may be another thread.
        *holder() = None;
    }
}

fn holder() -> std::sync::MutexGuard<'static, Option<ThreadId>> {
    HOLDER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens the lock file, creating it where it is missing.
///
/// `O_CREAT` on an existing file of another user is refused in a sticky directory (`fs.protected_regular`, proc_sys_fs(5)),
/// also to root. Hence the plain open first; reading is all that flock needs.
fn open(path: &Path) -> io::Result<File> {
    let deadline = Instant::now() + Duration::from_secs(1);
    loop {
        let existing = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path);
        match existing {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // Its creator may be between open and chmod.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                if Instant::now() >= deadline {
                    return Err(error);
                }
                thread::sleep(RETRY);
                continue;
            }
            done => return done,
        }
        match OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o666)
            .open(path)
        {
            Ok(file) => {
                // The umask has taken its share of the mode.
                file.set_permissions(Permissions::from_mode(0o666))?;
                return Ok(file);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, chown};
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn threads_exclude_each_other() {
        let inside = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..3 {
                        let _lock = MachineLock::acquire();
                        assert!(!inside.swap(true, Ordering::SeqCst), "two threads inside");
                        thread::sleep(Duration::from_millis(3));
                        inside.store(false, Ordering::SeqCst);
                    }
                });
            }
        });
    }

    #[test]
    fn gives_up_when_the_time_is_over() {
        let _lock = MachineLock::acquire();
        let waited = thread::scope(|scope| {
            let start = Instant::now();
            let other = scope.spawn(|| MachineLock::acquire_within(Duration::from_millis(50)));
            assert!(other.join().expect("no panic").is_none());
            start.elapsed()
        });
        assert!(waited >= Duration::from_millis(50));
    }

    #[test]
    #[should_panic(expected = "holds /tmp/prezero-tests.lock already")]
    fn refuses_a_second_guard_on_one_thread() {
        let _first = MachineLock::acquire();
        let _second = MachineLock::acquire();
    }

    #[test]
    fn opens_another_users_file_in_a_sticky_directory() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("lock");
        open(&path).expect("creates the file");
        if chown(&path, Some(65534), Some(65534)).is_err() {
            return crate::require::note_skip("root", "only root can give a file away");
        }
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o1777))
            .expect("own directory");
        open(&path).expect("opens what another user created");
    }

    #[test]
    fn creates_the_file_for_everybody() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("lock");
        open(&path).expect("creates the file");
        // Any usual umask removes the group's and the others' write bit from what open(2) creates.
        assert_eq!(path.metadata().expect("exists").mode() & 0o777, 0o666);
    }
}
