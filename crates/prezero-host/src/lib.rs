//! Facts about a host that decide where the memory of a virtual machine can go: NUMA nodes and
//! their distances, CPUs, hugepage pools, hugetlbfs mounts, and the limits set on this process.
//!
//! Everything is read from files below a root directory, `/` for the running machine. A directory
//! with copies of the same files stands in for any other machine, so that a plan for a 16 TiB host
//! can be made, and tested, on a laptop; [`Host::record`] makes such a directory. Nothing else here makes
//! a system call other than to read files.
//!
//! Reading never fails. A file that is absent leaves its fact absent; a file that is there but
//! cannot be understood leaves the fact absent too, and adds a [`Problem`].
//!
//! ```
//! let host = prezero_host::Host::probe();
//! for node in &host.nodes {
//!     for pool in &node.pools {
//!         println!("node {}: {} of {} pages of {} free", node.id, pool.free, pool.total, pool.page_size);
//!     }
//! }
//! ```

mod cgroup;
mod cpu;
mod fields;
mod host;
mod hugepages;
mod id_set;
mod kernel;
mod mountinfo;
mod mounts;
mod node;
mod page_size;
mod process_limits;
mod pseudonyms;
mod recording;
mod root;
mod thp;

pub use cgroup::{
    CpuQuota, CpuThrottling, Cpuset, HugetlbCharge, HugetlbLimit, LimitKind, MemoryLimit, Throttled,
};
pub use cpu::Cpu;
pub use host::Host;
pub use hugepages::{HugepagePool, NodePool};
pub use id_set::{IdSet, ParseIdSetError};
pub use kernel::Kernel;
pub use mounts::HugetlbfsMount;
pub use node::Node;
pub use page_size::PageSize;
pub use process_limits::ProcessLimits;
pub use root::Problem;
pub use thp::Thp;
