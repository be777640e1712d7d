//! Growing the kernel's hugepage pools for a while, and giving back exactly what was added.
//!
//! Pools belong to the whole host: another run or an operator may change them meanwhile. So what is
//! given back is a difference, node by node, never the old value, and both steps hold one lock for
//! the host. The lock taken for growing is held until the memory is mapped ([`Growth::settled`]):
//! until then the added pages are free for anybody, and a second run must not count on them.
//!
//! What is to be added is written to a journal below the state directory before it is added. The
//! journal is locked while its process lives, so a journal that nobody has locked is what a killed
//! process left behind ([`leftovers`]).

mod error;
mod journal;
mod kernel;
mod leftovers;
mod lock;
mod missing;
#[cfg(test)]
mod model;
mod raise;

use std::path::{Path, PathBuf};
use std::time::Duration;

use prezero_host::PageSize;

use self::journal::Journal;
use self::kernel::{Kernel, Sysfs};
use self::lock::HostLock;
use crate::control::Control;

pub use self::error::GrowError;
pub use self::leftovers::{LeftPages, Leftover, leftovers};

/// How long growing waits for another process that grows or has not yet mapped what it added.
const PATIENCE: Duration = Duration::from_secs(30);

/// Giving back waits longer, because the pages stay where it gives up, and a terabyte takes a
/// kernel minutes to add.
const PATIENCE_TO_GIVE_BACK: Duration = Duration::from_secs(300);

/// Pages that a pool has to have available: free, and not reserved by anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolNeed {
    /// The pool's page size.
    pub page: PageSize,
    /// The node whose pool it is, or `None` for the whole host.
    pub node: Option<u32>,
    /// Available pages needed.
    pub pages: u64,
}

/// What was asked of one pool, and what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grown {
    /// The pool's page size.
    pub page: PageSize,
    /// The node asked for, if any.
    pub node: Option<u32>,
    /// Pages that were missing and so asked for.
    pub asked: u64,
    /// Pages of them that the kernel added.
    pub got: u64,
    /// Whether memory was compacted to find them (`/proc/sys/vm/compact_memory`).
    pub compacted: bool,
    /// Whether the host's page cache was dropped, because compaction was not enough
    /// (`/proc/sys/vm/drop_caches`).
    pub dropped_caches: bool,
}

/// Hugepage pools that are larger than they were, until this is dropped.
///
/// Drop the memory first. While its pages are mapped the kernel takes other free pages of the pool
/// instead, which somebody else may count on; where there are none, the mapped ones become surplus
/// and go when they are freed.
#[derive(Debug)]
#[must_use = "the pages are given back when it is dropped"]
pub struct Growth {
    kernel: Sysfs,
    state_dir: PathBuf,
    grown: Vec<Grown>,
    journal: Option<Journal>,
    // Dropped after the journal: who waits for the lock finds no journal that is about to go.
    lock: Option<HostLock>,
}

impl Growth {
    /// Has the kernel add the pages that are missing for `needs`, and keeps others who use this
    /// function from counting on them until [`Growth::settled`]. Two of one process must not wait
    /// for each other: settle the first before the second is made, and before the other is dropped.
    ///
    /// `root` is `/`, or a directory with copies of `/proc` and `/sys`. `state_dir` is made where
    /// it is missing, for root to write to; it should be the same for everybody on the host, and
    /// emptied by a reboot. The needs of one page size are added up. Where nothing is missing no
    /// file of the kernel is written, and a caller who may not write to `state_dir` gets by without
    /// the lock: it cannot add pages.
    ///
    /// Where the kernel does not find enough pages memory is compacted, and where that is not
    /// enough the page cache is dropped too; both concern the whole host, and [`Growth::grown`]
    /// tells. Another process is waited for 30 s at most. `control` ends the waiting, and growing
    /// after each write to a pool; its progress is not called.
    ///
    /// # Errors
    ///
    /// [`GrowError::Memory`] before anything is added; [`GrowError::Short`] and the others after
    /// what was added is given back (or left in the journal, if even that fails).
    pub fn grow(
        root: &Path,
        state_dir: &Path,
        needs: &[PoolNeed],
        control: &Control<'_>,
    ) -> Result<Self, GrowError> {
        let kernel = Sysfs::new(root);
        let mut growth = Self {
            kernel: kernel.clone(),
            state_dir: state_dir.into(),
            grown: Vec::new(),
            journal: None,
            lock: None,
        };
        let locked = HostLock::acquire(state_dir, PATIENCE, control);
        if locked.is_ok() {
            leftovers::settle(state_dir, &kernel);
        }
        let host = kernel.facts();
        let missing = missing::missing(&host, needs)?;
        let commands = || {
            let command = |need: &PoolNeed| {
                let pages = raise::total(&host, need.page, need.node).saturating_add(need.pages);
                let dir = kernel.pool(need.page, need.node);
                format!("echo {pages} | sudo tee {}/nr_hugepages", dir.display())
            };
            missing.iter().map(command).collect::<Vec<_>>().join("; ")
        };
        let denied = |error: GrowError| match error.is_denied() {
            true => error.with_commands(commands()),
            false => error,
        };
        match locked {
            Err(error) if error.is_denied() && missing.is_empty() => return Ok(growth),
            locked => growth.lock = Some(locked.map_err(denied)?),
        }
        if !missing.is_empty() {
            let journal = Journal::create(state_dir).map_err(denied)?;
            let journal = growth.journal.insert(journal);
            growth.grown = raise::raise(&kernel, needs, control, journal).map_err(denied)?;
        }
        Ok(growth)
    }

    /// What was asked of each pool that lacked pages; empty where nothing was missing.
    #[must_use]
    pub fn grown(&self) -> &[Grown] {
        &self.grown
    }

    /// The memory is mapped, so that nobody else can have the pages any more: lets others grow the
    /// pools.
    pub fn settled(&mut self) {
        self.lock = None;
    }

    /// Gives back what was added, as dropping does.
    ///
    /// Waits up to five minutes for others who grow the pools at the moment.
    ///
    /// # Errors
    ///
    /// When the lock cannot be had or the kernel refuses. [`leftovers`] then finds the journal.
    pub fn give_back(mut self) -> Result<(), GrowError> {
        self.undo()
    }

    fn undo(&mut self) -> Result<(), GrowError> {
        let Some(mut journal) = self.journal.take() else {
            return Ok(());
        };
        if self.lock.is_none() {
            let control = Control::default();
            self.lock = Some(HostLock::acquire(
                &self.state_dir,
                PATIENCE_TO_GIVE_BACK,
                &control,
            )?);
            leftovers::settle(&self.state_dir, &self.kernel);
        }
        raise::lower(&self.kernel, &mut journal)?;
        journal.remove()
    }
}

impl Drop for Growth {
    fn drop(&mut self) {
        // The journal tells what is left.
        let _ = self.undo();
    }
}
