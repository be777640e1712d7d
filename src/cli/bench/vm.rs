//! The command line of `prezero bench vm`.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser, ValueParser};
use prezero_memory::parse_size;

const HELP: &str = "\
Every row is a process of its own, timed from its exec: prezero run to the last memory slot registered \
and to the guest's first instruction, QEMU to the greeting of its monitor, Cloud Hypervisor to its \
event \"booted\". Rows take turns, after one machine of each that is not counted. Recycled memory holds \
0xA5 before each machine, or is clean.

Rows of each size: fresh pages with 1 and all workers (cleared by the kernel; the first is the baseline), \
recycled pages cleared with the kernel's own stores (rep stosb, 4 KiB at a time) and 1 worker, with \
uncached stores and 1 and all workers, recycled pages that are clean, and the peers.

It takes hugepages for one machine of the largest size. Recycled memory is in a pool on a mount that \
only this process sees, which takes root, or below --pool; without either its rows are left out. It is \
gone however the command ends, except that a pool below --pool stays if it is killed (SIGKILL): the next \
bench vm removes it.

Examples:
  sudo prezero bench vm --memory 1G,4G,16G
  sudo prezero bench vm --memory 4G --runs 3 --peer qemu
  sudo prezero bench vm --memory 16G --peer qemu=/opt/qemu/bin/qemu-system-x86_64 \\
    --peer cloud-hypervisor=./cloud-hypervisor --json
  prezero bench vm --memory 1G,4G --estimate 1550G --pool /dev/hugepages

Exit codes:
  0 done
  1 anything not listed here
  2 usage
  3 not enough hugepages, or a limit
  4 the host refuses: no /dev/kvm, no pool in the place named
  5 the guest of a machine failed
  6 cancelled, or a machine was not there in time";

#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct BenchVmArgs {
    /// Sizes of machines, separated by commas.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = parse_size,
          default_value = "1G,4G")]
    pub(crate) memory: Vec<u64>,

    /// The hugepage size, such as 2M or 1G [default: the host's, or a smaller one that divides the
    /// memory].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) page: Option<u64>,

    /// Counted machines of each row.
    #[arg(long, value_name = "N", default_value = "3")]
    pub(crate) runs: NonZeroUsize,

    /// A directory on a hugetlbfs mount to make the pool of the measurement in, and to remove it from
    /// again [default: a mount that only this process sees].
    #[arg(long, value_name = "DIR")]
    pub(crate) pool: Option<PathBuf>,

    /// Another monitor to make the same machine with: qemu or cloud-hypervisor, with =PATH if it is not in
    /// PATH. May be given for each.
    #[arg(long, value_name = "NAME[=PATH]", value_parser = peer_parser())]
    pub(crate) peer: Vec<PeerArg>,

    /// How many workers all workers are [default: one per usable CPU].
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,

    /// Predict how long a machine of this size would take, from what two or more sizes took.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) estimate: Option<u64>,

    /// Print one JSON document (schema prezero/bench-vm/1) to stdout.
    #[arg(long)]
    pub(crate) json: bool,

    /// Write the rows to FILE, too, as comma-separated values.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,

    /// Draw the rows in FILE, too, as SVG: creation times of all ways.
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) chart: Option<PathBuf>,
}

/// Another monitor, and where it is, if that was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PeerArg {
    Qemu(Option<OsString>),
    CloudHypervisor(Option<OsString>),
}

fn peer_parser() -> ValueParser {
    ValueParser::from(OsStringValueParser::new().try_map(|text| peer(&text)))
}

fn peer(text: &OsString) -> Result<PeerArg, String> {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let mut parts = text.as_bytes().splitn(2, |byte| *byte == b'=');
    let name = parts.next().unwrap_or_default();
    let path = parts.next().map(|path| OsString::from_vec(path.to_vec()));
    if path.as_ref().is_some_and(|path| path.is_empty()) {
        return Err("there is nothing behind the =".to_owned());
    }
    match name {
        b"qemu" => Ok(PeerArg::Qemu(path)),
        b"cloud-hypervisor" => Ok(PeerArg::CloudHypervisor(path)),
        _ => Err("peers are qemu and cloud-hypervisor".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_a_name_and_may_have_a_path() {
        let parsed = |text: &str| peer(&text.into());
        assert_eq!(parsed("qemu"), Ok(PeerArg::Qemu(None)));
        let with_path = PeerArg::CloudHypervisor(Some("/a=b/ch".into()));
        assert_eq!(parsed("cloud-hypervisor=/a=b/ch"), Ok(with_path));
        for wrong in ["", "qemu=", "firecracker", "QEMU"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
