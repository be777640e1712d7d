//! Leasing one segment that is zero: cleared for it where no clean one is free.

use std::time::Instant;

use prezero_host::Host;

use super::super::Pool;
use super::super::error::PoolError;
use super::super::lease::Lease;
use super::super::name::State;
use super::super::take::TakeRequest;
use super::{Pass, Priority, ScrubReport, ScrubRequest};
use crate::control::Control;

impl Pool {
    /// Leases one segment of exactly `bytes` that is zero, for somebody who is given its path or descriptor
    /// and cannot be told what is in it. A clean one if there is one; else a dirty one is cleared first
    /// (exchanged, with [`ScrubRequest::exchange`]), on workers of its node at ordinary priority. Of a clean
    /// one the report has no bytes. Of a pool that is exchange-only, dirty ones are taken to be exchanged only.
    ///
    /// Nothing of it is mapped when this returns. A segment that turns out to be poisoned, or on another
    /// node, is retired, and the next one is tried.
    ///
    /// # Errors
    ///
    /// As [`Pool::take_one`] and [`Pool::scrub`]; [`PoolError::NotCleaned`] where a segment could not be
    /// cleared; and being stopped is one here.
    pub fn take_one_clean(
        &self,
        bytes: u64,
        node: Option<u32>,
        host: &Host,
        request: &ScrubRequest,
        control: &Control<'_>,
    ) -> Result<(Lease, ScrubReport), PoolError> {
        let start = Instant::now();
        let wanted = TakeRequest {
            node,
            max_bytes: bytes,
            exact: Some(bytes),
        };
        let dirty = request.exchange || !self.is_exchange_only()?;
        let mut report = ScrubReport::default();
        loop {
            let mut found = self.lock_also_dirty(&wanted, dirty)?;
            let Some(locked) = found.locked.pop() else {
                return Err(match report.left.pop() {
                    Some(left) => PoolError::NotCleaned(left),
                    None => self.none_free(&wanted, found)?,
                });
            };
            let clean = if locked.name().state == State::Clean {
                // Whoever gets it may touch it without asking first.
                match self.resident(&locked) {
                    Ok(_) => Some(locked),
                    Err(left) => {
                        report.leave(locked, left);
                        None
                    }
                }
            } else {
                let work = [(locked.node(), bytes)];
                let mut pass = Pass::new(self, host, request, work, Priority::Ordinary)?;
                match request.exchange {
                    true => pass.exchange(locked, control, &mut report)?,
                    false => pass.clear(vec![locked], control, &mut report)?.pop(),
                }
            };
            if let Some(clean) = clean {
                report.time = start.elapsed();
                return Ok((clean.lease()?, report));
            }
            // A retired one is not found again; another one that could not be cleared would be.
            let is_retired = |left: &super::NotScrubbed| {
                let name = left.path.extension();
                name.is_some_and(|state| state == State::Retired.name())
            };
            if let Some(left) = report.left.pop_if(|left| !is_retired(left)) {
                return Err(PoolError::NotCleaned(left));
            }
        }
    }
}
