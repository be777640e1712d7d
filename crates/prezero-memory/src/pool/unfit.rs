//! Segments that are of no use any more: pages with a hardware error, or on another node.
//!
//! The kernel keeps a poisoned page in its file and unmaps it, so that whoever touches it next gets SIGBUS, and
//! who asks for it with `MADV_POPULATE_WRITE` gets `EHWPOISON`. So everything that touches a segment asks first. A
//! page that fails between asking and touching still ends the process; the segment is dirty by name then.

use super::Pool;
use super::error::PoolError;
use super::lock::Locked;
use super::mapped::{Mapped, Resident};
use super::name::SegmentName;
use super::scrub::{Left, NotScrubbed, ScrubReport, refused};

impl Pool {
    /// Looks at those of these segments that are free, and retires the ones with a poisoned page, or with pages
    /// on another node: for somebody who had them and could not use their memory. Returns the retired ones; the
    /// others are as they were.
    ///
    /// # Errors
    ///
    /// If the directories cannot be read.
    pub fn retire_unfit(&self, segments: &[SegmentName]) -> Result<Vec<NotScrubbed>, PoolError> {
        let mut report = ScrubReport::default();
        for listed in self.scan()?.segments {
            let same =
                |name: &SegmentName| (name.bytes, name.id) == (listed.name.bytes, listed.name.id);
            if !segments.iter().any(same) {
                continue;
            }
            // One that cannot be locked is somebody else's to look at.
            let Ok(locked) = self.lock_segment(&listed) else {
                continue;
            };
            let unfit = match self.resident(&locked) {
                Ok(resident) => resident.elsewhere().ok().flatten().map(Left::from),
                Err(left @ Left::Poisoned { .. }) => Some(left),
                Err(_) => None,
            };
            if let Some(left) = unfit {
                report.leave(locked, left);
            }
        }
        Ok(report.left)
    }

    /// Maps a segment and sees that all of its pages can be written to.
    pub(super) fn resident(&self, locked: &Locked) -> Result<Resident, Left> {
        let mapped = Mapped::new(locked.file(), 0, locked.len(), locked.node(), false);
        let mapped = mapped.map_err(|(_, source)| refused(&source))?;
        mapped.touched(self.touch).map_err(|bad| {
            let (offset, errno) = (bad.offset, bad.source.raw_os_error().unwrap_or(0));
            match errno {
                libc::EHWPOISON => Left::Poisoned { offset },
                _ => Left::Untouchable { offset, errno },
            }
        })
    }
}
