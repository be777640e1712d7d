//! The command line of `prezero exec`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use prezero_memory::parse_size;

const HELP: &str = "\
In the arguments of COMMAND, {path} is replaced by the segment's path, {size} by its length in bytes \
and {node} by its NUMA node. The segment is zero when COMMAND starts. It stays leased as long as \
COMMAND, or any process that inherited the descriptor from it, lives, also if prezero is killed; \
after that it is dirty (prezero pool scrub).

Examples:
  prezero exec --memory 4G -- qemu-system-x86_64 -accel kvm -m 4G \\
    -object memory-backend-file,id=m0,size={size},mem-path={path},share=on \\
    -machine q35,memory-backend=m0
  prezero exec --memory 4G --node 1 -- numactl --cpunodebind={node} cloud-hypervisor \\
    --memory size=0 --memory-zone id=m0,size={size},file={path},shared=on --kernel vmlinux

SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 and SIGWINCH are passed on to COMMAND, except those \
of the terminal that it gets itself.

Exit codes: COMMAND's own, or 128 and the number of the signal that ended it. Before it is started:
  1 anything not listed here
  2 usage, or no such pool
  3 no free segment of this length
  4 the host refuses: no hugetlbfs mount, permission, another user's pool
  6 cancelled while the segment was cleared
  126 COMMAND cannot be run
  127 there is no such COMMAND";

#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct ExecArgs {
    /// The pool [default: prezero/ on the first hugetlbfs mount with pages of the default size].
    #[arg(long, value_name = "DIR")]
    pub(crate) pool: Option<PathBuf>,

    /// The length of the segment, exactly, such as 16G.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
    pub(crate) memory: u64,

    /// The NUMA node of the segment [default: any].
    #[arg(long, value_name = "N")]
    pub(crate) node: Option<u32>,

    /// Where only a dirty segment is free, exchange its pages for fresh ones instead of clearing them.
    #[arg(long)]
    pub(crate) exchange: bool,

    /// The monitor and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}
