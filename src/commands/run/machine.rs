//! The steps of a run: plan, reserve, populate, register, load, boot.

use std::path::{Path, PathBuf};
use std::time::Duration;

use prezero_host::Host;
use prezero_memory::pool::{Lease, Pool, SegmentName};
use prezero_memory::{
    Class, Control, Growth, GuestRam, Hugepages, MemorySpec, Method, Plan, Populated, Prealloc,
    Registered, Request, Reserved, StoppedBy, Zeroed, plan,
};
use prezero_vmm::{Kvm, PROBE_GPA, Probe, ProbeControl, ProbeReport, ProbeRequest, Vm};

use super::guest::Guest;
use super::lease::Segments;
use crate::cli::RunArgs;
use crate::failure::Failure;
use crate::output::progress::Bars;
use crate::report::run::{self, Report, Stopwatch, nanoseconds};

/// How long the guest may be silent before it counts as dead.
const SILENCE: Duration = Duration::from_secs(10);

/// Guest RAM that KVM knows.
pub(crate) type VmRam = GuestRam<Registered<Vm>>;

/// One run: what was asked for, and what is known so far.
pub(super) struct Machine<'a> {
    pub(super) args: &'a RunArgs,
    /// The clearing method asked for.
    pub(super) method: Option<Method>,
    pub(super) control: Control<'a>,
    pub(super) report: &'a mut Report,
    pub(super) clock: Stopwatch,
    /// Made once the guest is known to fit into what is planned.
    pub(super) vm: Option<Vm>,
    /// Sees the memory between populating and the check of its nodes.
    pub(super) populated: &'a dyn Fn(&GuestRam<Populated>),
    /// The segments that the memory is made of, with their pool.
    pub(super) leased: Option<(PathBuf, Vec<SegmentName>)>,
    /// The phase that came upon a page with a hardware error, or on another node than planned: it may be a
    /// segment's.
    pub(super) unfit_in: Option<&'static str>,
}

