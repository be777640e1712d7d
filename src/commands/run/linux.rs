//! A Linux guest: its files, its nodes as the zones of memory are, and what its end means.

use std::time::Instant;

use prezero_host::Host;
use prezero_memory::{Class, GuestRam, IdSet, Plan, Registered};
use prezero_vmm::{
    GuestNode, Initramfs, Kernel, KvmFacts, Linux, LinuxControl, LinuxEnd, LinuxReport,
    LinuxRequest, LinuxRun, Vm,
};

use super::affinity;
use super::machine::Machine;
use super::serial::Serial;
use super::terminal::Keyboard;
use crate::cli::RunArgs;
use crate::failure::Failure;
use crate::report::boot::{Boot, BootNode, BootVcpu};
use crate::report::run::{Guest, nanoseconds};

/// How far two guest nodes on the same host node are apart: as near as ACPI lets two nodes be.
const SAME_HOST_NODE: u8 = 11;

/// A Linux guest, from its files on.
pub(super) struct LinuxGuest {
    /// Host CPUs that were asked for, one for each vCPU.
    pinned: Option<Vec<u32>>,
    serial: Serial,
    /// Until it has been laid out.
    request: Option<LinuxRequest>,
    linux: Option<Linux>,
    run: LinuxRun,
    boot: Boot,
}

impl LinuxGuest {
    /// Opens the files, if a kernel was asked for.
    pub(super) fn open(args: &RunArgs) -> Result<Option<Self>, Failure> {
        let linux = &args.linux;
        let Some(path) = &linux.kernel else {
            return Ok(None);
        };
        let kernel = Kernel::open(path)?;
        let initramfs = linux.initramfs.as_deref().map(Initramfs::open);
        let pinned = linux.cpu_affinity.as_deref();
        let boot = Boot {
            kernel: path.display().to_string(),
            format: kernel.format(),
            protocol: kernel.protocol().name(),
            cmdline: linux.cmdline.clone(),
            ..Boot::default()
        };
        let request = LinuxRequest {
            kernel,
            initramfs: initramfs.transpose()?,
            cmdline: linux.cmdline.clone(),
            cpus: args.cpus,
            nodes: Vec::new(),
        };
        Ok(Some(Self {
            pinned: pinned
                .map(|list| affinity::parse(list, args.cpus))
                .transpose()?,
            serial: Serial::open(args)?,
            request: Some(request),
            linux: None,
            run: LinuxRun {
                affinity: Vec::new(),
                until: linux.until.clone().filter(|text| !text.is_empty()),
            },
            boot,
        }))
    }

    pub(super) fn lay_out(
        &mut self,
        planned: &Plan,
        host: &Host,
        facts: &KvmFacts,
    ) -> Result<(), Failure> {
        let zones = zones(planned);
        let nodes = zones.iter().map(|zone| GuestNode {
            ram: zone.ram.clone(),
            distances: zones.iter().map(|to| distance(host, zone, to)).collect(),
        });
        let request = match (self.linux.take(), self.request.take()) {
            (Some(linux), _) => linux.into_request(),
            (None, Some(request)) => request,
            (None, None) => return Err(not_laid_out()),
        };
        let linux = Linux::new(
            LinuxRequest {
                nodes: nodes.collect(),
                ..request
            },
            facts,
        )?;
        let vcpus: Vec<u32> = (0..linux.cpus()).map(|cpu| linux.node_of(cpu)).collect();
        self.run.affinity = match &self.pinned {
            Some(cpus) => affinity::pinned(cpus, host)?,
            None => {
                let host_nodes = vcpus.iter().map(|&node| &zones[node as usize].host_nodes);
                host_nodes
                    .map(|nodes| affinity::near(nodes, host))
                    .collect()
            }
        };
        self.boot.file_bytes = linux.file_bytes();
        self.boot.nodes = (0..)
            .zip(&zones)
            .map(|(node, zone)| BootNode {
                node,
                bytes: zone.ram.iter().map(|range| range.1).sum(),
                host_nodes: zone.host_nodes.iter().collect(),
            })
            .collect();
        self.linux = Some(linux);
        Ok(())
    }

    pub(super) fn loads_first(&self) -> Vec<u64> {
        self.linux.as_ref().map_or(Vec::new(), Linux::loads_first)
    }
}

