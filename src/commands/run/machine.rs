//! The steps of a run: plan, reserve, populate, register, load, boot.

use std::cell::Cell;
use std::path::Path;
use std::process;
use std::time::Duration;

use prezero_host::Host;
use prezero_memory::{
    ByteSize, Class, Control, Extent, Growth, GuestRam, Hugepages, MemorySpec, NodeProgress, Plan,
    Populated, Prealloc, Registered, Request, Reserved, Stall, StoppedBy, WorkerReport, Workers,
    Zeroed, plan,
};
use prezero_vmm::{Kvm, PROBE_GPA, Probe, ProbeControl, ProbeReport, ProbeRequest, Vm};

use super::{finish, throttling};
use crate::cli::RunArgs;
use crate::failure::Failure;
use crate::output;
use crate::output::progress::Bars;
use crate::report::run::{Guest, Report, Stopwatch, nanoseconds};

/// How long the guest may be silent before it counts as dead.
const SILENCE: Duration = Duration::from_secs(10);
/// How long populating may stand still before the user is told, in seconds.
const STALL_TOLD: u64 = 10;
/// How long it may go on after it was told to stop before the process ends itself.
const STALL_ENDED: Duration = Duration::from_secs(3);

/// Guest RAM that KVM knows.
pub(crate) type VmRam = GuestRam<Registered<Vm>>;

/// One run: what was asked for, and what is known so far.
pub(super) struct Machine<'a> {
    pub(super) args: &'a RunArgs,
    pub(super) control: Control<'a>,
    pub(super) report: &'a mut Report,
    pub(super) clock: Stopwatch,
    /// Sees the memory between populating and the check of its nodes.
    pub(super) populated: &'a dyn Fn(&GuestRam<Populated>),
}

impl Machine<'_> {
    /// Starts the machine and fills in the report as far as it comes.
    pub(super) fn start(
        &mut self,
        host: &Host,
        request: Request,
        growth: Option<&mut Growth>,
        registered: impl FnOnce(&VmRam),
    ) -> Result<(), Failure> {
        let planned = plan(host, &request)?;
        self.lap("plan", 0);

        let vm = Kvm::open(Path::new("/dev/kvm"))?.create_vm()?;
        let probe = ProbeRequest {
            cpus: self.args.cpus,
            verify: self.args.verify,
            ram: planned
                .slots()
                .iter()
                .map(|slot| (slot.gpa(), slot.len()))
                .collect(),
        };
        // What KVM cannot do is refused before any memory is touched.
        let probe_len = Probe::slot_len(&probe, &vm.facts())?;
        self.lap("kvm", 0);

        let (planned, reserved) = self.reserve(planned, request)?;
        if let Some(growth) = growth {
            growth.settled();
        }
        self.report.set_plan(&planned);
        for warning in planned.warnings() {
            self.report.warn(warning.to_string());
        }
        self.lap("reserve", planned.bytes());
        self.check("before populating")?;

        let zeroed = match planned.prealloc() {
            Prealloc::Eager => self.populate(&planned, reserved)?,
            Prealloc::Off => reserved.unpopulated(),
        };
        self.check("before the memory was registered")?;
        let ram = zeroed.register(vm.clone()).map_err(|failed| failed.error)?;
        self.lap("register", planned.bytes());
        self.report.creation_ns = Some(self.clock.so_far());
        registered(&ram);

        let boot = load_slot(&planned, probe_len)?.register(vm.clone());
        let boot = boot.map_err(|failed| failed.error)?;
        let memory = boot.guest_memory::<()>();
        let memory = memory.map_err(|error| Failure::new(Class::Internal, &error, None))?;
        let loaded = Probe::load(&memory, &vm.facts(), &probe)?;
        self.lap("load", probe_len);

        let to_read = if self.args.verify { planned.bytes() } else { 0 };
        let bars = Bars::new("guest reads", &[(None, to_read)]);
        let cancel = self.control.cancel.cloned().unwrap_or_default();
        let ran = loaded.run(
            &vm,
            &memory,
            &ProbeControl {
                cancel: &cancel.flag(),
                deadline: None,
                silence: SILENCE,
                on_progress: Some(&|scanned| bars.set(0, scanned)),
            },
        );
        bars.finish();
        self.lap("boot", ran.as_ref().map_or(0, |ran| ran.scanned_bytes));
        self.judge(&ran?)
    }

    fn lap(&mut self, phase: &'static str, bytes: u64) {
        self.clock.lap(self.report, phase, bytes);
    }

    fn check(&self, when: &str) -> Result<(), Failure> {
        let by = match self.control.stopped_by() {
            None => return Ok(()),
            Some(StoppedBy::Cancel) => "Cancelled by a signal",
            Some(StoppedBy::Deadline) => "Deadline passed",
        };
        Err(Failure {
            class: Class::Stopped,
            message: format!("{by} {when}"),
            fix: None,
        })
    }

    /// Maps the memory. Where somebody else took the hugepages meanwhile, or a limit the plan does
    /// not see holds, `hugepages=auto` falls back here.
    fn reserve(
        &mut self,
        planned: Plan,
        mut request: Request,
    ) -> Result<(Plan, GuestRam<Reserved>), Failure> {
        let error = match GuestRam::reserve(&planned) {
            Ok(ram) => return Ok((planned, ram)),
            Err(error) => error,
        };
        let auto = |zone: &&mut MemorySpec| zone.hugepages == Hugepages::Auto;
        if !error.is_about_hugepages() || request.zones.iter_mut().filter(auto).count() == 0 {
            return Err(error.into());
        }
        let failure = Failure::from(error);
        let why = format!(
            "Using ordinary memory instead of hugepages: {}",
            failure.message
        );
        self.report.warn(why);
        for zone in request.zones.iter_mut().filter(auto) {
            zone.hugepages = Hugepages::Off;
            zone.hugepage_size = None;
            zone.path = None;
        }
        let planned = plan(&Host::probe(), &request)?;
        let ram = GuestRam::reserve(&planned)?;
        Ok((planned, ram))
    }

    fn populate(
        &mut self,
        planned: &Plan,
        reserved: GuestRam<Reserved>,
    ) -> Result<GuestRam<Zeroed>, Failure> {
        let throttling = throttling::start();
        let workers = Workers::start(planned.workers())?;
        let mut nodes: Vec<(Option<u32>, u64)> = Vec::new();
        for node in workers.nodes() {
            let shares = planned.extents().flat_map(Extent::shares);
            let of_node = shares.filter(|(of, _)| *of == node);
            nodes.push((Some(node), of_node.map(|(_, len)| len.bytes()).sum()));
        }
        let bars = Bars::new("populate", &nodes);
        let progress = |nodes: &[NodeProgress]| {
            for (n, node) in nodes.iter().enumerate() {
                bars.set(n, node.done);
            }
        };
        let (report, json) = (&*self.report, self.args.json);
        let told = Cell::new(false);
        let stalled = |stall: &Stall| on_stall(stall, &told, report, json);
        let control = Control {
            progress: Some(&progress),
            stalled: Some(&stalled),
            ..self.control
        };
        let populated = reserved.populate(&workers, &control);
        drop(workers);
        bars.finish();
        let (populated, done) = populated.map_err(|failed| failed.error)?;
        (self.populated)(&populated);
        self.report.set_workers(&done.workers);
        throttling::note(self.report, &throttling);
        self.warn_of_loose(planned, &done.workers);
        self.lap("populate", done.bytes);

        let (zeroed, placement) = populated
            .check_placement(&self.control)
            .map_err(|failed| failed.error)?;
        if let Some(warning) = placement.warning() {
            self.report.warn(warning);
        }
        self.report.placement = Some((&placement).into());
        self.lap("verify", planned.bytes());
        Ok(zeroed)
    }

    fn warn_of_loose(&mut self, planned: &Plan, workers: &[WorkerReport]) {
        let loose = workers.iter().filter(|worker| !worker.pinned).count();
        // Where the host shows no topology the plan has warned already.
        let to_pin = planned
            .workers()
            .iter()
            .all(|worker| worker.cpu().is_some());
        if loose > 0 && to_pin {
            let all = workers.len();
            self.report.warn(format!(
                "{loose} of {all} workers could not be pinned to a CPU and may share one"
            ));
        }
    }

    fn judge(&mut self, ran: &ProbeReport) -> Result<(), Failure> {
        self.report.first_instruction_ns = Some(nanoseconds(ran.alive_at - self.clock.start()));
        self.report.guest = Some(Guest {
            exit: "shutdown",
            scanned_bytes: ran.scanned_bytes,
            scan_ns: nanoseconds(ran.scan_time),
            nonzero_bytes: ran.nonzero_bytes,
            first_nonzero_gpa: ran.first_nonzero_gpa,
        });
        let Some(gpa) = ran.first_nonzero_gpa else {
            return Ok(());
        };
        Err(Failure {
            class: Class::Guest,
            message: format!(
                "The guest found {} bytes of its memory that are not zero, the first at guest address {gpa:#x}",
                ran.nonzero_bytes
            ),
            fix: Some(
                "run it again with --json and report both results: memory must be zero".to_owned(),
            ),
        })
    }
}

