//! What is in memory after populating, on whichever node: `--clear always` clears it before the guest sees it.

use std::time::Instant;

use prezero_host::Host;
use prezero_memory::{Cancel, Class, GuestRam, Populated};
use prezero_testkit::{Hugepages, require_kvm};

use super::super::run;
use super::{MIB, args, nodes_with_memory, plant};
use crate::failure::Failure;
use crate::report::run::Report;

/// Writes a byte that is not zero to the first and the last byte of every extent.
fn write_on_every_extent(ram: &GuestRam<Populated>) {
    let ends = ram.extents().flat_map(|extent| {
        let plan = extent.plan();
        [plan.gpa(), plan.gpa() + plan.len().bytes() - 1]
    });
    plant(ram, &ends.collect::<Vec<_>>());
}

/// A run whose memory is written to between populating and clearing.
fn run_with_written(line: &str) -> (Result<(), Failure>, Report) {
    let (args, cancel, start) = (args(line), Cancel::new(), Instant::now());
    let mut report = Report::new();
    let written = &write_on_every_extent;
    let result = run(&args, start, &cancel, &mut report, written, |_| ());
    (result, report)
}

#[test]
fn what_is_written_on_any_node_is_cleared() {
    if !require_kvm() {
        return;
    }
    let nodes = nodes_with_memory();
    let Some(pages) = Hugepages::take(2 * MIB, 16 * Host::probe().nodes.len() as u64) else {
        return;
    };
    let zones = nodes.iter().map(|node| {
        format!(" --memory-zone 32M,hugepages=on,hugepage_size=2M,host_numa_node={node}")
    });
    let line = format!("--prealloc --verify{}", zones.collect::<String>());
    let planted = 2 * nodes.len() as u64;
    // Fresh memory is taken to be zero, so that the guest finds what was written.
    let (result, report) = run_with_written(&line);
    assert_eq!(result.expect_err("not zero").class, Class::Guest);
    assert_eq!(report.guest.expect("it ran").nonzero_bytes, planted);
    let (result, report) = run_with_written(&format!("{line} --clear always"));
    assert!(
        result.is_ok(),
        "{:?}",
        result.map_err(|failure| failure.message)
    );
    let cleared: Vec<u32> = report.clear.iter().map(|choice| choice.node).collect();
    assert_eq!(cleared, nodes);
    pages.assert_clean();
}
