//! A hugetlbfs mount for one test.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::require::skip;
use crate::sys;

/// A hugetlbfs mount that only the calling thread sees, with the threads and processes it starts. It goes with them,
/// however they end, and the pages in its files with it.
#[derive(Debug)]
pub struct PrivateMount {
    dir: PathBuf,
}

impl PrivateMount {
    /// A mount with pages of `page_size` bytes.
    ///
    /// None, after [`skip`] for `hugetlbfs`, where mounting takes more rights than the test has.
    ///
    /// # Panics
    ///
    /// As [`skip`] does, and when no directory can be made to mount on.
    #[must_use = "it is unmounted when the guard is dropped, and without one the test has to return"]
    #[track_caller]
    pub fn hugetlbfs(page_size: u64) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("prezero-private-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir(&dir).expect("a new directory");
        // From here on drop removes it.
        let mount = Self { dir };
        match sys::mount_hugetlbfs(&mount.c_path(), page_size) {
            Ok(()) => Some(mount),
            Err(error) => {
                skip("hugetlbfs", &format!("cannot mount it: {error}"));
                None
            }
        }
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir
    }

    fn c_path(&self) -> CString {
        CString::new(self.dir.as_os_str().as_bytes()).expect("a path without NUL")
    }
}

impl Drop for PrivateMount {
    fn drop(&mut self) {
        sys::unmount(&self.c_path());
        let _ = fs::remove_dir(&self.dir);
    }
}
