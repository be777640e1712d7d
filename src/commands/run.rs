//! `prezero run`: plan, reserve, populate, register, start the guest, report.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use prezero_host::Host;
use prezero_memory::{
    Cancel, Class, Control, GuestRam, Hugepages, MemorySpec, NodeProgress, Plan, Prealloc,
    Registered, Request, ReserveError, Reserved, Workers, Zeroed, plan,
};
use prezero_vmm::{Kvm, PROBE_GPA, Probe, ProbeControl, ProbeRequest, Vm};

use crate::cli::RunArgs;
use crate::failure::Failure;
use crate::output;
use crate::output::progress::Bars;
use crate::report::{Guest, PlacementFacts, Report, RequestFacts, Stopwatch, nanoseconds};
use crate::stop;

/// How long the guest may be silent before it counts as dead.
const SILENCE: Duration = Duration::from_secs(10);

/// Guest RAM that KVM knows.
pub(crate) type VmRam = GuestRam<Registered<Vm>>;

/// Runs the command and prints its report.
pub(crate) fn main(args: &RunArgs, start: Instant) -> ExitCode {
    let mut report = Report::new();
    let result = match stop::on_signals() {
        Ok(cancel) => run(args, start, &cancel, &mut report, |_| ()),
        Err(error) => Err(Failure::new(Class::Internal, &error, None)),
    };
    output::finish(report, result, args.json)
}

/// Starts the machine and fills in the report as far as it comes. `registered` sees the memory just
/// before the guest does.
fn run(
    args: &RunArgs,
    start: Instant,
    cancel: &Cancel,
    report: &mut Report,
    registered: impl FnOnce(&VmRam),
) -> Result<(), Failure> {
    let mut clock = Stopwatch::new(start);
    let spec: MemorySpec = args.memory.parse()?;
    let mut request = Request {
        zones: vec![spec],
        prealloc: args.prealloc.into(),
        threads: args.threads,
        ..Request::default()
    };
    report.request = Some(RequestFacts {
        bytes: request.zones.iter().map(|zone| zone.bytes).sum(),
        prealloc: match request.prealloc {
            Prealloc::Eager => "eager",
            Prealloc::Off => "off",
        },
        method: None,
    });
    let host = Host::probe();
    report.set_host(&host);
    for problem in &host.problems {
        report.warn(problem.to_string());
    }
    let planned = plan(&host, &request)?;
    clock.lap(report, "plan", 0);

    let vm = Kvm::open(Path::new("/dev/kvm"))?.create_vm()?;
    let probe = ProbeRequest {
        cpus: args.cpus,
        verify: args.verify,
        ram: planned
            .slots()
            .iter()
            .map(|slot| (slot.gpa(), slot.len()))
            .collect(),
    };
    // What KVM cannot do is refused before any memory is touched.
    let probe_len = Probe::slot_len(&probe, &vm.facts())?;
    clock.lap(report, "kvm", 0);

    let (planned, reserved) = reserve(planned, &mut request, report)?;
    report.set_plan(&planned);
    for warning in planned.warnings() {
        report.warn(warning.to_string());
    }
    clock.lap(report, "reserve", planned.bytes());
    check(cancel)?;

    let zeroed = match planned.prealloc() {
        Prealloc::Eager => populate(&planned, reserved, cancel, report, &mut clock)?,
        Prealloc::Off => reserved.unpopulated(),
    };
    check(cancel)?;

    let ram = zeroed.register(vm.clone()).map_err(|failed| failed.error)?;
    clock.lap(report, "register", planned.bytes());
    report.creation_ns = Some(clock.so_far());
    registered(&ram);

    let boot = load_slot(&planned, probe_len)?.register(vm.clone());
    let boot = boot.map_err(|failed| failed.error)?;
    let memory = boot.guest_memory::<()>();
    let memory = memory.map_err(|error| Failure::new(Class::Internal, &error, None))?;
    let loaded = Probe::load(&memory, &vm.facts(), &probe)?;
    clock.lap(report, "load", probe_len);

    let bars = Bars::new(
        "guest reads",
        &[(None, if args.verify { planned.bytes() } else { 0 })],
    );
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
    clock.lap(
        report,
        "boot",
        ran.as_ref().map_or(0, |ran| ran.scanned_bytes),
    );
    let ran = ran?;
    report.first_instruction_ns = Some(nanoseconds(ran.alive_at - clock.start()));
    report.guest = Some(Guest {
        exit: "shutdown",
        scanned_bytes: ran.scanned_bytes,
        scan_ns: nanoseconds(ran.scan_time),
        nonzero_bytes: ran.nonzero_bytes,
        first_nonzero_gpa: ran.first_nonzero_gpa,
    });
    match ran.first_nonzero_gpa {
        Some(gpa) => Err(Failure {
            class: Class::Guest,
            message: format!(
                "The guest found {} bytes of its memory that are not zero, the first at guest address {gpa:#x}",
                ran.nonzero_bytes
            ),
            fix: Some(
                "run it again with --json and report both results: memory must be zero".to_owned(),
            ),
        }),
        None => Ok(()),
    }
}

