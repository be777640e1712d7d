//! The programs that the lab needs from the host, and running them.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use crate::Failure;

/// Programs and the Debian packages they are in. The kernel comes from Debian too, by apt-get.
const TOOLS: [(&str, &str); 7] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("cpio", "cpio"),
    ("jq", "jq"),
    ("apt-get", "apt"),
    ("dpkg", "dpkg"),
    ("xz", "xz-utils"),
];

/// What is missing and what to type, if something is.
pub(crate) fn missing() -> Option<String> {
    let lacking = TOOLS.iter().filter(|(tool, _)| find(tool).is_none());
    let (tools, packages): (Vec<&str>, Vec<&str>) = lacking.copied().unzip();
    (!tools.is_empty()).then(|| {
        format!(
            "there is no {}: sudo apt-get install {}",
            tools.join(", no "),
            packages.join(" ")
        )
    })
}

/// Where the shell finds a program; also where only root's shell does.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let dirs = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    dirs.map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

/// What a command writes to its stdout; the failure shows what it wrote to its stderr.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>, Failure> {
    let shown = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| Failure::other(format!("Cannot run {shown}: {error}")))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(Failure::other(format!(
        "{shown}: {}\n{}",
        output.status,
        stderr.trim_end()
    )))
}
