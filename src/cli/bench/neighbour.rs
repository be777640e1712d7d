//! The command line of `prezero bench neighbour`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use prezero_memory::parse_size;

const HELP: &str = "\
Random reads of a working set on one CPU, alone and next to the clearing of dirty memory on another, \
with each method in turn. Per row: how much slower the reads are meanwhile, how fast memory is cleared, \
and how much time the reads lose for each GiB cleared, which decides. Passes of all rows are interleaved, \
after one pass of each that is not counted; each is compared with the reads alone in its round.

Examples:
  prezero bench neighbour
  prezero bench neighbour --working-set 1M,32M,256M --method rep-stosb,movnti,clzero --runs 10
  prezero bench neighbour --rate 4G --cpus 0,2,3 --threads 2 --json

Exit codes:
  0 done
  1 anything not listed here
  2 usage
  3 not enough hugepages or memory, or a limit
  4 the host refuses, or this CPU has none of the methods
  6 cancelled";

#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct BenchNeighbourArgs {
    /// Sizes of the memory that is read, separated by commas: multiples of 4K. It is private and
    /// ordinary, on transparent hugepages where the kernel gives them to who asks.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = parse_size,
          default_value = "1M,8M,32M,128M")]
    pub(crate) working_set: Vec<u64>,

    /// Methods of clearing, separated by commas [default: all that this CPU has, but portable].
    #[arg(long, value_name = "METHODS", value_delimiter = ',')]
    pub(crate) method: Vec<String>,

    /// The most bytes that are cleared in a second, all threads together [default: as fast as it goes].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) rate: Option<u64>,

    /// Threads that clear.
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) threads: NonZeroUsize,

    /// The CPU that reads and then those that clear, separated by commas [default: the first that may be
    /// used and those that share its last-level cache, but not its core].
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    pub(crate) cpus: Vec<u32>,

    /// The memory to clear once in each pass: a size, or a SPEC as `run` takes it. It is on hugepages,
    /// or an error, unless it says hugepages=off.
    #[arg(
        long,
        value_name = "SPEC",
        default_value = "1G",
        allow_hyphen_values = true
    )]
    pub(crate) memory: String,

    /// Counted passes of each row.
    #[arg(long, value_name = "N", default_value = "5")]
    pub(crate) runs: NonZeroUsize,

    /// Print one JSON document (schema prezero/bench-neighbour/1) to stdout.
    #[arg(long)]
    pub(crate) json: bool,

    /// Write the rows to FILE, too, as comma-separated values.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,

    /// Draw the rows in FILE, too, as SVG: the time of a read, alone and next to each method.
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) chart: Option<PathBuf>,
}
