//! `prezero doctor`: whether this host can do it, and if not, what to type.

mod clearing;
mod cpus;
mod kernel;
mod kvm;
mod leftovers;
mod limits;
mod memory;
mod pools;
mod recycled;
mod unheld;

use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;

use prezero_host::Host;
use prezero_memory::{Class, Plan, Prealloc, Request, plan};

use self::recycled::Recycled;
use super::request::{check_root, request};
use super::segments::check_recorded;
use crate::cli::DoctorArgs;
use crate::failure::Failure;
use crate::output;
use crate::report::doctor::{DoctorReport, Finding, PoolRow};
use crate::report::facts::{ErrorFacts, Region};

/// Runs the command and prints its report.
pub(crate) fn main(args: &DoctorArgs) -> ExitCode {
    let mut report = DoctorReport::new();
    let result = run(args, &mut report);
    report.error = result.as_ref().err().map(ErrorFacts::from);
    output::finish(&report, result, args.json, |out| {
        output::doctor::doctor(out, &report)
    })
}

/// What all checks look at.
struct Case<'a> {
    host: &'a Host,
    /// The directory that `host` was read below.
    root: &'a Path,
    prealloc: Prealloc,
    /// What was asked for, if anything was, and what came of it.
    planned: Option<Result<&'a Plan, Failure>>,
    /// What is said of pools of recycled pages.
    recycled: Vec<Finding>,
    /// Bytes of guest memory asked for.
    wanted: u64,
}

impl Case<'_> {
    fn plan(&self) -> Option<&Plan> {
        self.planned.as_ref()?.as_ref().ok().copied()
    }

    /// Bytes that would be taken from the kernel's hugepages of this size, or from ordinary memory for `None`.
    fn bytes_of(&self, page_size: Option<u64>) -> u64 {
        let extents = self.plan().into_iter().flat_map(Plan::extents);
        let size =
            |backing: prezero_memory::Backing, page: u64| backing.is_hugetlb().then_some(page);
        extents
            .filter(|extent| extent.segment().is_none())
            .filter(|extent| size(extent.backing(), extent.page_size().bytes()) == page_size)
            .map(|extent| extent.len().bytes())
            .sum()
    }
}

fn run(args: &DoctorArgs, report: &mut DoctorReport) -> Result<(), Failure> {
    let mut request = request(&args.memory, &args.populate)?;
    check_root(&args.host.root)?;
    check_recorded(&args.segments.pool, &args.host.root)?;
    if let Some(dir) = &args.record {
        report.recorded =
            Host::record(&args.host.root, dir).map_err(|error| unrecorded(dir, &error))?;
    }
    let host = Host::read(&args.host.root);
    report.host = Some((&host).into());
    report.pools = PoolRow::of(&host);
    let mut recycled = Recycled::default();
    if args.host.root == Path::new("/") {
        recycled = recycled::look(&args.segments.pool, &host, &mut request);
    }
    report.recycled = recycled.pools;
    let planned = (!request.zones.is_empty()).then(|| plan(&host, &request));
    let case = Case {
        host: &host,
        root: &args.host.root,
        prealloc: request.prealloc,
        planned: planned.as_ref().map(|planned| match planned {
            Ok(plan) => Ok(plan),
            Err(error) => Err(error.clone().into()),
        }),
        recycled: recycled.findings,
        wanted: bytes(&request),
    };
    if let Some(plan) = case.plan() {
        report.regions = Region::of(plan);
    }
    report.findings = findings(&case);
    let problem = first_problem(&report.findings);
    // Minutes of measuring are not for a request that cannot be.
    let usage = problem
        .as_ref()
        .is_some_and(|failure| failure.class == Class::Usage);
    let calibrated = match args.calibrate && !usage {
        true => clearing::calibrate(&host).map(|facts| report.calibration = Some(facts)),
        false => Ok(()),
    };
    problem.map_or(calibrated, Err)
}

/// All checks, in the order in which they are shown.
fn findings(case: &Case<'_>) -> Vec<Finding> {
    let live = case.root == Path::new("/");
    let mut found = Vec::new();
    if live {
        found.push(kvm::check(case, &case.host.cpu));
        found.extend(kernel::features(case));
    } else {
        let message =
            "A recorded host: /dev/kvm, kernel features and who holds pages are not looked at";
        found.push(Finding::ok("recording", message));
    }
    found.extend(memory::unread_files(case.host));
    found.extend(pools::pools(case));
    found.extend(pools::mounts(case.host));
    found.extend(case.recycled.iter().cloned());
    found.extend(limits::cgroups(case));
    found.extend(limits::process(case.host));
    found.extend(cpus::check(case));
    if live {
        found.push(clearing::check());
    }
    found.push(kernel::version(case));
    if live {
        found.push(unheld::check(case.host));
        found.extend(leftovers::check());
    }
    found.push(kernel::numa_balancing(case));
    found.extend(memory::check(case));
    if live {
        found.extend(memory::paths(case));
        found.extend(memory::policies(case));
    }
    found
}

/// The problem that a run would end with: it opens its pool before it plans, plans before it opens
/// /dev/kvm, and populates last.
fn first_problem(findings: &[Finding]) -> Option<Failure> {
    let named = |name| findings.iter().filter(move |finding| finding.name == name);
    let first = named(recycled::NAME).chain(named(memory::NAME));
    first.chain(findings).find_map(Finding::failure)
}

fn bytes(request: &Request) -> u64 {
    let zones = request.zones.iter();
    zones.fold(0, |sum, zone| sum.saturating_add(zone.bytes))
}

fn unrecorded(dir: &Path, error: &std::io::Error) -> Failure {
    let shown = dir.display();
    let (class, fix) = match error.kind() {
        ErrorKind::DirectoryNotEmpty => (Class::Usage, format!("--record {shown}/host")),
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
            (Class::Usage, "--record \"$(mktemp -d)\"".to_owned())
        }
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            (Class::Host, "--record \"$(mktemp -d)\"".to_owned())
        }
        _ => (
            Class::Internal,
            format!("df -h {shown}; --record \"$(mktemp -d)\""),
        ),
    };
    Failure {
        class,
        message: format!("The host cannot be recorded in {shown}: {error}"),
        fix: Some(fix),
    }
}