fn not_laid_out() -> Failure {
    Failure {
        class: Class::Internal,
        message: "The guest's memory has not been laid out".to_owned(),
        fix: None,
    }
}

/// A zone of guest memory, which the guest sees as a node.
struct Zone {
    ram: Vec<(u64, u64)>,
    host_nodes: IdSet,
}

/// The zones of a plan, each with its slots.
fn zones(planned: &Plan) -> Vec<Zone> {
    let mut zones: Vec<Zone> = Vec::new();
    for slot in planned.slots() {
        let zone = slot.zone();
        while zones.len() <= zone {
            zones.push(Zone {
                ram: Vec::new(),
                host_nodes: IdSet::default(),
            });
        }
        let nodes = slot
            .extents()
            .iter()
            .flat_map(|extent| extent.nodes().iter());
        let of_zone = &mut zones[zone];
        of_zone.ram.push((slot.gpa(), slot.len()));
        of_zone.host_nodes = of_zone.host_nodes.iter().chain(nodes).collect();
    }
    zones
}

/// How far one zone is from another, as the host has it between their first nodes.
fn distance(host: &Host, from: &Zone, to: &Zone) -> u8 {
    if std::ptr::eq(from, to) {
        return 10;
    }
    let (Some(a), Some(b)) = (from.host_nodes.first(), to.host_nodes.first()) else {
        return 20;
    };
    if a == b {
        return SAME_HOST_NODE;
    }
    let distance = host.node(a).and_then(|node| node.distance(b));
    distance.map_or(20, |far| u8::try_from(far).unwrap_or(u8::MAX - 1))
}

impl Machine<'_> {
    /// Loads the kernel into registered memory and runs it to its end.
    pub(super) fn boot(
        &mut self,
        guest: LinuxGuest,
        vm: &Vm,
        ram: &GuestRam<Registered<Vm>>,
    ) -> Result<(), Failure> {
        let LinuxGuest {
            linux,
            serial,
            run,
            boot,
            ..
        } = guest;
        let mut linux = linux.ok_or_else(not_laid_out)?;
        let memory = ram.guest_memory::<()>();
        let memory = memory.map_err(|error| Failure::new(Class::Internal, &error, None))?;
        linux.load(&memory)?;
        self.lap("load", boot.file_bytes);
        self.report.boot = Some(boot);
        self.check("before the guest was started")?;

        let cancel = self.control.cancel.cloned().unwrap_or_default();
        let keyboard = Keyboard::of_guest(&serial)?;
        let ran = linux.run(
            vm,
            &memory,
            &run,
            &LinuxControl {
                cancel: &cancel.flag(),
                deadline: None,
                on_output: &|bytes| serial.write(bytes),
                input: keyboard.input(),
            },
        );
        drop(keyboard);
        if let Some(warning) = serial.end() {
            self.report.warn(warning);
        }
        self.lap("boot", 0);
        self.judge_linux(&ran?, &run)
    }

    fn judge_linux(&mut self, ran: &LinuxReport, run: &LinuxRun) -> Result<(), Failure> {
        let start = self.clock.start();
        let since = |at: Instant| nanoseconds(at.saturating_duration_since(start));
        self.report.first_instruction_ns = ran.started.map(since);
        let end = End::of(ran.end, &self.args.linux.cmdline);
        self.report.guest = Some(Guest::ended(end.name()));
        let mut loose = Vec::new();
        if let Some(boot) = &mut self.report.boot {
            boot.first_serial_ns = ran.first_byte.map(since);
            boot.user_space_ns = ran.user_space.map(since);
            boot.until_ns = ran.until.map(since);
            boot.ended_ns = Some(since(ran.ended));
            let vcpus = (0..).zip(&ran.vcpus).zip(&run.affinity);
            for ((vcpu, (node, cpus)), wanted) in vcpus {
                if !wanted.is_empty() && cpus != wanted {
                    loose.push(format!("{vcpu} (on CPUs {cpus}, not {wanted})"));
                }
                boot.vcpus.push(BootVcpu {
                    vcpu,
                    node: *node,
                    host_cpus: cpus.iter().collect(),
                    pinned: cpus.len() == 1 && cpus == wanted,
                });
            }
        }
        if !loose.is_empty() {
            let loose = loose.join(", ");
            self.report
                .warn(format!("The host did not place vCPU {loose} as planned"));
        }
        end.judge(run.until.as_deref())
    }
}

