use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Instant;

use clap::Parser;
use prezero_host::Host;
use prezero_memory::{Cancel, Class, GuestRam, State};
use prezero_testkit::{Hugepages, require_kvm};

mod clearing;
mod placement;

use super::machine::VmRam;
use super::run;
use crate::cli::{Cli, Command, RunArgs};
use crate::failure::{Failure, exit_code};
use crate::report::run::Report;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn args(line: &str) -> RunArgs {
    let words = ["prezero", "run"]
        .into_iter()
        .chain(line.split_whitespace());
    match Cli::try_parse_from(words).expect("a command line").command {
        Command::Run(args) => args,
        other => panic!("not a run: {other:?}"),
    }
}

/// A run in whose memory `registered` finds its way before the guest does.
fn run_with(line: &str, registered: impl FnOnce(&VmRam)) -> (Result<(), Failure>, Report) {
    let mut report = Report::new();
    let cancel = Cancel::new();
    let result = run(
        &args(line),
        Instant::now(),
        &cancel,
        &mut report,
        &|_| (),
        registered,
    );
    (result, report)
}

/// Writes a byte that is not zero to each guest address.
fn plant<S: State>(ram: &GuestRam<S>, gpas: &[u64]) {
    for &gpa in gpas {
        let extent = ram
            .extents()
            .find(|extent| {
                let plan = extent.plan();
                (plan.gpa()..plan.gpa() + plan.len().bytes()).contains(&gpa)
            })
            .expect("guest memory");
        let addr = extent.addr() + (gpa - extent.plan().gpa());
        let addr =
            std::ptr::with_exposed_provenance_mut::<u8>(usize::try_from(addr).expect("64 bits"));
        // SAFETY: the address lies in a mapping that `ram` keeps alive, and no guest runs yet.
        unsafe { addr.write_volatile(0x5a) };
    }
}

/// The guest has to find exactly the planted bytes and name the lowest address.
#[track_caller]
fn is_found(line: &str, gpas: &[u64]) {
    let (result, report) = run_with(line, |ram| plant(ram, gpas));
    let lowest = gpas.iter().copied().min();
    let failure = result.expect_err("a byte that is not zero");
    assert_eq!(failure.class, Class::Guest);
    assert_eq!(exit_code(failure.class), 5);
    let named = format!("guest address {:#x}", lowest.expect("at least one"));
    assert!(
        failure.message.ends_with(&named),
        "{gpas:#x?}: {}",
        failure.message
    );
    assert!(failure.fix.is_some());
    let guest = report.guest.expect("it ran");
    assert_eq!(guest.first_nonzero_gpa, lowest, "{gpas:#x?}");
    assert_eq!(guest.nonzero_bytes, gpas.len() as u64, "{gpas:#x?}");
    assert!(report.creation_ns.is_some() && report.first_instruction_ns.is_some());
}

#[track_caller]
fn is_clean(line: &str) {
    let (result, report) = run_with(line, |_| ());
    if let Err(failure) = result {
        panic!("{}", failure.message);
    }
    assert_eq!(report.guest.expect("it ran").first_nonzero_gpa, None);
}

/// The nodes that this process may have memory of.
fn nodes_with_memory() -> Vec<u32> {
    let host = Host::probe();
    let with_memory = host.nodes.iter().filter(|node| {
        node.mem_total.is_some_and(|bytes| bytes > 0) && host.allowed_nodes.contains(node.id)
    });
    with_memory.map(|node| node.id).collect()
}

fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[test]
fn one_byte_anywhere_is_found_and_the_next_run_is_clean() {
    if !require_kvm() {
        return;
    }
    for mode in ["--prealloc", ""] {
        let line = format!("--memory 64M,hugepages=off --verify {mode}");
        is_found(&line, &[random() % (64 * MIB)]);
        is_clean(&line);
    }
}

#[test]
fn first_and_last_byte_of_each_slot_are_found() {
    if !require_kvm() {
        return;
    }
    // Not populated: of the 3 GiB only the planted pages exist, the guest reads the zero page.
    let line = "--memory 3136M,hugepages=off --verify";
    let slots = [(0, 3 * GIB), (4 * GIB, 64 * MIB)];
    for (gpa, len) in slots {
        is_found(line, &[gpa]);
        is_found(line, &[gpa + len - 1]);
    }
}

#[test]
fn every_byte_is_counted_whichever_vcpu_reads_it() {
    if !require_kvm() {
        return;
    }
    let part = random() % (22 * MIB - 1);
    let gpas = [44 * MIB + part, part, 22 * MIB + part, part + 1];
    for cpus in 1..=3 {
        let line = format!("--memory 66M,hugepages=off --prealloc --verify --cpus {cpus}");
        is_found(&line, &gpas);
    }
}

#[test]
fn a_byte_on_a_hugepage_is_found_and_the_pages_come_back() {
    if !require_kvm() {
        return;
    }
    let Some(pages) = Hugepages::take(2 * MIB, 32) else {
        return;
    };
    let line = "--memory 64M,hugepages=on,hugepage_size=2M --prealloc --verify";
    is_found(line, &[64 * MIB - 1]);
    pages.assert_clean();
    // The page that was dirty is the next to be handed out, and the kernel clears it.
    is_clean(line);
    pages.assert_clean();
}

#[test]
fn without_verify_nothing_is_read_and_nothing_is_claimed() {
    if !require_kvm() {
        return;
    }
    let (result, report) = run_with("--memory 64M,hugepages=off", |ram| plant(ram, &[0]));
    assert!(result.is_ok());
    assert_eq!(report.guest.expect("it ran").scanned_bytes, 0);
}

/// Runs with a cancel that is set at once, or when the memory is registered.
#[track_caller]
fn is_cancelled(line: &str, at_once: bool) -> (Failure, Report) {
    let cancel = Cancel::new();
    if at_once {
        cancel.cancel();
    }
    let mut report = Report::new();
    let start = Instant::now();
    let registered = |_: &VmRam| cancel.cancel();
    let failure = run(
        &args(line),
        start,
        &cancel,
        &mut report,
        &|_| (),
        registered,
    )
    .expect_err("cancelled");
    assert_eq!(failure.class, Class::Stopped, "{}", failure.message);
    assert_eq!(exit_code(failure.class), 6);
    (failure, report)
}

#[test]
fn a_cancel_stops_the_run_at_the_next_step() {
    if !require_kvm() {
        return;
    }
    let last = |report: &Report| report.phases.last().map(|phase| phase.name);
    for mode in ["--prealloc", ""] {
        let line = format!("--memory 64M,hugepages=off --verify {mode}");
        let (_, report) = is_cancelled(&line, true);
        assert_eq!((last(&report), report.creation_ns), (Some("reserve"), None));
    }
    // Much to read: a guest that is done before anybody looks has not been cancelled.
    let (_, report) = is_cancelled("--memory 3136M,hugepages=off --verify", false);
    assert!(report.creation_ns.is_some() && report.guest.is_none());
    assert_eq!(last(&report), Some("boot"));
}
