//! How a caller watches and stops work on memory.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A flag that stops work. Clones share it; setting it is safe in a signal handler.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A flag that is not set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops the work within one chunk, at most 32 MiB or one page.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether [`Cancel::cancel`] was called.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The flag itself, for signal handling crates that set an `AtomicBool`.
    #[must_use]
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

/// Why work was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoppedBy {
    /// [`Cancel`].
    Cancel,
    /// [`Control::deadline`].
    Deadline,
}

/// How far the work on one node's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeProgress {
    /// The node.
    pub node: u32,
    /// Bytes done.
    pub done: u64,
    /// Bytes to do in all.
    pub total: u64,
}

/// Told how far each node is.
pub type Progress<'a> = &'a dyn Fn(&[NodeProgress]);

/// No page has been populated for a while: the kernel does not return from a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// How long, in seconds.
    pub seconds: u64,
    /// How far each node is.
    pub nodes: Vec<NodeProgress>,
    /// For how long the work has been told to stop, by cancel or deadline, if it has.
    pub stopping: Option<Duration>,
}

/// Told about a stall. A call that the kernel does not return from can only be ended with the
/// process, so a program may end itself here.
pub type OnStall<'a> = &'a dyn Fn(&Stall);

/// How the caller watches and stops a call. The default does neither.
#[derive(Clone, Copy, Default)]
pub struct Control<'a> {
    /// Stops the work when set.
    pub cancel: Option<&'a Cancel>,
    /// Stops the work when past.
    pub deadline: Option<Instant>,
    /// Called on the calling thread about every 50 ms and once at the end. It must not use the same
    /// workers, which are busy until it returns.
    pub progress: Option<Progress<'a>>,
    /// Called on the calling thread for every second without a populated page, from the second on.
    pub stalled: Option<OnStall<'a>>,
}

impl Control<'_> {
    /// Whether the work is to stop now, and why.
    #[must_use]
    pub fn stopped_by(&self) -> Option<StoppedBy> {
        if self.cancel.is_some_and(Cancel::is_cancelled) {
            return Some(StoppedBy::Cancel);
        }
        let late = self
            .deadline
            .is_some_and(|deadline| Instant::now() >= deadline);
        late.then_some(StoppedBy::Deadline)
    }
}

impl fmt::Debug for Control<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("cancel", &self.cancel)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
