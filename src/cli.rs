//! The command line.

mod bench;
mod exec;
mod pool;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use prezero_memory::{ClearExtents, Prealloc, parse_size};

pub(crate) use self::bench::{
    Bench, BenchArgs, BenchClearArgs, BenchCompareArgs, BenchMmapArgs, BenchNeighbourArgs,
    BenchVmArgs, MmapFunction, PeerArg,
};
pub(crate) use self::exec::ExecArgs;
pub(crate) use self::pool::{
    PoolArgs, PoolCommand, PoolCreateArgs, PoolDestroyArgs, PoolDrainArgs, PoolScrubArgs,
    PoolStatusArgs,
};

/// Builds the RAM of a KVM virtual machine on hugepages, zero by construction, before KVM sees it.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a test virtual machine and report how long its memory took.
    Run(RunArgs),
    /// Show what `run` would do with this memory, here or on a recorded host, without doing it.
    Plan(PlanArgs),
    /// Say whether this host can do it, and if not, what to type.
    Doctor(DoctorArgs),
    /// Measure how fast this host does it.
    Bench(BenchArgs),
    /// Keep hugepages from guest to guest: make, show, clean and give back segments.
    Pool(PoolArgs),
    /// Run another monitor on a segment of the pool.
    Exec(ExecArgs),
    /// Say the time of CLOCK_MONOTONIC in nanoseconds, and nothing else: for `bench vm`, about itself.
    #[command(hide = true)]
    Stamp,
}

const MEMORY_HELP: &str = "\
Guest memory: a size such as 16G, or keys and values:

size=16G[,id=NAME][,hugepages=auto|on|off][,hugepage_size=2M|1G][,path=DIR][,host_numa_node=N]
[,host_nodes=0-1|[0-1,3]][,policy=bind|preferred|interleave]

Sizes are bytes or K, M, G, T, always powers of 1024. hugepages=auto (the default) takes hugepages \
where the host has enough free, and ordinary memory with a warning where it has not; on never falls \
back; off uses ordinary memory (transparent hugepages where offered).

path is a directory on a hugetlbfs mount; without it a memfd is used.

host_nodes names host NUMA nodes, host_numa_node one. policy=bind (the default with nodes) takes \
memory of these nodes or fails; preferred takes what they have and the rest from the nearest others, \
with a warning; interleave deals pages out in turn, over every node where none is named. Without \
nodes memory follows the free pages.";

const METHOD_HELP: &str = "\
How memory is cleared where it is: rep-stosb, movnti, avx2-nt, avx512-nt, movdir64b, clzero, cached \
or portable, as far as this CPU has it. Without it, the fastest as measured on the first of the \
memory that has to be cleared.";

const RUN_HELP: &str = "\
Examples:
  prezero run --memory 1G --prealloc --verify
  prezero run --memory size=16G,hugepages=on --prealloc --json
  prezero run --memory size=8G,hugepage_size=1G,host_numa_node=1 --prealloc --threads 8
  prezero run --memory size=16G,policy=interleave --prealloc
  prezero run --memory-zone 1G --memory-zone size=4G,hugepage_size=1G --prealloc --start-timeout 30s
  prezero run --memory 4G --prealloc --clear always --method clzero
  sudo prezero run --memory size=16G,hugepages=on --reserve --prealloc
  prezero run --memory 2G --prealloc --kernel /boot/vmlinuz --initramfs initrd --cpus 2
  prezero run --memory 2G --kernel vmlinux --initramfs initrd --until login: --json

With a kernel the guest's serial console is stdout (stderr with --json) and stdin; on a terminal \
Ctrl-A x ends the machine.

Exit codes:
  0 done; a Linux guest powered off or reset itself, or --until has come
  1 anything not listed here
  2 usage, or a request no host could meet
  3 not enough memory, pages or limit, or all of it busy
  4 the host refuses: no /dev/kvm, permission, cpuset, kernel too old
  5 the guest failed, or found a byte that is not zero
  6 cancelled, or past a deadline";

