//! One start of Cloud Hypervisor on fresh hugepages that it touches before its guest runs.
//!
//! Its event monitor says "booted" when the memory is there and the virtual CPUs are started. The time is
//! that of reading it from a named pipe; the events' own times begin some milliseconds after the exec.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use prezero_memory::Cancel;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

use super::child::{Child, limit};
use super::{Pages, Sample, events, peer, stub_kernel};
use crate::failure::Failure;

/// A Cloud Hypervisor that is installed, and what it needs to start.
#[derive(Debug)]
pub(crate) struct CloudHypervisor {
    program: OsString,
    /// Its first line about itself.
    version: String,
    /// A directory for its kernel and its events.
    dir: PathBuf,
}

impl CloudHypervisor {
    /// The program's name where none is given.
    pub(crate) const PROGRAM: &str = "cloud-hypervisor";

    /// Asks it for its version, and puts what it needs into `dir`; or why it cannot be had.
    pub(crate) fn find(program: &OsStr, dir: &Path, cancel: &Cancel) -> Result<Self, String> {
        let version = peer::version_of(program, cancel)?;
        let peer = Self {
            program: program.to_owned(),
            version,
            dir: dir.to_owned(),
        };
        let written = fs::write(peer.kernel(), stub_kernel::file());
        let kernel = peer.kernel();
        written
            .map_err(|error| format!("cannot be given a kernel: {}: {error}", kernel.display()))?;
        Ok(peer)
    }

    /// What it calls itself.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Starts it, waits until it has booted, and ends it.
    pub(super) fn run(&self, bytes: u64, pages: Pages, cancel: &Cancel) -> Result<Sample, Failure> {
        let pipe = self.pipe().map_err(|error| Failure {
            class: prezero_memory::Class::Internal,
            message: format!("{}: {error}", self.events().display()),
            fix: None,
        })?;
        let mut command = self.command(bytes, pages);
        let before = peer::in_use(pages.page);
        let mut child = Child::start(self.program.display(), &mut command, cancel, limit(bytes))?;
        let (_, at) = child.read_until(pipe, events::booted)?;
        let creation = at.saturating_sub(child.started());
        let taken = peer::taken_since(before, pages.page);
        if let Some(process) = child.process() {
            // Asked to, it would first shut its machine down.
            process.kill().map_err(|error| Failure {
                class: prezero_memory::Class::Internal,
                message: format!("Cannot end {}: {error}", self.program.display()),
                fix: None,
            })?;
        }
        let (ended, _) = child.wait()?;
        Ok(Sample::of_peer(creation, ended.cpu, None, taken))
    }

    fn command(&self, bytes: u64, pages: Pages) -> Command {
        let page = pages.page.bytes();
        let mut command = peer::command(&self.program);
        let memory = format!("size={bytes},hugepages=on,hugepage_size={page},prefault=on");
        match pages.node {
            None => command.args(["--memory", &memory]),
            // Only a zone can have a node.
            Some(node) => {
                let zone = format!("id=mem,{memory},host_numa_node={node}");
                command.args(["--memory", "size=0", "--memory-zone", &zone])
            }
        };
        command.args(["--cpus", "boot=1", "--serial", "off", "--console", "off"]);
        command.arg("--kernel").arg(self.kernel());
        let mut path = OsString::from("path=");
        path.push(self.events());
        command.arg("--event-monitor").arg(path);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// The pipe, empty, and open for reading and writing, so that neither end waits for the other.
    fn pipe(&self) -> io::Result<File> {
        let path = self.events();
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        let nonblocking = OFlags::NONBLOCK.bits();
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        // A bit of a C int.
        #[allow(clippy::cast_possible_wrap)]
        options.custom_flags(nonblocking as i32).open(path)
    }

    fn kernel(&self) -> PathBuf {
        self.dir.join("kernel")
    }

    fn events(&self) -> PathBuf {
        self.dir.join("events")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use prezero_host::PageSize;

    use super::*;

    const PAGES: Pages = Pages {
        page: PageSize::HUGE_2M,
        node: None,
    };

    /// A program that answers like Cloud Hypervisor, and then does what the script says with its events.
    fn monitor(dir: &Path, script: &str) -> CloudHypervisor {
        let program = dir.join("monitor");
        let text = format!(
            "#!/bin/sh\n[ \"$1\" = --version ] && exec echo cloud-hypervisor v53.0.0\n\
             while [ \"$1\" != --event-monitor ]; do shift; done\nevents=${{2#path=}}\n{script}\n"
        );
        fs::write(&program, text).expect("a directory");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it is ours");
        let found = CloudHypervisor::find(program.as_os_str(), dir, &Cancel::new());
        found.expect("it answers")
    }

    #[test]
    fn its_time_ends_when_it_says_that_it_has_booted() {
        let dir = tempfile::tempdir().expect("a directory");
        let events = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/fixtures/peers/cloud-hypervisor-events.json"
        );
        // In two parts, cut in the middle of an object, and it goes on running.
        let script = format!(
            "head -c 300 {events} >\"$events\"; tail -c +301 {events} >\"$events\"; exec sleep 1000"
        );
        let peer = monitor(dir.path(), &script);
        assert_eq!(peer.version, "cloud-hypervisor v53.0.0");
        let sample = peer.run(64 << 20, PAGES, &Cancel::new());
        let sample = sample.expect("it boots");
        assert!(sample.creation > Duration::ZERO && sample.first_instruction.is_none());
    }

    #[test]
    fn one_that_ends_before_is_a_failure_in_its_own_words() {
        let dir = tempfile::tempdir().expect("a directory");
        let peer = monitor(dir.path(), "echo 'no such memory' >&2; exit 1");
        let failure = peer.run(64 << 20, PAGES, &Cancel::new());
        let failure = failure.expect_err("it does not boot");
        assert!(
            failure.message.contains("no such memory"),
            "{}",
            failure.message
        );
    }

    #[test]
    fn memory_of_one_node_is_a_zone() {
        let dir = tempfile::tempdir().expect("a directory");
        let peer = monitor(dir.path(), "");
        let args = |node| {
            let command = peer.command(64 << 20, Pages { node, ..PAGES });
            let args = command.get_args().map(OsStr::to_string_lossy);
            args.take(4).collect::<Vec<_>>().join(" ")
        };
        let size = "size=67108864,hugepages=on,hugepage_size=2097152,prefault=on";
        assert!(args(None).starts_with(&format!("--memory {size} ")));
        let zone = format!("--memory size=0 --memory-zone id=mem,{size},host_numa_node=1");
        assert_eq!(args(Some(1)), zone);
    }
}