/// How the guest ended, with what its command line says about resets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    PowerOff,
    Reset,
    Panic,
    TripleFault(u32),
    DebugExit(u8),
    Until,
    Other,
}

impl End {
    fn of(end: LinuxEnd, cmdline: &str) -> Self {
        match end {
            LinuxEnd::PowerOff => Self::PowerOff,
            LinuxEnd::WarmReset if marks_panics(cmdline) => Self::Panic,
            LinuxEnd::Reset | LinuxEnd::WarmReset => Self::Reset,
            LinuxEnd::Panic => Self::Panic,
            LinuxEnd::TripleFault { cpu } => Self::TripleFault(cpu),
            LinuxEnd::DebugExit(code) => Self::DebugExit(code),
            LinuxEnd::Until => Self::Until,
            _ => Self::Other,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::PowerOff => "power-off",
            Self::Reset => "reset",
            Self::Panic => "panic",
            Self::TripleFault(_) => "triple-fault",
            Self::DebugExit(_) => "debug-exit",
            Self::Until => "until",
            Self::Other => "other",
        }
    }

    /// Whether that is well; `until` is the text that was to come first.
    fn judge(self, until: Option<&str>) -> Result<(), Failure> {
        let (message, fix) = match self {
            Self::Panic => (
                "The guest's kernel reported a panic".to_owned(),
                "run it again with --serial FILE, and without quiet in --cmdline: the reason is on its console",
            ),
            Self::TripleFault(cpu) => (
                format!("vCPU {cpu} shut down with a triple fault"),
                "--cmdline \"… earlyprintk=ttyS0\" shows how far the kernel came; reboot=t in it does this on purpose",
            ),
            Self::DebugExit(code) if code != 0 => (
                format!("A program of the guest ended the machine with code {code}"),
                "run it again with --serial FILE, to see what it said",
            ),
            _ => match until.filter(|_| self != Self::Until) {
                Some(until) => (
                    format!(
                        "The guest ended ({}) before {until:?} was on its console",
                        self.name()
                    ),
                    "run it again without --until, and with --serial FILE, to see what it wrote",
                ),
                None => return Ok(()),
            },
        };
        Err(Failure {
            class: Class::Guest,
            message,
            fix: Some(fix.to_owned()),
        })
    }
}

/// Whether a kernel with this command line asks for a warm reset when it panics, and not otherwise.
fn marks_panics(cmdline: &str) -> bool {
    let kinds = cmdline
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("reboot="))
        .flat_map(|kinds| kinds.split(','));
    let (mut after_panic, mut always) = (false, false);
    for kind in kinds {
        after_panic |= kind.starts_with("panic_w");
        always |= kind.starts_with('w');
    }
    after_panic && !always
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::DEFAULT_CMDLINE;

    #[test]
    fn a_warm_reset_is_a_panic_only_where_the_command_line_says_so() {
        let end = |cmdline| End::of(LinuxEnd::WarmReset, cmdline);
        assert_eq!(end(DEFAULT_CMDLINE), End::Panic);
        assert_eq!(end("reboot=panic_warm"), End::Panic);
        for cmdline in [
            "",
            "reboot=k",
            "reboot=w",
            "reboot=w,panic_w",
            "noreboot=panic_w",
        ] {
            assert_eq!(end(cmdline), End::Reset, "{cmdline}");
        }
        assert_eq!(End::of(LinuxEnd::Reset, DEFAULT_CMDLINE), End::Reset);
    }

    #[test]
    fn ends_are_judged() {
        for end in [End::PowerOff, End::Reset, End::DebugExit(0)] {
            assert!(end.judge(None).is_ok(), "{end:?}");
            let failure = end.judge(Some("login:")).expect_err("too early");
            assert!(failure.message.contains("before \"login:\""), "{failure:?}");
        }
        assert!(End::Until.judge(Some("login:")).is_ok());
        for end in [End::Panic, End::TripleFault(1), End::DebugExit(1)] {
            for until in [None, Some("login:")] {
                let failure = end.judge(until).expect_err("a failure");
                assert_eq!(failure.class, Class::Guest);
                assert!(failure.fix.is_some() && !failure.message.contains("before"));
            }
        }
    }
}
