//! The command line of `prezero bench`.

mod mmap;
mod neighbour;
mod vm;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use prezero_memory::parse_size;

pub(crate) use self::mmap::{BenchMmapArgs, MmapFunction};
pub(crate) use self::neighbour::BenchNeighbourArgs;
pub(crate) use self::vm::{BenchVmArgs, PeerArg};

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) bench: Bench,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Clear hugepages that hold other bytes: every method, in chunks, with one and all threads.
    Clear(BenchClearArgs),
    /// Map fresh memory and touch it: the work, the options and the last line of `perf bench mem mmap`.
    Mmap(BenchMmapArgs),
    /// Read memory at random next to the clearing of other memory: what each method costs the reader.
    Neighbour(BenchNeighbourArgs),
    /// Compare two documents of one measurement: ratios with their uncertainty, and what differs
    /// between the machines.
    Compare(BenchCompareArgs),
    /// Make the same machine in every way, on fresh and on recycled memory, next to other monitors.
    Vm(BenchVmArgs),
}

const CLEAR_HELP: &str = "\
Each counted pass clears all of the memory after it was filled with 0xA5. Passes of all rows are \
interleaved, after one pass of each that is not counted. GB/s are 10^9 bytes per second, with the \
sample standard deviation; the time is that from all threads' start to the last one's fence.

Examples:
  prezero bench clear
  prezero bench clear --memory 1G --method rep-stosb,avx2-nt --chunk 4K,2M --threads 1 --runs 10
  prezero bench clear --memory size=2G,host_numa_node=1 --method cached,movnti
  prezero bench clear --page 1G --baseline cached:1G --json --csv clear.csv --chart clear.svg

Exit codes:
  0 done
  1 anything not listed here
  2 usage
  3 not enough hugepages, or a limit
  4 the host refuses, or this CPU has none of the methods
  6 cancelled";

#[derive(Debug, Args)]
#[command(after_long_help = CLEAR_HELP)]
pub(crate) struct BenchClearArgs {
    /// The memory to clear in each pass: a size, or a SPEC as `run` takes it. It is on hugepages, or an
    /// error, unless it says hugepages=off.
    #[arg(
        long,
        value_name = "SPEC",
        default_value = "4G",
        allow_hyphen_values = true
    )]
    pub(crate) memory: String,

    /// The hugepage size, such as 2M or 1G [default: the host's, or a smaller one that divides the
    /// memory].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) page: Option<u64>,

    /// Methods, separated by commas [default: all that this CPU has].
    #[arg(long, value_name = "METHODS", value_delimiter = ',')]
    pub(crate) method: Vec<String>,

    /// How much one string instruction or loop covers, separated by commas: multiples of 4K.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = parse_size,
          default_value = "4K,2M,32M,1G")]
    pub(crate) chunk: Vec<u64>,

    /// Numbers of threads, separated by commas [default: 1 and one per usable CPU].
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    pub(crate) threads: Vec<NonZeroUsize>,

    /// Counted passes of each row.
    #[arg(long, value_name = "N", default_value = "5")]
    pub(crate) runs: NonZeroUsize,

    /// The row that others are compared with, at the smallest number of threads
    /// [default: rep-stosb:4K].
    #[arg(long, value_name = "METHOD:CHUNK")]
    pub(crate) baseline: Option<String>,

    /// Print one JSON document (schema prezero/bench-clear/1) to stdout.
    #[arg(long)]
    pub(crate) json: bool,

    /// Write the rows to FILE, too, as comma-separated values.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,

    /// Draw the rows in FILE, too, as SVG: GB/s over chunks, a line for each method.
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) chart: Option<PathBuf>,
}

const COMPARE_HELP: &str = "\
Both files are documents that `prezero bench ... --json` printed, of the same schema. Each row that \
both have is shown with its mean and sample standard deviation in A and in B, and the ratio B/A with \
the deviations of both: σ of the ratio is |B/A|·√((σA/A)² + (σB/B)²). What differs between the machines \
is shown before that; other kernels or machines are a warning. /dev/stdin is a file, too.

Examples:
  prezero bench compare before.json after.json
  prezero bench clear --json | prezero bench compare benches/results/clear.json /dev/stdin

Exit codes:
  0 done
  1 anything not listed here
  2 a file that is absent or no such document, other schemas, or no row that both have
  4 permission";

#[derive(Debug, Args)]
#[command(after_long_help = COMPARE_HELP)]
pub(crate) struct BenchCompareArgs {
    /// The document that ratios are to.
    #[arg(value_name = "A.json")]
    pub(crate) a: PathBuf,

    /// The other one.
    #[arg(value_name = "B.json")]
    pub(crate) b: PathBuf,

    /// Print one JSON document (schema prezero/bench-compare/1) to stdout.
    #[arg(long)]
    pub(crate) json: bool,
}
