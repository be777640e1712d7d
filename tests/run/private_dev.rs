//! The command in a mount namespace whose /dev holds what a test puts there, and the host's /dev stays as it is.

use std::path::Path;
use std::process::{Command, Stdio};

use prezero_testkit::skip;

/// A user and a group that own nothing and run nothing.
pub(crate) const USER: u32 = 54_321;

/// What a command is started through to be an ordinary user's, whose only group has the same number.
pub(crate) fn as_user(user: u32) -> String {
    format!("setpriv --reuid {user} --regid {user} --groups {user}")
}

/// `prezero run` where /dev is an empty directory that `setup`, a line of shell, has filled.
#[track_caller]
pub(crate) fn prezero_run(
    setup: &str,
    become_user: &str,
    binary: &Path,
    args: &str,
) -> Option<Command> {
    prezero(setup, become_user, binary, &format!("run {args}"))
}

/// The same for any command of prezero. `become_user` is what it is started through, [`as_user`] or nothing. None,
/// after [`skip`], where that takes more rights than the test has.
#[track_caller]
pub(crate) fn prezero(
    setup: &str,
    become_user: &str,
    binary: &Path,
    args: &str,
) -> Option<Command> {
    let mount = "mount -t tmpfs -o mode=755 none /dev";
    let tried = in_namespace(&format!("{mount} && mknod /dev/null c 1 3"), Path::new("-"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !tried.is_ok_and(|status| status.success()) {
        skip("kvm", "only root can try another /dev");
        return None;
    }
    let script = format!("{mount} && {setup} exec {become_user} \"$0\" {args}");
    Some(in_namespace(&script, binary))
}

fn in_namespace(script: &str, zeroth: &Path) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "bash", "-c", script])
        .arg(zeroth);
    command
}

/// Makes /dev/kvm anew, for the owner and group and nobody else.
pub(crate) fn kvm_of_group(group: u32, mode: &str) -> String {
    // 10:232 is KVM's on every machine (Documentation/admin-guide/devices.txt).
    format!("mknod /dev/kvm c 10 232 && chown 0:{group} /dev/kvm && chmod {mode} /dev/kvm &&")
}
