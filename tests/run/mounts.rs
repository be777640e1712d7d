//! hugetlbfs mounts that only the command sees: in a mount namespace of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use prezero_testkit::skip;

/// A new directory to mount on, open to every user; removed on drop.
#[derive(Debug)]
pub(crate) struct MountPoint(PathBuf);

impl MountPoint {
    pub(crate) fn new() -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("prezero-mount-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir(&dir).expect("a new directory");
        Self(dir)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Shell that mounts 2 MiB pages there.
    pub(crate) fn mount(&self, options: &str) -> String {
        let dir = self.0.display();
        format!("mount -t hugetlbfs -o pagesize=2M,{options} none {dir} && ")
    }
}

impl Drop for MountPoint {
    fn drop(&mut self) {
        // Fails where something was left in it, and that is seen by the tests.
        let _ = fs::remove_dir(&self.0);
    }
}

/// `prezero` with `args` after `setup`, shell that may mount; `before` is what the command is started through. None,
/// after [`skip`], where mounting takes more rights than the test has.
#[track_caller]
pub(crate) fn prezero_after(
    setup: &str,
    before: &str,
    binary: &Path,
    args: &str,
) -> Option<Command> {
    let probe = MountPoint::new();
    let tried = in_namespace(&(probe.mount("size=2M") + "true"), Path::new("-"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !tried.is_ok_and(|status| status.success()) {
        skip("hugetlbfs", "only root can mount hugetlbfs");
        return None;
    }
    Some(in_namespace(
        &format!("{setup} exec {before} \"$0\" {args}"),
        binary,
    ))
}

fn in_namespace(script: &str, zeroth: &Path) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "bash", "-c", script])
        .arg(zeroth);
    command
}