impl Machine<'_> {
    /// Locks the segments that the request may be made of, and tells it of them.
    pub(super) fn lock_segments(
        &mut self,
        host: &Host,
        request: &mut Request,
    ) -> Result<Segments, Failure> {
        // The facts of the host: most of what planning takes.
        self.lap("plan", 0);
        let segments = Segments::lock(self.args, host, request, self.report)?;
        request.recycled = segments.recycled();
        if !segments.is_empty() {
            self.lap("lease", segments.bytes());
        }
        Ok(segments)
    }

    /// Starts the machine and fills in the report as far as it comes.
    pub(super) fn start(
        &mut self,
        host: &Host,
        mut request: Request,
        segments: Segments,
        mut guest: Guest,
        growth: Option<&mut Growth>,
        registered: impl FnOnce(&VmRam),
    ) -> Result<(), Failure> {
        let planned = plan(host, &request)?;
        self.lap("plan", 0);

        let vm = self.lay_out(&planned, host, &mut guest)?;

        let (mut planned, mut reserved) = self.reserve(planned, &mut request, segments)?;
        if let Some(growth) = growth {
            growth.settled();
        }
        let zeroed = loop {
            self.report.set_plan(&planned);
            for warning in planned.warnings() {
                self.report.warn(warning.to_string());
            }
            self.lap("reserve", planned.bytes());
            self.check("before populating")?;

            // Each time it may be another plan.
            guest.lay_out(&planned, host, &vm)?;
            // Without segments of pools nothing has to be done before a guest that touches its own memory.
            let lazy = planned.prealloc() == Prealloc::Off && planned.work().is_empty();
            let zeroed = match lazy {
                true => fresh(reserved),
                false => self.prepare(&planned, reserved, guest.touches_first()),
            };
            match zeroed {
                Ok(zeroed) => break zeroed,
                // Each time there are fewer segments.
                Err(_) if self.retire_unfit() => {
                    let (again, segments) = self.plan_again(&mut request)?;
                    self.lap("plan", 0);
                    (planned, reserved) = self.reserve(again, &mut request, segments)?;
                }
                Err(failure) => return Err(failure),
            }
        };
        self.check("before the memory was registered")?;
        let ram = zeroed.register(vm.clone()).map_err(|failed| failed.error)?;
        self.lap("register", planned.bytes());
        self.report.creation_ns = Some(self.clock.so_far());
        registered(&ram);
        match guest {
            Guest::Probe(probe) => self.run_probe(&planned, &vm, &probe),
            Guest::Linux(linux) => self.boot(*linux, &vm, &ram),
        }
    }

    /// Gives the guest the memory that is planned, in a machine that is made for the first plan. What KVM cannot do, or
    /// does not fit into the memory, is refused before any of it is touched.
    pub(super) fn lay_out(
        &mut self,
        planned: &Plan,
        host: &Host,
        guest: &mut Guest,
    ) -> Result<Vm, Failure> {
        let vm = match self.vm.take() {
            Some(vm) => vm,
            None => {
                let vm = Kvm::open(Path::new("/dev/kvm"))?.create_vm()?;
                if let Guest::Linux(_) = guest {
                    vm.create_irqchip()?;
                }
                vm
            }
        };
        guest.lay_out(planned, host, &vm)?;
        if let Guest::Linux(linux) = guest
            && let Some(warning) = linux.warning(host)
        {
            self.report.warn(warning);
        }
        self.lap("kvm", 0);
        self.vm = Some(vm.clone());
        Ok(vm)
    }

    /// Loads the probe guest into a slot of its own and runs it to its end.
    fn run_probe(&mut self, planned: &Plan, vm: &Vm, probe: &ProbeRequest) -> Result<(), Failure> {
        let probe_len = Probe::slot_len(probe, &vm.facts())?;
        let boot = load_slot(planned, probe_len)?.register(vm.clone());
        let boot = boot.map_err(|failed| failed.error)?;
        let memory = boot.guest_memory::<()>();
        let memory = memory.map_err(|error| Failure::new(Class::Internal, &error, None))?;
        let loaded = Probe::load(&memory, &vm.facts(), probe)?;
        self.lap("load", probe_len);

        let to_read = if self.args.verify { planned.bytes() } else { 0 };
        let bars = Bars::new("guest reads", &[(None, to_read)]);
        let cancel = self.control.cancel.cloned().unwrap_or_default();
        let ran = loaded.run(
            vm,
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

    pub(super) fn lap(&mut self, phase: &'static str, bytes: u64) {
        self.clock.lap(self.report, phase, bytes);
    }

    pub(super) fn check(&self, when: &str) -> Result<(), Failure> {
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
        request: &mut Request,
        segments: Segments,
    ) -> Result<(Plan, GuestRam<Reserved>), Failure> {
        let leases = self.lease(&planned, segments)?;
        let error = match GuestRam::reserve_with(&planned, leases) {
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
        // The other zones' segments were released with what was mapped by then.
        let (planned, segments) = self.plan_again(request)?;
        let leases = self.lease(&planned, segments)?;
        let ram = GuestRam::reserve_with(&planned, leases)?;
        Ok((planned, ram))
    }

    /// On the host as it is now, after the memory was let go.
    fn plan_again(&mut self, request: &mut Request) -> Result<(Plan, Segments), Failure> {
        let host = Host::probe();
        let segments = Segments::lock(self.args, &host, request, self.report)?;
        request.recycled = segments.recycled();
        Ok((plan(&host, request)?, segments))
    }

    fn lease(&mut self, planned: &Plan, segments: Segments) -> Result<Vec<Option<Lease>>, Failure> {
        let dir = segments.dir().map(Path::to_owned);
        let leases = segments.lease(planned, self.report)?;
        let names = leases.iter().flatten().map(Lease::name).collect();
        self.leased = dir.map(|dir| (dir, names));
        Ok(leases)
    }

    /// Retires the segments that such a page is of, after their memory was let go. False if there is none.
    fn retire_unfit(&mut self) -> bool {
        let (Some(phase), Some((dir, names))) = (self.unfit_in.take(), self.leased.take()) else {
            return false;
        };
        self.lap(phase, 0);
        let retired = Pool::open(&dir).and_then(|pool| pool.retire_unfit(&names));
        let retired = retired.unwrap_or_default();
        for left in &retired {
            self.report.warn(left.to_string());
        }
        self.lap("lease", 0);
        !retired.is_empty()
    }

    fn judge(&mut self, ran: &ProbeReport) -> Result<(), Failure> {
        self.report.first_instruction_ns = Some(nanoseconds(ran.alive_at - self.clock.start()));
        self.report.guest = Some(run::Guest {
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

/// The slot outside RAM that holds the probe's code and page tables.
fn load_slot(planned: &Plan, bytes: u64) -> Result<GuestRam<Zeroed>, Failure> {
    let slot = planned
        .slots()
        .iter()
        .map(|slot| slot.slot() + 1)
        .max()
        .unwrap_or(0);
    let plan = Plan::one_slot(slot, PROBE_GPA, bytes)?;
    fresh(GuestRam::reserve(&plan)?)
}

/// Memory that is left to the guest's first touch.
fn fresh(reserved: GuestRam<Reserved>) -> Result<GuestRam<Zeroed>, Failure> {
    reserved.unpopulated().map_err(|_| Failure {
        class: Class::Internal,
        message: "Memory that is not fresh was not to be populated".to_owned(),
        fix: None,
    })
}