/// Tells the user that populating stands still, and ends the process if it was told to stop and the
/// kernel does not return: nothing else ends a call that the kernel retries for ever.
fn on_stall(stall: &Stall, told: &Cell<bool>, report: &Report, json: bool) {
    let far = stall.nodes.iter().map(|node| {
        let (done, total) = (ByteSize(node.done), ByteSize(node.total));
        format!("{done} of {total} on node {}", node.node)
    });
    let far = far.collect::<Vec<_>>().join(", ");
    let seconds = stall.seconds;
    if stall.stopping.is_some_and(|told| told >= STALL_ENDED) {
        let failure = Failure {
            class: Class::Stopped,
            message: format!(
                "Stopped while the kernel did not return from populating for {seconds} s, with {far}"
            ),
            fix: Some(match report.grown.is_empty() {
                true => "sudo dmesg | tail; cat /proc/pressure/memory".to_owned(),
                // Nothing is given back from here: the pages are still mapped.
                false => {
                    "prezero doctor shows what --reserve added and how to take it out".to_owned()
                }
            }),
        };
        let code = crate::failure::exit_code(failure.class);
        let _ = finish(&mut report.clone(), Err(failure), json);
        process::exit(code.into());
    }
    if seconds >= STALL_TOLD && !told.replace(true) {
        output::warn(&format!("No page was populated for {seconds} s: {far}"));
    }
}

/// The slot outside RAM that holds the probe's code and page tables.
fn load_slot(planned: &Plan, bytes: u64) -> Result<GuestRam<Zeroed>, Failure> {
    let slot = planned
        .slots()
        .iter()
        .map(|slot| slot.slot() + 1)
        .max()
        .unwrap_or(0);
    let plan = Plan::one_slot(slot, PROBE_GPA, bytes)?;
    Ok(GuestRam::reserve(&plan)?.unpopulated())
}
