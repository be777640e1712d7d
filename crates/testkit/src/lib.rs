//! Guards for the tests of every prezero crate.
//!
//! Unlike the libraries it serves, this crate may panic and reads the environment: a guard's job is to stop a test
//! loudly. Page sizes are plain byte counts, because it depends on no other prezero crate.
//!
//! ```no_run
//! # use prezero_testkit::Hugepages;
//! // Eight free 2 MiB pages, and nobody else counting pages meanwhile.
//! let Some(pages) = Hugepages::take(2 << 20, 8) else { return };
//! // ... the code under test ...
//! pages.assert_clean();
//! ```

mod balloon;
mod hugepages;
pub mod kernel;
mod lock;
mod mount;
mod poison;
mod pool;
mod process;
mod require;
mod seccomp;
mod sys;

pub use balloon::punch;
pub use hugepages::Hugepages;
pub use lock::MachineLock;
pub use mount::PrivateMount;
pub use poison::poison_page;
pub use pool::{Change, Counters, Pool};
pub use process::{
    maps_containing, maps_containing_of, open_fds, open_fds_of, thread_names, thread_names_of,
};
pub use require::{is_required, require_kvm, skip};
pub use seccomp::{Refusal, Refused};
