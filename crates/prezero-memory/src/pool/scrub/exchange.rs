//! Exchanging a dirty segment for fresh pages.

use std::sync::Arc;

use super::super::error::PoolError;
use super::super::lock::Locked;
use super::super::publish::{Fresh, Published};
use super::report::refused;
use super::{Left, NotScrubbed, Pass, ScrubReport};
use crate::control::Control;
use crate::limits::LimitKind;
use crate::populate::{PopulateError, populate};

impl Pass<'_> {
    /// Publishes a fresh segment, and removes the old one: after that, or before it where the kernel has
    /// no pages for both.
    pub(super) fn exchange(
        &mut self,
        old: Locked,
        control: &Control<'_>,
        report: &mut ScrubReport,
    ) -> Result<(), PoolError> {
        let (dir, len) = (Arc::clone(old.dir()), old.len());
        let mut lost = NotScrubbed {
            path: old.path(),
            node: old.node(),
            bytes: len.bytes(),
            left: Left::Opened,
        };
        let mut old = Some(old);
        self.start_pace();
        let fresh = match Fresh::reserve(&dir, len, self.host) {
            Err(error) if is_short_of_pages(&error) => {
                if let Some(removed) = old.take().map(Locked::remove) {
                    removed.map_err(PoolError::io("remove", &lost.path))?;
                }
                Fresh::reserve(&dir, len, self.host)
            }
            reserved => reserved,
        };
        let populated = fresh.and_then(|fresh| {
            let target = [fresh.target()];
            let populated = self
                .stages
                .during(control, |control| populate(&self.workers, &target, control))?;
            report.work_time += populated.time;
            fresh.publish(self.pool)
        });
        match (populated, old) {
            (Ok(Published::Clean(_)), old) => {
                report.segments += 1;
                report.bytes += len.bytes();
                if let Some(Err(source)) = old.map(Locked::remove) {
                    lost.left = refused(&source);
                    report.left.push(lost);
                }
            }
            (Ok(Published::Elsewhere(found)), old) => {
                let (offset, found) = (found.offset, found.found);
                let why = format!("the page at offset {offset:#x} came from node {found}");
                lost.left = match old {
                    // The new one is gone, and the old one is as it was.
                    Some(_) => Left::Refused {
                        errno: libc::ENOMEM,
                    },
                    None => Left::Lost { why },
                };
                report.left.push(lost);
            }
            (Err(error), None) => {
                lost.left = Left::Lost {
                    why: error.to_string(),
                };
                report.left.push(lost);
                // Only what stops the whole pass is passed on.
                if matches!(error, PoolError::Populate(PopulateError::Stopped { .. })) {
                    return Err(error);
                }
            }
            (Err(error), Some(_)) => return Err(error),
        }
        self.stages.finish(dir.node, len.bytes());
        self.paced(len.bytes(), control);
        Ok(())
    }
}

/// Whether the pages of the old segment are the ones that are missing. Those that a cgroup misses stay
/// charged to the cgroup that made the pool.
fn is_short_of_pages(error: &PoolError) -> bool {
    match error {
        PoolError::Short(_) => true,
        PoolError::Limit(hit) => hit.what == LimitKind::Mount,
        _ => false,
    }
}
