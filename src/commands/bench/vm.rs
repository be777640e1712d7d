//! `prezero bench vm`: how long it takes to make the same machine, by way.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use prezero_clear::{Method, Stores};
use prezero_host::{Host, PageSize};
use prezero_memory::{ByteSize, Cancel, Class};
use prezero_vmm::Kvm;

use super::result_file::ResultFiles;
use super::session::{self, step, warn};
use crate::cli::{BenchVmArgs, PeerArg};
use crate::commands::pool_place::whole_pages;
use crate::failure::Failure;
use crate::measure::machine::Watch;
use crate::measure::repeat::{self, Repeat};
use crate::measure::vm::null_child;
use crate::measure::vm::pins;
use crate::measure::vm::remarks::of_machines;
use crate::measure::vm::sizes::{Placed, place};
use crate::measure::vm::{self, Bench, CloudHypervisor, Measured, Pages, Place, Qemu, Ways};
use crate::measure::warning::{self, Warning};
use crate::output;
use crate::report::bench_vm::{PinsFacts, VmInstrumentFacts, VmReport};
use crate::report::estimate::{EstimateFacts, MeasuredRow, too_few};
use crate::report::own_cost::InstrumentFacts;

/// Runs the command and prints its report.
pub(crate) fn main(args: &BenchVmArgs) -> ExitCode {
    session::main(
        VmReport::new(),
        args.json,
        |cancel, report| run(args, cancel, report),
        output::bench_vm::vm,
    )
}

fn run(args: &BenchVmArgs, cancel: &Cancel, report: &mut VmReport) -> Result<(), Failure> {
    // What cannot be is refused before anything is measured.
    let sizes = sizes(args)?;
    let mut host = session::probe(report);
    let page = page(args, &sizes, &host)?;
    for bytes in &sizes {
        whole_pages("--memory", *bytes, page)?;
    }
    let dead = Place::remove_dead(args.pool.as_deref(), &host);
    if !dead.is_empty() {
        // The pages in it are free now.
        host = session::probe(report);
    }
    for (path, removed) in dead {
        let path = path.display();
        let text = match removed {
            Ok(()) => format!("Removed {path}, left by a bench vm that was killed"),
            Err(why) => format!("{path}, left by a bench vm that was killed, stays: {why}"),
        };
        note(report, text);
    }
    Kvm::open(Path::new("/dev/kvm"))?.create_vm()?;
    let placed = place(&host, &sizes, page, args.threads.map(Into::into))?;
    let files = ResultFiles::open(args.csv.as_deref(), args.chart.as_deref())?;
    let kept = Place::make(args.pool.as_deref(), page)?;

    warn(report, warning::of_machine(&host));
    let of_plan = placed.plan.warnings().iter().cloned();
    warn(report, of_plan.map(Warning::Plan));
    tell_nodes(&placed, &host, report);
    let bench = bench(args, placed.pages, &kept, &host, cancel, report)?;
    if let Err(why) = kept.pool() {
        let fix = vm::pool_fix(page);
        note(
            report,
            format!("Recycled rows are left out: {why} (fix: {fix})"),
        );
    }
    let ways = Ways {
        sizes: placed.sizes,
        recycled: kept.pool().is_ok(),
        uncached: Method::available().any(|method| method.stores() == Stores::Uncached),
        qemu: bench.qemu.is_some(),
        cloud_hypervisor: bench.cloud_hypervisor.is_some(),
    };
    if !ways.uncached {
        note(
            report,
            "This CPU has no uncached stores that prezero knows".to_owned(),
        );
    }
    let (rows, runs) = (ways.rows(), args.runs.get());
    let watch = Watch::here(&host);
    let outcome = step("make machines", vm::work(&rows, runs), |done| {
        bench.measure(&rows, runs, done)
    })?;
    report.counters_unavailable = outcome.uncounted.map(Into::into);
    for left_out in outcome.notes {
        note(report, left_out);
    }
    report.set_rows(&outcome.rows, page.bytes());
    warn(report, of_rows(&outcome.rows, report));
    warn(report, of_machines(&outcome.rows, &report.warnings));
    files.write(
        |file| output::csv::vm(file, &report.rows),
        || output::bench_vm::chart(report),
    )?;
    own_cost(&outcome.rows, cancel, report)?;
    let on_node = placed.pages.node.map(|_| &bench.cpus);
    let pinned = step("pin", pins::work(&kept, &sizes, runs), |done| {
        pins::measure(&kept, &sizes, placed.pages, runs, on_node, cancel, done)
    })?;
    session::watched(report, &watch);
    warn(report, pinned.warnings());
    report.pins = Some(PinsFacts::new(&pinned, page.bytes()));
    if let Some(bytes) = args.estimate {
        let rows: Vec<MeasuredRow> = report.rows.iter().map(MeasuredRow::from).collect();
        let estimate = EstimateFacts::new(&rows, page.bytes(), bytes)?;
        warn(report, estimate.warnings());
        report.estimate = Some(estimate);
    }
    Ok(())
}

