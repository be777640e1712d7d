//! A Linux guest: its files, its nodes as the zones of memory are, and what its end means.

use std::cell::RefCell;
use std::time::Instant;

use prezero_host::Host;
use prezero_memory::{Class, GuestRam, IdSet, Plan, Registered};
use prezero_vmm::{
    BootError, GuestNode, Initramfs, Kernel, KvmFacts, Linux, LinuxControl, LinuxReport,
    LinuxRequest, LinuxRun, Until, Vm,
};

use super::affinity;
use super::ended::End;
use super::machine::Machine;
use super::serial::Serial;
use super::sys;
use super::terminal::Keyboard;
use crate::cli::RunArgs;
use crate::failure::Failure;
use crate::report::boot::{Boot, BootNode, BootVcpu};
use crate::report::run::{Guest, nanoseconds};

const MIB: u64 = 1 << 20;

/// How far two guest nodes on the same host node are apart: as near as ACPI lets two nodes be.
const SAME_HOST_NODE: u8 = 11;

/// A Linux guest, from its files on.
pub(super) struct LinuxGuest {
    /// Host CPUs that were asked for, one for each vCPU.
    pinned: Option<Vec<u32>>,
    serial: Serial,
    /// Whether its memory was asked for in zones.
    in_zones: bool,
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
        let until = linux.until.as_deref().map(Until::new).transpose()?;
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
            serial: Serial::of(args)?,
            in_zones: !args.memory.memory_zone.is_empty(),
            request: Some(request),
            linux: None,
            run: LinuxRun {
                affinity: Vec::new(),
                until,
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
        )
        .map_err(|error| self.refusal(error))?;
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
        self.serial.open()
    }

    /// What is allowed, and may not be meant.
    pub(super) fn warning(&self, host: &Host) -> Option<String> {
        let vcpus = self.linux.as_ref().map_or(0, Linux::cpus) as usize;
        let cpus = host.allowed_cpus.len();
        let asked = self.pinned.is_some();
        (vcpus > cpus && !asked).then(|| {
            format!(
                "{vcpus} vCPUs share the {cpus} CPUs that this process may use: the guest stands still where one of them waits for another"
            )
        })
    }

    /// What more memory would help is told with the option that was used.
    fn refusal(&self, error: BootError) -> Failure {
        let more = error.wants_memory().filter(|_| self.in_zones);
        let mut failure = Failure::from(error);
        if let Some((_, bytes)) = more {
            // Which every size of pages but 1 GiB divides.
            let more = bytes.next_multiple_of(2 * MIB) / MIB;
            failure.fix = Some(format!("--memory-zone with {more} MiB more in any of them"));
        }
        failure
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
            pinned,
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
        let console = RefCell::new(serial.start(&cancel)?);
        let ran = linux.run(
            vm,
            &memory,
            &run,
            &LinuxControl {
                cancel: &cancel.flag(),
                deadline: None,
                on_output: &|bytes| console.borrow_mut().write(bytes),
                input: keyboard.input(),
            },
        );
        drop(keyboard);
        if let Some(unwritten) = console.into_inner().end() {
            // The run has to end although nothing can be told.
            self.report.untold |= unwritten.stalled && !sys::stderr_takes();
            self.report.warn(unwritten.warning);
        }
        self.lap("boot", 0);
        self.judge_linux(ran?, &run, pinned.is_some())
    }

    /// Reports what is known of the guest, and says whether it ended well.
    fn judge_linux(
        &mut self,
        ran: LinuxReport,
        run: &LinuxRun,
        asked_to_pin: bool,
    ) -> Result<(), Failure> {
        let start = self.clock.start();
        let since = |at: Instant| nanoseconds(at.saturating_duration_since(start));
        self.report.first_instruction_ns = ran.started.map(since);
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
                    pinned: asked_to_pin && cpus.len() == 1 && cpus == wanted,
                });
            }
        }
        if !loose.is_empty() {
            let loose = loose.join(", ");
            self.report
                .warn(format!("The host did not place vCPU {loose} as planned"));
        }
        let end = End::of(ran.end?, &self.args.linux.cmdline);
        self.report.guest = Some(Guest::ended(end.name()));
        end.judge(self.args.linux.until.as_deref())
    }
}
