//! One start of QEMU on fresh hugepages that it touches before its guest may run.
//!
//! Its monitor greets as soon as the memory is there, before the virtual CPUs are reset: what QEMU does
//! after that is not in its time.

use std::ffi::{OsStr, OsString};
use std::process::{Command, Stdio};

use prezero_host::IdSet;
use prezero_memory::Cancel;

use super::child::{Child, limit};
use super::{Pages, Sample, peer};
use crate::failure::Failure;

/// From here on it keeps the threads that touch pages on their CPUs.
const THREAD_CONTEXT: (u32, u32) = (7, 2);

/// Ends it: it is told that its monitor is understood, as it wants, and to go.
const QUIT: &[u8] = b"{\"execute\":\"qmp_capabilities\"}{\"execute\":\"quit\"}\n";

/// A QEMU that is installed.
#[derive(Clone, Debug)]
pub(crate) struct Qemu {
    program: OsString,
    /// Its first line about itself.
    version: String,
    context: bool,
}

impl Qemu {
    /// The program's name where none is given: that for this machine.
    pub(crate) fn default_program() -> String {
        format!("qemu-system-{}", std::env::consts::ARCH)
    }

    /// Asks it for its version; or why it cannot be had.
    pub(crate) fn find(program: &OsStr, cancel: &Cancel) -> Result<Self, String> {
        let version = peer::version_of(program, cancel)?;
        let context = number(&version).is_some_and(|number| number >= THREAD_CONTEXT);
        Ok(Self {
            program: program.to_owned(),
            version,
            context,
        })
    }

    /// What it calls itself.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Whether it can keep its threads on their CPUs, which is it at its best.
    pub(crate) fn pins_threads(&self) -> bool {
        self.context
    }

    /// Starts it, waits for its greeting, and ends it. With CPUs, its threads are kept on them, if it can.
    pub(super) fn run(
        &self,
        bytes: u64,
        pages: Pages,
        threads: usize,
        cpus: Option<&IdSet>,
        cancel: &Cancel,
    ) -> Result<Sample, Failure> {
        let mut command = self.command(bytes, pages, threads, cpus);
        let before = peer::in_use(pages.page);
        let mut child = Child::start(self.program.display(), &mut command, cancel, limit(bytes))?;
        let output = child.process().and_then(|process| process.stdout.take());
        let mut output = output.ok_or_else(|| child.failed("it has no output"))?;
        let (read, at) = child.read_until(&mut output, |read| read.contains(&b'\n'))?;
        if !String::from_utf8_lossy(&read).contains("\"QMP\"") {
            return Err(child.failed("it ended without a greeting"));
        }
        let creation = at.saturating_sub(child.started());
        let taken = peer::taken_since(before, pages.page);
        let input = child.process().and_then(|process| process.stdin.as_mut());
        let told = input.map(|input| std::io::Write::write_all(input, QUIT));
        if !matches!(told, Some(Ok(()))) {
            return Err(child.failed("it does not listen"));
        }
        let (ended, words) = child.wait()?;
        // What it said last has a reader until it has ended.
        drop(output);
        if !ended.status.success() {
            return Err(peer::failed(&self.program, &ended, &words));
        }
        Ok(Sample::of_peer(creation, ended.cpu, Some(threads), taken))
    }

    fn command(&self, bytes: u64, pages: Pages, threads: usize, cpus: Option<&IdSet>) -> Command {
        let page = pages.page.bytes();
        let mut backend = format!(
            "memory-backend-memfd,id=mem,hugetlb=on,hugetlbsize={page},share=on,size={bytes},prealloc=on,prealloc-threads={threads}"
        );
        if let Some(node) = pages.node {
            backend.push_str(&format!(",host-nodes={node},policy=bind"));
        }
        let mut command = peer::command(&self.program);
        command.args(["-machine", "q35,memory-backend=mem", "-accel", "kvm", "-S"]);
        // On AMD hosts that are virtual machines, KVM offers this feature's MSR and refuses it, and QEMU 7.2
        // aborts.
        command.args(["-cpu", "host,-arch-capabilities"]);
        command.args(["-display", "none", "-nodefaults", "-qmp", "stdio"]);
        command.args(["-m", &format!("{}K", bytes >> 10)]);
        if let Some(cpus) = cpus.filter(|_| self.context) {
            // A comma inside of a value is written twice.
            let cpus = cpus.to_string().replace(',', ",,");
            command.args([
                "-object",
                &format!("thread-context,id=tc,cpu-affinity={cpus}"),
            ]);
            backend.push_str(",prealloc-context=tc");
        }
        command.args(["-object", &backend]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    }
}

/// 7 and 2 of "QEMU emulator version 7.2.17 (Debian …)".
fn number(version: &str) -> Option<(u32, u32)> {
    let (_, number) = version.split_once("version ")?;
    let mut parts = number.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use prezero_host::PageSize;

    use super::*;

    fn args(context: bool, cpus: Option<&IdSet>, node: Option<u32>) -> Vec<String> {
        let qemu = Qemu {
            program: "qemu".into(),
            version: String::new(),
            context,
        };
        let page = PageSize::HUGE_2M;
        let command = qemu.command(1 << 30, Pages { page, node }, 3, cpus);
        let args = command.get_args().map(OsStr::to_string_lossy);
        args.map(|arg| arg.into_owned()).collect()
    }

    #[test]
    fn versions_are_numbers() {
        assert_eq!(
            number("QEMU emulator version 7.2.17 (Debian 1:7.2+dfsg)"),
            Some((7, 2))
        );
        assert_eq!(number("QEMU emulator version 10.1.0"), Some((10, 1)));
        assert_eq!(number("something else"), None);
    }

    #[test]
    fn threads_are_kept_on_the_cpus_that_may_be_used_where_qemu_can() {
        let cpus: IdSet = [0, 1, 5].into_iter().collect();
        let with = args(true, Some(&cpus), None);
        assert!(with.contains(&"thread-context,id=tc,cpu-affinity=0-1,,5".to_owned()));
        let backend = |args: &[String]| args.last().cloned().unwrap_or_default();
        assert!(
            backend(&with)
                .ends_with("size=1073741824,prealloc=on,prealloc-threads=3,prealloc-context=tc")
        );
        for without in [args(false, Some(&cpus), None), args(true, None, None)] {
            assert!(
                backend(&without).ends_with("prealloc-threads=3"),
                "{without:?}"
            );
            assert!(!without.iter().any(|arg| arg.starts_with("thread-context")));
        }
        let bound = args(true, Some(&cpus), Some(1));
        assert!(
            backend(&bound)
                .ends_with("prealloc-threads=3,host-nodes=1,policy=bind,prealloc-context=tc")
        );
    }
}
