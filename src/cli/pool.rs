//! The command line of `prezero pool`.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use prezero_host::IdSet;
use prezero_memory::parse_size;

#[derive(Debug, Args)]
pub(crate) struct PoolArgs {
    #[command(subcommand)]
    pub(crate) command: PoolCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// Make segments, or add what is missing to a size.
    Create(PoolCreateArgs),
    /// Show what a pool has, who uses it and who pays for it. Disturbs nobody.
    Status(PoolStatusArgs),
    /// Clear free dirty segments, where and when nothing else wants the CPU.
    Scrub(PoolScrubArgs),
    /// Give free segments back to the kernel.
    Drain(PoolDrainArgs),
    /// Give everything back that is free, and remove the pool if that is all.
    Destroy(PoolDestroyArgs),
}

const EXIT_CODES: &str = "\
Exit codes:
  0 done
  1 anything not listed here
  2 usage, or no such pool
  3 not enough hugepages or a limit, or segments in use
  4 the host refuses: no hugetlbfs mount, permission, another user's pool
  6 cancelled";

const PLACE: &str = "\
DIR is a directory on a hugetlbfs mount; without it, it is prezero/ on the first such mount with \
pages of the host's default size.";

#[derive(Debug, Args)]
#[command(after_long_help = format!("{PLACE}\n
Examples:
  prezero pool create --size 16G
  prezero pool create --size 16G --segment 4G --nodes 0-1
  prezero pool create /dev/hugepages1G/prezero --size 64G --page 1G --segment 16G

The hugepages have to be there (prezero doctor), and stay charged to the cgroup that this command \
runs in.

{EXIT_CODES}"))]
pub(crate) struct PoolCreateArgs {
    /// The pool [default: prezero/ on the first hugetlbfs mount of the page size].
    pub(crate) dir: Option<PathBuf>,

    /// The wanted total of segments of this length; what is there already counts.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
    pub(crate) size: u64,

    /// The length of each segment [default: 1G, or the size if that is less].
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
    pub(crate) segment: Option<u64>,

    /// The hugepage size [default: that of the mount DIR is on, or the host's].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) page: Option<u64>,

    /// The node of the segments [default: shared out to all nodes with memory].
    #[arg(long, value_name = "N", conflicts_with = "nodes")]
    pub(crate) node: Option<u32>,

    /// The nodes to share the segments out to, such as 0-1,3.
    #[arg(long, value_name = "NODES")]
    pub(crate) nodes: Option<IdSet>,

    /// Never use a released segment again before its pages were exchanged for fresh ones (scrub does it):
    /// for users whose monitors may leave pages pinned. A pool that is made so stays so.
    #[arg(long)]
    pub(crate) exchange_only: bool,

    /// Populating threads in all [default: one per usable CPU of the nodes].
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,

    /// Print one JSON document (schema prezero/pool-create/1) to stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_long_help = format!("{PLACE}\n
A segment is leased while any process has it open or mapped. Holders that this user may not look \
at are not seen here; their segments are refused all the same.

{EXIT_CODES}"))]
pub(crate) struct PoolStatusArgs {
    /// The pool [default: the host's].
    pub(crate) dir: Option<PathBuf>,

    /// Print one JSON document (schema prezero/pool-status/1) to stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_long_help = format!("{PLACE}\n
Examples:
  prezero pool scrub
  prezero pool scrub --watch --rate 4G
  prezero pool scrub --exchange

Dirty segments of which pages are missing are filled up first; one that cannot be is exit code 3.

SIGINT and SIGTERM stop it within a chunk; the segment at hand stays dirty. That is how --watch \
ends, with exit code 0; a pass without it that was cut short ends with 6.

{EXIT_CODES}"))]
pub(crate) struct PoolScrubArgs {
    /// The pool [default: the host's].
    pub(crate) dir: Option<PathBuf>,

    /// Go on as segments are released, until SIGTERM or SIGINT.
    #[arg(long)]
    pub(crate) watch: bool,

    /// Bytes a second at most, all threads together.
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    pub(crate) rate: Option<NonZeroU64>,

    /// Clearing threads in all [default: one per usable CPU of the nodes].
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,

    /// Give the pages back and take fresh ones instead of clearing, within each file: slower, needs no
    /// spare pages, and safe from a page that a dead process's helper still has pinned.
    #[arg(long, conflicts_with = "method")]
    pub(crate) exchange: bool,

    /// How segments are cleared, as in `prezero run` [default: the fastest as measured; with --rate
    /// the first uncached one].
    #[arg(long, value_name = "NAME")]
    pub(crate) method: Option<String>,

    /// Print one JSON document (schema prezero/pool-scrub/1) to stdout, at the end.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_long_help = format!("{PLACE}\n
Dirty segments go first. Leased ones are not touched, nor are retired ones (see destroy). If less \
than --size was free, the exit code is 3.

{EXIT_CODES}"))]
pub(crate) struct PoolDrainArgs {
    /// The pool [default: the host's].
    pub(crate) dir: Option<PathBuf>,

    /// Give back at least this much, in whole segments [default: all that is free].
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
    pub(crate) size: Option<u64>,

    /// Only segments of this length.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
    pub(crate) segment: Option<u64>,

    /// Print one JSON document (schema prezero/pool-drain/1) to stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_long_help = format!("{PLACE}\n
Retired segments go, too. Leased segments and files that are not the pool's stay, and the exit \
code is 3 or 4 then.

{EXIT_CODES}"))]
pub(crate) struct PoolDestroyArgs {
    /// The pool [default: the host's].
    pub(crate) dir: Option<PathBuf>,

    /// Print one JSON document (schema prezero/pool-destroy/1) to stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

fn rate(text: &str) -> Result<NonZeroU64, String> {
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    NonZeroU64::new(bytes).ok_or_else(|| "a rate of zero would never end".to_owned())
}