fn check(cancel: &Cancel) -> Result<(), Failure> {
    match cancel.is_cancelled() {
        true => Err(Failure::cancelled()),
        false => Ok(()),
    }
}

/// Maps the memory. Where somebody else took the hugepages meanwhile, or a limit the plan does not
/// see holds, `hugepages=auto` falls back here.
fn reserve(
    planned: Plan,
    request: &mut Request,
    report: &mut Report,
) -> Result<(Plan, GuestRam<Reserved>), Failure> {
    let error = match GuestRam::reserve(&planned) {
        Ok(ram) => return Ok((planned, ram)),
        Err(error) => error,
    };
    let auto = request
        .zones
        .iter()
        .any(|zone| zone.hugepages == Hugepages::Auto);
    if !auto
        || !matches!(
            error,
            ReserveError::Hugepages { .. } | ReserveError::FileSizeLimit { .. }
        )
    {
        return Err(error.into());
    }
    let failure = Failure::from(error);
    report.warn(format!(
        "Using ordinary memory instead of hugepages: {}",
        failure.message
    ));
    for zone in &mut request.zones {
        if zone.hugepages == Hugepages::Auto {
            zone.hugepages = Hugepages::Off;
            zone.hugepage_size = None;
        }
    }
    let planned = plan(&Host::probe(), request)?;
    let ram = GuestRam::reserve(&planned)?;
    Ok((planned, ram))
}

fn populate(
    planned: &Plan,
    reserved: GuestRam<Reserved>,
    cancel: &Cancel,
    report: &mut Report,
    clock: &mut Stopwatch,
) -> Result<GuestRam<Zeroed>, Failure> {
    let workers = Workers::start(planned.workers())?;
    let mut nodes: Vec<(Option<u32>, u64)> = Vec::new();
    for node in workers.nodes() {
        let extents = planned.extents().filter(|extent| extent.node() == node);
        nodes.push((Some(node), extents.map(|extent| extent.len().bytes()).sum()));
    }
    let bars = Bars::new("populate", &nodes);
    let progress = |nodes: &[NodeProgress]| {
        for (n, node) in nodes.iter().enumerate() {
            bars.set(n, node.done);
        }
    };
    let control = Control {
        cancel: Some(cancel),
        deadline: None,
        progress: Some(&progress),
    };
    let populated = reserved.populate(&workers, &control);
    drop(workers);
    bars.finish();
    let (populated, done) = populated.map_err(|failed| failed.error)?;
    report.set_workers(&done.workers);
    let loose = done.workers.iter().filter(|worker| !worker.pinned).count();
    // Where the host shows no topology the plan has warned already.
    if loose > 0
        && planned
            .workers()
            .iter()
            .all(|worker| worker.cpu().is_some())
    {
        report.warn(format!(
            "{loose} of {} workers could not be pinned to a CPU and may share one",
            done.workers.len()
        ));
    }
    clock.lap(report, "populate", done.bytes);

    let (zeroed, placement) = populated
        .check_placement(&control)
        .map_err(|failed| failed.error)?;
    if let Some(warning) = placement.warning() {
        report.warn(warning);
    }
    report.placement = Some(PlacementFacts {
        checked_pages: placement.checked_pages,
        misplaced_pages: placement.misplaced_pages,
    });
    clock.lap(report, "verify", planned.bytes());
    Ok(zeroed)
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

#[cfg(test)]
mod tests;