/// The sizes, each once, the smallest first.
fn sizes(args: &BenchVmArgs) -> Result<Vec<u64>, Failure> {
    let mut sizes = args.memory.clone();
    sizes.sort_unstable();
    sizes.dedup();
    if args.estimate.is_some() && sizes.len() < 2 {
        return Err(too_few());
    }
    Ok(sizes)
}

/// The size asked for, or the host's default, or the largest smaller one that divides all sizes.
fn page(args: &BenchVmArgs, sizes: &[u64], host: &Host) -> Result<PageSize, Failure> {
    if let Some(bytes) = args.page {
        let known = PageSize::new(bytes).filter(|page| host.pool(*page).is_some());
        return known.ok_or_else(|| Failure {
            class: Class::Usage,
            message: format!("This host has no hugepages of {}", ByteSize(bytes)),
            fix: Some("--page 2M".to_owned()),
        });
    }
    let default = host.default_hugepage_size.ok_or(Failure {
        class: Class::Host,
        message: "This host has no hugepages".to_owned(),
        fix: Some("prezero doctor".to_owned()),
    })?;
    let pages = host.pools.iter().map(|pool| pool.page_size);
    let divides = |page: &PageSize| sizes.iter().all(|size| size % page.bytes() == 0);
    let fitting = pages.filter(|page| *page <= default && divides(page)).max();
    Ok(fitting.unwrap_or(default))
}

/// Where the memory is, which the reader of figures has to know on a host of several nodes.
fn tell_nodes(placed: &Placed, host: &Host, report: &mut VmReport) {
    report.memory_node = placed.pages.node;
    if let Some(node) = placed.pages.node {
        let all = host.nodes.len();
        note(
            report,
            format!(
                "Memory of all machines is on node {node} (the host has {all}), which has enough for the largest; workers are on its CPUs, and so are other monitors"
            ),
        );
    }
    let spread = placed.sizes.iter().map(|size| size.least).max();
    let spread = spread.filter(|nodes| *nodes > 1);
    warn(report, spread.map(|nodes| Warning::Spread { nodes }));
}

