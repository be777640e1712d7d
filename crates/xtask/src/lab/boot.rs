//! One boot of one machine: QEMU from start to power-off, within bounds.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::budget::Meter;
use super::machine::Machine;
use crate::sys;

/// How long a machine may take to boot, and between two of its scenarios.
const BOOT: Duration = Duration::from_secs(60);

/// What a boot leaves.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The first serial port, where the kernel, scenarios and everything they start write to.
    pub(crate) console: String,
    /// The second serial port: see [`super::report`].
    pub(crate) results: String,
    /// For scenarios that were not finished: how it ended.
    pub(crate) how: String,
    /// Seconds that QEMU spent on each scenario.
    pub(crate) cpu_seconds: BTreeMap<String, f64>,
}

/// Boots the machine and waits for it to power off. `seconds` is how long one of its scenarios may take, which the machine
/// itself ends then: one that says nothing for longer has stopped working. `dir` is for files of this boot only.
pub(crate) fn boot(
    machine: &Machine,
    kernel: &Path,
    initramfs: &Path,
    seconds: u64,
    dir: &Path,
    interrupted: &AtomicBool,
) -> io::Result<Ended> {
    let port = |name: &str| format!("file:{}", dir.join(name).display());
    let mut qemu = Command::new("qemu-system-x86_64");
    // Software emulation of everything: it needs no KVM, and has SVM and 1 GiB pages whatever the host's CPU is. All CPUs
    // of a machine share one thread: with one thread each, nested guests sometimes left the machine's kernel in a soft
    // lockup (QEMU 7.2).
    qemu.args(["-accel", "tcg,thread=single", "-cpu", "max"])
        .args(["-display", "none", "-nodefaults", "-no-reboot"])
        .args(machine.options())
        .args(["-serial", &port("console"), "-serial", &port("results")])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(initramfs)
        .args(["-append", &machine.kernel_arguments()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(dir.join("qemu"))?);
    sys::end_with_parent(&mut qemu);
    let limit = BOOT + Duration::from_secs(seconds);
    let mut child = qemu.spawn()?;
    let mut meter = Meter::new(child.id());
    let mut look = || meter.look(&read(&dir.join("results")));
    let how = match wait(&mut child, limit, interrupted, &mut look)? {
        Stopped::Itself(status) => {
            let said = read(&dir.join("qemu"));
            format!("the machine ended ({status}) {}", said.trim())
        }
        Stopped::Interrupted => "the lab was interrupted".to_owned(),
        Stopped::Late => format!("the machine was stopped, silent for {} s", limit.as_secs()),
    };
    Ok(Ended {
        console: read(&dir.join("console")),
        results: read(&dir.join("results")),
        how: how.trim_end().to_owned(),
        cpu_seconds: meter.spent(),
    })
}

enum Stopped {
    Itself(ExitStatus),
    Interrupted,
    Late,
}

/// Until it ends, or has said nothing for so long. `look` is how many lines it has said.
fn wait(
    child: &mut Child,
    limit: Duration,
    interrupted: &AtomicBool,
    look: &mut dyn FnMut() -> usize,
) -> io::Result<Stopped> {
    let (mut lines, mut since) = (0, Instant::now());
    let why = loop {
        let said = look();
        if said != lines {
            (lines, since) = (said, Instant::now());
        }
        if let Some(status) = child.try_wait()? {
            return Ok(Stopped::Itself(status));
        }
        if interrupted.load(Ordering::SeqCst) {
            break Stopped::Interrupted;
        }
        if since.elapsed() > limit {
            break Stopped::Late;
        }
        thread::sleep(Duration::from_millis(20));
    };
    child.kill()?;
    child.wait()?;
    Ok(why)
}

/// A file that may not be there, and may hold anything.
fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_end_is_ended() {
        let sleep = || Command::new("sleep").arg("600").spawn().expect("sleep");
        let never = AtomicBool::new(false);
        let mut child = sleep();
        let stopped =
            wait(&mut child, Duration::from_millis(50), &never, &mut || 0).expect("waited for");
        assert!(matches!(stopped, Stopped::Late));
        assert!(child.try_wait().expect("waited for").is_some());
        let mut child = sleep();
        let at_once = AtomicBool::new(true);
        let stopped =
            wait(&mut child, Duration::from_secs(600), &at_once, &mut || 0).expect("waited for");
        assert!(matches!(stopped, Stopped::Interrupted));
        assert!(child.try_wait().expect("waited for").is_some());
    }

    #[test]
    fn what_goes_on_saying_something_is_not_ended() {
        let mut child = Command::new("sleep").arg("0.4").spawn().expect("sleep");
        let mut lines = 0;
        let mut look = || {
            lines += 1;
            lines
        };
        let never = AtomicBool::new(false);
        let ended = wait(&mut child, Duration::from_millis(200), &never, &mut look);
        assert!(matches!(ended.expect("waited for"), Stopped::Itself(_)));
    }
}
