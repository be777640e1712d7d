//! The command line of `prezero bench mmap`, with the letters of `perf bench mem mmap`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use prezero_memory::parse_size;

const HELP: &str = "\
The same work as `perf bench mem mmap` (Linux 6.18): each loop maps fresh memory and touches each of its \
pages. The time covers both, and not the unmapping. The last line is in perf's form, where a GB is \
2^30 bytes. One loop of each function is not counted, and those of both take turns.

Examples:
  prezero bench mmap
  prezero bench mmap -p 1G -f populate -s 8G -l 10
  prezero bench mmap -p 4K -f demand -s 1G -t 2 --json

Exit codes:
  0 done
  1 anything not listed here
  2 usage
  3 not enough hugepages or memory, or a limit
  4 the host refuses, or has no pages of this size
  6 cancelled";

#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct BenchMmapArgs {
    /// The page size: 4K for base pages, without transparent hugepages, or one that the host has a pool
    /// of, such as 2M or 1G.
    #[arg(short, long, value_name = "SIZE", value_parser = parse_size, default_value = "2M")]
    pub(crate) page: u64,

    /// How the pages come to be there: by the touch, or by MAP_POPULATE before it.
    #[arg(short, long, value_enum, default_value = "all")]
    pub(crate) function: MmapFunction,

    /// How much each thread maps in each loop.
    #[arg(short, long, value_name = "SIZE", value_parser = parse_size, default_value = "4G")]
    pub(crate) size: u64,

    /// Counted loops of each function.
    #[arg(
        short = 'l',
        long = "nr_loops",
        visible_alias = "runs",
        value_name = "N",
        default_value = "5"
    )]
    pub(crate) loops: NonZeroUsize,

    /// Threads, each pinned to a CPU, that do it at the same time, each with as much memory.
    #[arg(short, long, value_name = "N", default_value = "1")]
    pub(crate) threads: NonZeroUsize,

    /// Print one JSON document (schema prezero/bench-mmap/1) to stdout.
    #[arg(long)]
    pub(crate) json: bool,

    /// Write the rows to FILE, too, as comma-separated values.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,

    /// Draw the rows in FILE, too, as SVG: GB/s of each function.
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) chart: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum MmapFunction {
    /// By the first touch of each page.
    Demand,
    /// By MAP_POPULATE, in the call that maps.
    Populate,
    /// Both.
    All,
}