fn bench<'a>(
    args: &BenchVmArgs,
    pages: Pages,
    place: &'a Place,
    host: &Host,
    cancel: &'a Cancel,
    report: &mut VmReport,
) -> Result<Bench<'a>, Failure> {
    let (mut qemu, mut cloud_hypervisor) = (None, None);
    for peer in &args.peer {
        match peer {
            PeerArg::Qemu(path) => {
                let program = path.clone();
                let program = program.unwrap_or_else(|| Qemu::default_program().into());
                match Qemu::find(&program, cancel) {
                    Ok(found) => {
                        report.add_peer("qemu", found.version());
                        if !found.pins_threads() {
                            note(
                                report,
                                "This QEMU is older than 7.2 and does not keep its threads on their CPUs".to_owned(),
                            );
                        }
                        qemu = Some(found);
                    }
                    Err(why) => note(report, not_there("qemu", &program, &why)),
                }
            }
            PeerArg::CloudHypervisor(path) => {
                let program = path.clone();
                let program: OsString = program.unwrap_or_else(|| CloudHypervisor::PROGRAM.into());
                match CloudHypervisor::find(&program, place.dir(), cancel) {
                    Ok(found) => {
                        report.add_peer("cloud-hypervisor", found.version());
                        cloud_hypervisor = Some(found);
                    }
                    Err(why) => note(report, not_there("cloud-hypervisor", &program, &why)),
                }
            }
        }
    }
    let on_node = host.nodes.iter().find(|node| Some(node.id) == pages.node);
    let cpus = match on_node {
        Some(node) => node.cpus.intersection(&host.allowed_cpus),
        None => host.allowed_cpus.clone(),
    };
    Ok(Bench {
        pages,
        place,
        qemu,
        cloud_hypervisor,
        cpus,
        cancel,
    })
}

fn not_there(peer: &str, program: &OsStr, why: &str) -> String {
    let program = program.display();
    format!("{peer} is left out: {program} {why} (--peer {peer}=PATH)")
}

fn note(report: &mut VmReport, note: String) {
    output::note(&note);
    report.notes.push(note);
}

/// What timing a child adds, beside the shortest creations that were measured.
fn own_cost(rows: &[Measured], cancel: &Cancel, report: &mut VmReport) -> Result<(), Failure> {
    let costs = match null_child::measure(cancel) {
        Ok(costs) => costs,
        Err(failure) if cancel.is_cancelled() => return Err(failure),
        // The figures of the rows are none the worse for it.
        Err(failure) => {
            note(
                report,
                format!(
                    "What timing a child adds was not measured: {}",
                    failure.message
                ),
            );
            return Ok(());
        }
    };
    let shortest = |of_peers: bool| {
        let rows = rows
            .iter()
            .filter(|row| row.row.way.peer().is_some() == of_peers);
        let samples = rows.flat_map(|row| &row.samples);
        samples.map(|sample| sample.creation).min()
    };
    let Some(own) = shortest(false) else {
        return Ok(());
    };
    let peers = shortest(true);
    report.instrument = Some(VmInstrumentFacts {
        prezero: InstrumentFacts::new(&costs.prezero, own),
        peers: peers.map(|shortest| InstrumentFacts::new(&costs.peer, shortest)),
    });
    warn(
        report,
        warning::of_own_cost(&costs.prezero, own, "--memory"),
    );
    let of_peers = peers.and_then(|peers| warning::of_own_cost(&costs.peer, peers, "--memory"));
    warn(report, of_peers);
    Ok(())
}

fn of_rows(measured: &[Measured], report: &VmReport) -> Vec<Warning> {
    let name = |row: &Measured| row.row.to_string();
    let rows: Vec<(String, Vec<f64>)> = measured
        .iter()
        .map(|row| (name(row), row.seconds()))
        .collect();
    let mut found = warning::of_samples(&rows);
    let ratios = measured
        .iter()
        .zip(&report.rows)
        .filter_map(|(row, facts)| {
            let ratio = facts.speedup?;
            Some((name(row), ratio.mean, ratio.median))
        });
    found.extend(warning::of_ratios(&ratios.collect::<Vec<_>>()));
    let repeats = measured.iter().filter_map(|row| {
        let baseline = measured
            .iter()
            .find(|other| other.row.bytes == row.row.bytes)?;
        let other = baseline.row != row.row;
        other.then(|| Repeat::of_ratio(name(row), &row.seconds(), &baseline.seconds()))?
    });
    found.extend(repeat::warn(&repeats.collect::<Vec<_>>(), "--runs"));
    let raised = measured.iter().find_map(|row| {
        let (asked, used) = (row.row.workers?, row.samples.first()?.workers?);
        (used > asked).then_some(Warning::ThreadsRaised { asked, used })
    });
    found.extend(raised);
    found
}
