//! Hardware counters as data.

use serde::Serialize;

use crate::measure::counters::{Counts, Scope, Unavailable};

/// What a pass came to on average, all threads together; `None` is an event that the CPU lacks.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct CountsFacts {
    /// Whose work it is.
    pub(crate) scope: &'static str,
    pub(crate) cycles: Option<u64>,
    pub(crate) l1_dcache_loads: Option<u64>,
    pub(crate) l1_dcache_load_misses: Option<u64>,
}

impl CountsFacts {
    pub(crate) fn new(counts: Counts, scope: Scope) -> Self {
        Self {
            scope: scope.name(),
            cycles: counts.cycles,
            l1_dcache_loads: counts.l1_dcache_loads,
            l1_dcache_load_misses: counts.l1_dcache_load_misses,
        }
    }
}

/// Why there are no counters.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct UnavailableFacts {
    pub(crate) reason: String,
    pub(crate) fix: Option<String>,
}

impl From<Unavailable> for UnavailableFacts {
    fn from(unavailable: Unavailable) -> Self {
        Self {
            reason: unavailable.reason,
            fix: unavailable.fix,
        }
    }
}
