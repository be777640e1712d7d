//! `prezero pool create`: segments are made, or what is missing is added.

use std::path::{Path, absolute};
use std::process::ExitCode;

use prezero_host::{Host, HugetlbCharge, PageSize};
use prezero_memory::pool::{Pool, PoolRequest};
use prezero_memory::{ByteSize, Cancel, Class, Control, PageBytes, Stall};

use crate::cli::PoolCreateArgs;
use crate::commands::pool_place::{dir_or_default, whole_pages};
use crate::commands::request::resolved;
use crate::commands::stall::{self, POPULATE, StallWatch};
use crate::failure::Failure;
use crate::output;
use crate::output::progress::NodeBars;
use crate::report::facts::ErrorFacts;
use crate::report::pool::CreateReport;
use crate::stop;

/// The length of a segment where none is named and the pool is not smaller.
const SEGMENT: u64 = 1 << 30;

/// Runs the command and prints its report.
pub(super) fn main(args: &PoolCreateArgs) -> ExitCode {
    let mut report = CreateReport::new();
    let result = match stop::on_signals() {
        Ok(cancel) => run(args, &cancel, &mut report),
        Err(error) => Err(Failure::new(Class::Internal, &error, None)),
    };
    finish(&mut report, result, args.json)
}

fn finish(report: &mut CreateReport, result: Result<(), Failure>, json: bool) -> ExitCode {
    report.error = result.as_ref().err().map(ErrorFacts::from);
    let done = result.is_ok();
    output::finish(report, result, json, |out| match done {
        true => output::pool::create(out, report),
        false => Ok(()),
    })
}

fn run(args: &PoolCreateArgs, cancel: &Cancel, report: &mut CreateReport) -> Result<(), Failure> {
    let host = Host::probe();
    let page = page_size(args, &host)?;
    report.page_size = Some(page.bytes());
    let segment = segment(args, page)?;
    report.segment_bytes = Some(segment.bytes());
    let dir = dir_or_default(args.dir.as_deref(), &host, Some(page))?;
    report.pool = Some(dir.clone());

    let request = PoolRequest {
        bytes: args.size,
        segment,
        nodes: match &args.nodes {
            Some(nodes) => nodes.iter().collect(),
            None => args.node.into_iter().collect(),
        },
        exchange_only: args.exchange_only,
    };
    let bars = NodeBars::new("populate");
    let progress = |nodes: &[_]| bars.show(nodes);
    let last_words = |failure| {
        let _ = finish(&mut report.clone(), Err(failure), args.json);
    };
    let watch = StallWatch::new(&POPULATE, stall::LOOK, &last_words);
    let stalled = |stall: &Stall| watch.see(stall);
    let control = Control {
        cancel: Some(cancel),
        progress: Some(&progress),
        stalled: Some(&stalled),
        ..Control::default()
    };
    let threads = args.threads.map(Into::into);
    let created = Pool::create(&dir, &request, &host, threads, &control);
    bars.finish();
    let (pool, created) = created?;
    report.set_created(&created);
    for (node, segments) in &created.misplaced {
        output::warn(&format!(
            "The kernel put pages of {segments} segments for node {node} on another node: they were not made"
        ));
    }
    report.cgroup = HugetlbCharge::payer(Path::new("/"), page);
    let status = pool.status()?;
    report.exchange_only = status.exchange_only;
    report.totals = status.totals.iter().map(Into::into).collect();
    Ok(())
}

/// The size asked for, or that of the mount the named directory is on, or the host's default.
fn page_size(args: &PoolCreateArgs, host: &Host) -> Result<PageSize, Failure> {
    let sizes = || -> Vec<String> {
        let pools = host.pools.iter();
        pools
            .map(|pool| ByteSize(pool.page_size.bytes()).to_spec())
            .collect()
    };
    if let Some(bytes) = args.page {
        let known = PageSize::new(bytes).filter(|page| host.pool(*page).is_some());
        return known.ok_or_else(|| Failure {
            class: Class::Usage,
            message: format!("This host has no hugepages of {}", ByteSize(bytes)),
            fix: Some(match sizes().is_empty() {
                true => "prezero doctor".to_owned(),
                false => format!("--page {}", sizes().join(" | ")),
            }),
        });
    }
    let named = args.dir.as_deref().map(|dir| {
        let dir = absolute(dir).unwrap_or_else(|_| dir.to_owned());
        match dir.parent() {
            // The pool itself may not be there yet.
            Some(parent) if !dir.exists() => resolved(parent.to_owned()),
            _ => resolved(dir),
        }
    });
    let of_mount = named.and_then(|dir| host.mount_of(&dir)?.page_size);
    of_mount.or(host.default_hugepage_size).ok_or(Failure {
        class: Class::Host,
        message: "This host has no hugepages".to_owned(),
        fix: Some("prezero doctor".to_owned()),
    })
}

fn segment(args: &PoolCreateArgs, page: PageSize) -> Result<PageBytes, Failure> {
    let (option, bytes) = match args.segment {
        Some(bytes) => ("--segment", bytes),
        None => ("--size", args.size.min(SEGMENT).max(page.bytes())),
    };
    whole_pages(option, bytes, page)
}
