//! How segments are to be scrubbed.

use prezero_clear::{Method, Stores};

use crate::clear::{ClearRequest, MethodChoice};

/// How free dirty segments become clean.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubRequest {
    /// Threads in all; one per CPU of the nodes if `None`.
    pub threads: Option<usize>,
    /// Bytes a second at most, all threads together.
    pub rate: Option<u64>,
    /// Fresh pages instead of clearing: slower, and immune to what no check sees, a page that somebody
    /// still has pinned. See [`crate::pool::Pool::scrub`].
    pub exchange: bool,
    /// With which method. Measured, under a rate, is the first uncached one: how fast it is then does not
    /// matter, and the guests' caches do.
    pub choice: MethodChoice,
}

/// When workers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Priority {
    /// Only where nothing else wants the CPU.
    Idle,
    /// As this process does: somebody is waiting for it.
    Ordinary,
}

impl ScrubRequest {
    pub(super) fn clearing(&self) -> ClearRequest {
        ClearRequest {
            choice: match (&self.choice, self.rate) {
                (MethodChoice::Measured, Some(_)) => first_uncached(),
                (choice, _) => *choice,
            },
            ..ClearRequest::default()
        }
    }
}

fn first_uncached() -> MethodChoice {
    let uncached = Method::available().find(|method| method.stores() == Stores::Uncached);
    MethodChoice::Fixed(uncached.unwrap_or_else(Method::cached))
}