/// What memory the guest is to have; the same for every command that plans.
#[derive(Debug, Args)]
pub(crate) struct MemoryArgs {
    /// Guest memory: a size such as 16G, or keys and values.
    #[arg(long, value_name = "SPEC", allow_hyphen_values = true, long_help = MEMORY_HELP)]
    pub(crate) memory: Option<String>,

    /// One zone of guest memory, in place of --memory; repeat it for more, lowest addresses first.
    #[arg(
        long,
        value_name = "SPEC",
        conflicts_with = "memory",
        allow_hyphen_values = true
    )]
    pub(crate) memory_zone: Vec<String>,
}

impl MemoryArgs {
    /// The zones as they were typed; none if no memory was asked for.
    pub(crate) fn specs(&self) -> impl Iterator<Item = &str> {
        self.memory
            .iter()
            .chain(&self.memory_zone)
            .map(String::as_str)
    }
}

/// How the memory is populated; the same for `run` and `plan`.
#[derive(Debug, Args)]
pub(crate) struct PopulateArgs {
    /// Populate all memory before the guest starts [default: off; with no value: eager].
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true,
          default_value = "off", default_missing_value = "eager", hide_default_value = true)]
    pub(crate) prealloc: PreallocArg,

    /// Populating threads in all [default: one per usable CPU of every node with guest memory].
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,

    /// Which memory is cleared once more with prezero's own stores.
    #[arg(long, value_name = "WHAT", default_value = "auto")]
    pub(crate) clear: ClearArg,
}

/// Which pool memory may come from; the same for every command that plans.
#[derive(Debug, Args)]
pub(crate) struct SegmentArgs {
    /// Take memory from a pool of recycled hugepages as far as it has any: the one at the default place
    /// (prezero on the hugetlbfs mount of the page size) if there is one, none, or the one in DIR.
    #[arg(long, value_name = "auto|none|DIR", default_value = "auto")]
    pub(crate) pool: PathBuf,
}

/// Which host is meant; the same for `plan` and `doctor`.
#[derive(Debug, Args)]
pub(crate) struct HostArgs {
    /// Judge the host recorded below this directory (prezero doctor --record) instead of this one.
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/",
        hide_default_value = true
    )]
    pub(crate) root: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_long_help = RUN_HELP)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) memory: MemoryArgs,

    #[command(flatten)]
    pub(crate) populate: PopulateArgs,

    #[command(flatten)]
    pub(crate) segments: SegmentArgs,

    /// Add the hugepages that are missing to the kernel's pools (the node's, where one is asked
    /// for), and take them out again afterwards. Needs root.
    #[arg(long)]
    pub(crate) reserve: bool,

    /// How memory is cleared [default: the fastest as measured on the first of it].
    #[arg(long, value_name = "NAME", long_help = METHOD_HELP)]
    pub(crate) method: Option<String>,

    /// How much one string instruction or loop covers, a multiple of 4K up to 1G: for measurements that
    /// set one kind of stores against another as the kernel uses them.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, hide = true)]
    pub(crate) chunk: Option<u64>,

    /// Give up if the memory is not there and registered after this long, such as 30s or 2m.
    #[arg(long, value_name = "DUR", value_parser = humantime::parse_duration)]
    pub(crate) start_timeout: Option<Duration>,

    /// Virtual CPUs of the guest.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) cpus: u32,

    /// Have the guest read every byte of its RAM and fail if one is not zero.
    #[arg(long, conflicts_with = "kernel")]
    pub(crate) verify: bool,

    #[command(flatten)]
    pub(crate) linux: LinuxArgs,

    /// Print one JSON document (schema prezero/run/1) to stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The Linux guest that `run` starts in place of its own.
#[derive(Debug, Args)]
pub(crate) struct LinuxArgs {
    /// Start this Linux kernel, a bzImage or an uncompressed vmlinux, in place of prezero's own guest.
    #[arg(long, value_name = "FILE")]
    pub(crate) kernel: Option<PathBuf>,

    /// The kernel's first file system.
    #[arg(long, value_name = "FILE", requires = "kernel")]
    pub(crate) initramfs: Option<PathBuf>,

    /// The kernel's command line.
    #[arg(
        long,
        value_name = "STR",
        requires = "kernel",
        allow_hyphen_values = true,
        default_value = DEFAULT_CMDLINE
    )]
    pub(crate) cmdline: String,

    /// Write the guest's serial console to this file; it then has no input.
    #[arg(long, value_name = "FILE", requires = "kernel")]
    pub(crate) serial: Option<PathBuf>,

    /// Host CPUs, one for each virtual CPU in turn, such as 4,6-8 [default: those of the nodes that its
    /// guest node is on].
    #[arg(long, value_name = "LIST", requires = "kernel")]
    pub(crate) cpu_affinity: Option<String>,

    /// End the machine when this text appears on the serial console.
    #[arg(
        long,
        value_name = "STRING",
        requires = "kernel",
        allow_hyphen_values = true
    )]
    pub(crate) until: Option<String>,
}

/// The console is the serial port, and a reset is by the keyboard controller; a kernel that panics resets, and says
/// by the kind of reset that it is one.
pub(crate) const DEFAULT_CMDLINE: &str = "console=ttyS0 panic=-1 reboot=k,panic_warm";

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) memory: MemoryArgs,

    #[command(flatten)]
    pub(crate) populate: PopulateArgs,

    #[command(flatten)]
    pub(crate) segments: SegmentArgs,

    #[command(flatten)]
    pub(crate) host: HostArgs,

    /// Predict how long it would take, by way, from what `prezero bench vm --json` measured at two or
    /// more sizes and saved in FILE.
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Option<PathBuf>,

    /// Print one JSON document (schema prezero/plan/1) to stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

const DOCTOR_HELP: &str = "\
Examples:
  prezero doctor
  prezero doctor --memory size=16G,hugepages=on --prealloc
  prezero doctor --calibrate
  prezero doctor --record /tmp/host && prezero plan --root /tmp/host --memory 16G

Exit codes: 0 if `prezero run` with the same options would find nothing in its way, otherwise the \
code that it would end with.";

#[derive(Debug, Args)]
#[command(after_long_help = DOCTOR_HELP)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) memory: MemoryArgs,

    #[command(flatten)]
    pub(crate) populate: PopulateArgs,

    #[command(flatten)]
    pub(crate) segments: SegmentArgs,

    /// Record what was read of the host in DIR, which must be new or empty: for `--root`, and for a
    /// bug report.
    #[arg(long, value_name = "DIR")]
    pub(crate) record: Option<PathBuf>,

    /// Measure on up to 1 GiB how fast each method clears memory here, and which one a run would
    /// choose: the long calibration, some seconds to half a minute. Takes free hugepages, or else
    /// ordinary memory.
    #[arg(long, conflicts_with = "root")]
    pub(crate) calibrate: bool,

    #[command(flatten)]
    pub(crate) host: HostArgs,

    /// Print one JSON document (schema prezero/doctor/1) to stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ClearArg {
    /// What is not known to be zero: never fresh memory, which the kernel clears.
    Auto,
    /// Fresh memory too, for measuring and for the cautious.
    Always,
}

impl From<ClearArg> for ClearExtents {
    fn from(arg: ClearArg) -> Self {
        match arg {
            ClearArg::Auto => Self::Dirty,
            ClearArg::Always => Self::All,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PreallocArg {
    /// By all workers, before KVM sees the memory.
    Eager,
    /// By the kernel, when the guest first touches each page.
    Off,
}

impl From<PreallocArg> for Prealloc {
    fn from(arg: PreallocArg) -> Self {
        match arg {
            PreallocArg::Eager => Self::Eager,
            PreallocArg::Off => Self::Off,
        }
    }
}
